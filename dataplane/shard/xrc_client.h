// The control thread's side of an XRC domain (IBTA vol 1, A14): creates and destroys receive-only
// queue pairs that no single program owns. The shard's side is XrcTargets.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "dataplane/shard/device_commands.h"

namespace roci::dataplane {

class DeviceClient;
class Lcore;
class XrcTargets;

// Control thread only. A domain and all its contexts are on one lcore.
class XrcClient {
 public:
  XrcClient(DeviceClient& device, uint32_t lcore_index);
  // Destroys the remaining queue pairs. No context may have one open, or have a shared receive
  // queue in the domain.
  ~XrcClient();
  XrcClient(const XrcClient&) = delete;
  XrcClient& operator=(const XrcClient&) = delete;

  uint32_t lcore_index() const;
  // For SharedReceiveQueueConfig::domain.
  XrcTargets* domain() const { return targets_.get(); }

  // ---- Commands to the shard
  absl::StatusOr<CreatedTarget> Do(const CreateTarget& command);
  void Do(const DestroyTarget& command);
  std::unique_ptr<TargetOpening> Do(const OpenTarget& command);
  uint32_t Do(const CloseTarget& command);

 private:
  DeviceClient& device_;
  Lcore& lcore_;
  std::unique_ptr<XrcTargets> targets_;
};

}  // namespace roci::dataplane
