// The control half of an RDMA device: addresses, neighbours, limits and what is used of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/addresses.h"
#include "control/config.h"
#include "control/event_loop.h"
#include "control/neighbours.h"
#include "control/quota.h"
#include "dataplane/device.h"
#include "roce/frame.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

// How much of each limit the sessions of a device use.
struct DeviceQuotas {
  explicit DeviceQuotas(const DeviceLimits& limits)
      : qps(limits.max_qp),
        cqs(limits.max_cq),
        mrs(limits.max_mr),
        pds(limits.max_pd),
        ahs(limits.max_ah) {}
  Quota qps;
  Quota cqs;
  Quota mrs;
  Quota pds;
  Quota ahs;
};

// Control thread only.
class Device {
 public:
  // `wire` is null for a device on a DPDK port. `loop` outlives the device.
  static absl::StatusOr<std::unique_ptr<Device>> Create(dataplane::Dataplane& dataplane,
                                                        dataplane::Wire* wire,
                                                        const DeviceConfig& config,
                                                        const DeviceLimits& limits,
                                                        EventLoop& loop);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return config_.name; }
  const DeviceConfig& config() const { return config_; }
  const DeviceLimits& limits() const { return limits_; }
  DeviceQuotas& quotas() { return quotas_; }
  dataplane::Device& dataplane() { return *dataplane_; }
  const AddressTable& addresses() const { return addresses_; }
  const Neighbours& neighbours() const { return neighbours_; }
  uint64_t node_guid() const { return Eui64(addresses_.mac()); }  // host byte order
  roce::PathMtu max_path_mtu() const { return max_path_mtu_; }
  uint64_t raw_send_failures() const { return raw_send_failures_; }

  // Fills in everything of the answer but its head.
  void DescribePort(roci_abi_query_port_response& out) const;

  // Finds the path of an address vector (see PlanPath for faults). If it is not known yet, answers
  // nothing; then `later` will be called exactly once, after this has returned, unless CancelPath
  // is called with `number` (which is never 0). DeadlineExceeded: the peer does not answer.
  using PathDone = std::function<void(const absl::StatusOr<roce::Path>&)>;
  absl::StatusOr<std::optional<roce::Path>> FindPath(const roci_abi_ah_attr& attr, roce::Qpn local,
                                                     roce::Qpn remote, PathDone later,
                                                     uint64_t& number);
  void CancelPath(uint64_t number);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const { return neighbours_.NextTimeout(); }
  void HandleTimeout(roce::TimeNs now);

 private:
  struct Waiting {
    roce::Path path;
    PathDone done;
  };

  Device(const DeviceConfig& config, const DeviceLimits& limits, EventLoop& loop,
         std::unique_ptr<dataplane::Device> dataplane, roce::PathMtu max_path_mtu);
  absl::Status Start();
  void DrainSlowPath();
  void SendFrame(const Frame& frame);
  void DeliverAnswers();

  const DeviceConfig config_;
  const DeviceLimits limits_;
  EventLoop& loop_;
  std::unique_ptr<dataplane::Device> dataplane_;
  const AddressTable addresses_;
  Neighbours neighbours_;
  DeviceQuotas quotas_;
  const roce::PathMtu max_path_mtu_;
  EventLoop::Watch slow_path_watch_ = 0;
  uint64_t last_waiting_ = 0;
  std::map<uint64_t, Waiting> waiting_;
  uint64_t raw_send_failures_ = 0;
};

}  // namespace roci::control
