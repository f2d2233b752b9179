// The shards' side of a device: its port, the numbers of its objects, the rings between lcores and
// control thread, and a lane on each lcore. The control thread's side is DeviceClient.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/qp/qpn_space.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/types/slow_path_kind.h"
#include "dataplane/types/vendor_errors.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

class Dataplane;
class EthdevPort;
class Wire;

class ShardedDevice {
 public:
  // Opens the port. The device has no lanes yet.
  static absl::StatusOr<std::unique_ptr<ShardedDevice>> Open(Dataplane& dataplane,
                                                             const DeviceClientConfig& config);
  ~ShardedDevice();
  ShardedDevice(const ShardedDevice&) = delete;
  ShardedDevice& operator=(const ShardedDevice&) = delete;

  // ---- Any lcore
  // Passes a received frame, and its ownership, to the control thread.
  bool PushSlowPath(SlowPathKind kind, rte_mbuf* frame);

  // ---- Control thread
  // Adds a lane to every lcore. The last two are those of DeviceLane::UseLink.
  void AddLanes(const DeviceClientConfig& config, uint32_t max_frame_bytes,
                uint32_t line_rate_kbps);
  // No frame is sent or received afterwards. Taps, which lanes may use, can then be destroyed.
  void RemoveLanes();
  DeviceLane& lane(size_t lcore) { return *lanes_[lcore]; }
  std::span<const std::unique_ptr<DeviceLane>> lanes() const { return lanes_; }
  Lcore& LcoreOf(size_t lane);
  // Runs f(shard, lane, index of the lane) on each lcore, one after the other.
  template <class F>
  void ForEachLane(F&& f) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      LcoreOf(i).Call([&](const OnShard& shard) { f(shard, *lanes_[i], i); });
    }
  }

  Dataplane& dataplane() { return dataplane_; }
  const roce::Mac& mac() const { return mac_; }
  // One of the two.
  Wire* wire() const { return wire_; }
  EthdevPort* ethdev() const { return ethdev_.get(); }
  // QPNs of an lcore.
  QpnSpace& qpns() { return *qpns_; }
  // Numbers of shared receive queues in XRC domains; each has its own slot in a lane's table.
  QpnSpace& srqns() { return *srqns_; }

  // As those of DeviceClient.
  void ForgetSlowPathEvent();
  int slow_path_fd() const { return slow_path_event_.get(); }
  bool ReceiveSlowPath(SlowPathKind kind, std::vector<std::byte>& frame);
  absl::Status SendRaw(std::span<const std::byte> frame);

 private:
  explicit ShardedDevice(Dataplane& dataplane) : dataplane_(dataplane) {}
  absl::Status OpenPort(const DeviceClientConfig& config);
  absl::Status OpenSlowPath();
  rte_ring* SlowPathOf(SlowPathKind kind) const { return slow_paths_[static_cast<size_t>(kind)]; }

  Dataplane& dataplane_;
  roce::Mac mac_;
  Wire* wire_ = nullptr;
  uint32_t wire_endpoint_ = 0;
  std::unique_ptr<EthdevPort> ethdev_;
  uint32_t home_lcore_ = 0;  // polls the ethdev and sends raw frames
  std::unique_ptr<QpnSpace> qpns_;
  std::unique_ptr<QpnSpace> srqns_;
  Fd slow_path_event_;
  std::atomic<bool> slow_path_signalled_{false};
  std::array<rte_ring*, kSlowPathKinds.size()> slow_paths_{};  // lcores -> control thread
  rte_ring* raw_ = nullptr;                                    // control thread -> home lcore
  std::vector<rte_ring*> matched_rings_;  // to each lcore, if there are several
  VendorErrors vendor_errors_ = kPlainVendorErrors;
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
};

}  // namespace roci::dataplane
