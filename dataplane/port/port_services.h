// The part of the lcores that wires and ports use.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/lcore_wake.h"

namespace roci::dataplane {

class FramePool;

class PortServices {
 public:
  PortServices() = default;
  virtual ~PortServices() = default;
  PortServices(const PortServices&) = delete;
  PortServices& operator=(const PortServices&) = delete;

  // ---- Any thread
  uint32_t lcore_count() const { return static_cast<uint32_t>(wakes_.size()); }
  FramePool& frames() { return *frames_; }
  // Wakes an lcore if it sleeps; see LcoreWake.
  void WakeIfSleeping(uint32_t lcore) { wakes_[lcore]->WakeIfSleeping(); }

  // ---- Control thread
  // When it returns, every lcore has finished the burst that was under way, and sees what the
  // caller stored before.
  virtual void Quiesce() = 0;

 protected:
  FramePool* frames_ = nullptr;
  std::vector<LcoreWake*> wakes_;  // by lcore
};

}  // namespace roci::dataplane
