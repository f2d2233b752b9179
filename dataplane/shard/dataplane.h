// The whole dataplane of one daemon: EAL, frame buffers, lcores; makes wires and devices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/eal.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/base/priority_guard.h"
#include "dataplane/port/port_services.h"
#include "dataplane/shard/lcore.h"

namespace roci::dataplane {

struct DataplaneOptions {
  EalOptions eal;
  LcoreOptions lcore;
  uint32_t frames = 0;         // frame buffers of 4.3 KiB; 0: 8192, and 4096 per further lcore
  uint32_t sharing_ports = 0;  // number of ports that need frames in FrameMemory::kDevices
};

// Control thread only. Everything made from it (wires, devices, clients) must be destroyed before
// it.
class Dataplane final : public PortServices {
 public:
  // Starts the EAL and the lcores. Once per process.
  static absl::StatusOr<std::unique_ptr<Dataplane>> Start(const DataplaneOptions& options);
  ~Dataplane() override;

  Lcore& lcore(uint32_t index) { return *lcores_[index]; }
  PriorityGuard& priority_guard() { return priority_guard_; }

  // Runs `f(shard, lcore)` on every lcore, one after the other. When it returns, every lcore has
  // finished its current burst and sees everything that the caller stored before the call.
  template <class F>
  void CallAll(F&& f) {
    for (auto& lcore : lcores_) lcore->Call([&](const OnShard& shard) { f(shard, *lcore); });
  }
  void Quiesce() override {
    CallAll([](const OnShard&, Lcore&) {});
  }

  // The lcore with the fewest verbs contexts.
  Lcore& LeastLoadedLcore();

 private:
  Dataplane() = default;
  std::unique_ptr<FramePool> pool_;
  PriorityGuard priority_guard_;
  std::vector<std::unique_ptr<Lcore>> lcores_;
};

}  // namespace roci::dataplane
