// The whole dataplane of one daemon: EAL, frame buffers, lcores; makes wires and devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/eal_options.h"
#include "dataplane/port/port_services.h"
#include "dataplane/types/lcore_state.h"
#include "dataplane/types/port_state.h"
#include "dataplane/types/trace_reader.h"

namespace roci::dataplane {

class Lcore;
class PendingReleases;
class PriorityGuard;
class ThreadPriority;
class Wire;

struct DataplaneOptions {
  EalOptions eal;
  LcoreOptions lcore;
  uint32_t frames = 0;  // frame buffers of 4.3 KiB; 0: 8192, and 4096 per further lcore
  std::vector<PortSettings> sharing_ports;  // that need frames in FrameMemory::kDevices
};

// Control thread only. Everything made from it (devices, clients) must be destroyed before it.
class Dataplane final : public PortServices {
 public:
  // Starts the EAL and the lcores. Once per process.
  static absl::StatusOr<std::unique_ptr<Dataplane>> Start(const DataplaneOptions& options);
  ~Dataplane() override;

  // Frees some of what copies do not use any more. Call it from time to time while HasReleases().
  void ReleaseSome();
  bool HasReleases() const;
  // The index of the lcore with the fewest verbs contexts.
  uint32_t LeastLoadedLcore() const;
  LcoreThread ThreadOf(uint32_t lcore) const;
  LcoreState Inspect(uint32_t lcore) const;
  // Returns the account (uid) of one user that has blocked the lcore (MemoryWatch), each user once.
  std::optional<uint32_t> TakeBlocker(uint32_t lcore);
  // Whether DPDK's memory, which has the frames, lies in hugepages.
  bool HasHugePages() const;

  bool has_virtual_time() const { return has_virtual_time_; }
  // The time of the lcores, in ns.
  uint64_t Now();

  // A new wire, which lives as long as this object.
  Wire& AddWire();
  // Where devices that are traced together record (DeviceClient).
  std::unique_ptr<TraceReader> OpenTrace() const;
  // Guards another thread than the lcores against starvation; see PriorityGuard.
  void Guard(ThreadPriority& thread);
  // Prepares every lcore for FLUSH for persistence. False: no thread can be created.
  bool PrepareDurable();

  void Quiesce() override;

 private:
  friend class ShardAccess;
  Dataplane();
  bool has_virtual_time_ = false;
  std::unique_ptr<FramePool> pool_;
  std::unique_ptr<PriorityGuard> priority_guard_;
  std::unique_ptr<PendingReleases> releases_;
  std::vector<std::unique_ptr<Lcore>> lcores_;
  std::vector<std::unique_ptr<Wire>> wires_;
};

}  // namespace roci::dataplane
