// The dataplane half of an RDMA device: its port, its QPNs and, on each lcore, a lane that holds
// the queue pairs and counters of that lcore.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/eal.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/link/impairment.h"
#include "dataplane/port/link_state.h"
#include "dataplane/port/port_offloads.h"
#include "dataplane/port/port_queues.h"
#include "dataplane/qp/qpn_space.h"
#include "roce/dcqcn.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

class CaptureTap;
class Dataplane;
class DeviceLane;
class EthdevPort;
struct FlowCounters;
struct FlowRule;
class LinkTap;
struct PortLosses;
class QueuePair;
class Wire;

struct DeviceConfig {
  std::string name;  // "roci0"
  // Exactly one of the two: a wire of this daemon, or a DPDK ethdev by its devargs (a vdev such as
  // "net_af_packet0,iface=eth0", or a PCI address).
  Wire* wire = nullptr;
  std::string devargs;
  roce::Mac mac;        // wire: the device's address. ethdev: all zero = the port's own
  uint32_t mtu = 4200;  // Ethernet MTU wanted; an ethdev may have less, see link()
  // None: marks are not answered, nothing is marked as capable of them, and notifications are
  // ignored. A link speed that the port knows takes the place of the line rate, once it does.
  std::optional<roce::CongestionParameters> congestion;
};

// What a frame buffer holds behind the Ethernet and VLAN headers.
inline constexpr uint32_t kMaxWireMtu = 4200;

// Made, used and destroyed by the control thread; sessions on it must be gone first.
class Device {
 public:
  // Opens the port and adds the device to every lcore.
  static absl::StatusOr<std::unique_ptr<Device>> Create(Dataplane& dataplane,
                                                        const DeviceConfig& config);
  ~Device();

  const std::string& name() const { return name_; }
  const roce::Mac& mac() const { return mac_; }
  // As RefreshLink found it; the speed is the last that was known.
  const LinkState& link() const { return link_; }
  uint32_t mtu() const { return link_.mtu; }
  bool link_up() const { return link_.up; }
  // Of congestion control, as the lanes have it; 0: that is off.
  uint32_t line_rate_kbps() const { return line_rate_kbps_; }
  // Looks at the link again; the lcores send by its MTU and line rate from then on.
  void RefreshLink();
  bool on_wire() const { return wire_ != nullptr; }
  PortQueues port_queues() const;  // none on a wire
  PortOffloads port_offloads() const;
  uint64_t frames_made_whole() const;  // as EthdevPort::made_whole

  // Frames that are not for a queue pair here: everything but RoCE, and RoCE to QP 1. The queue is
  // bounded (what does not fit is counted and dropped). The eventfd is readable when there is
  // something; reading it is the caller's business.
  // Before frames are taken: the descriptor is readable again when more come.
  void ForgetSlowPathEvent();
  int slow_path_fd() const { return slow_path_event_.get(); }
  // Takes the oldest frame, a whole Ethernet frame without FCS; false if there is none. RoCE
  // frames in it have passed ParsePacket.
  bool ReceiveSlowPath(std::vector<std::byte>& frame);
  // Sends a complete Ethernet frame (ARP, ICMP, CM, ...; RoCE with its ICRC). ResourceExhausted if
  // the queue to the lcore or the frame pool is at its end; InvalidArgument if shorter than 14
  // bytes or longer than a frame buffer.
  absl::Status SendRaw(std::span<const std::byte> frame);

  // The addresses of this device. Datagrams to other addresses (multicast groups aside) are
  // dropped as DropReason::kAddress, those to one of another VLAN, and groups' of VLANs in which
  // the device has none, as kVlan. Empty (the start): all are taken.
  void SetLocalAddresses(std::span<const roce::NetAddress> addresses);

  // Frames to this group, of any network of the device, are delivered to `qp` (UD). ALREADY_EXISTS,
  // NOT_FOUND.
  absl::Status AttachMulticast(QueuePair& qp, const roce::Gid& group);
  absl::Status DetachMulticast(QueuePair& qp, const roce::Gid& group);

  // Frames that the rule matches go to its queue pair. It stays the caller's, who removes it before
  // the queue pair goes. ResourceExhausted: too many different masks (FlowTable::kMaxClasses).
  absl::Status AddFlow(FlowRule& rule);
  void RemoveFlow(FlowRule& rule);
  // From now on the rule counts into `counters`.
  void CountFlow(FlowRule& rule, FlowCounters& counters);

  // Frames of this device are given to `capture`, which stays the caller's, until it is removed.
  // ResourceExhausted: LinkTap::kMaxCaptures are there.
  absl::Status AddCapture(CaptureTap& capture);
  void RemoveCapture(CaptureTap& capture);
  size_t captures() const { return captures_.size(); }

  // Frames of a direction meet its rules in the order in which they were made. One of the same
  // direction and filter takes the place of that which is there, and counts from 0.
  // ResourceExhausted: LinkTap::kMaxRules are there.
  struct ImpairmentState {
    ImpairmentSettings settings;
    ImpairmentSnapshot counters;
  };
  absl::Status SetImpairment(const ImpairmentSettings& settings);
  // Removes all rules, those of a direction, those of a filter. Frames that are held still go when
  // they are due. Answers how many rules there were.
  size_t ClearImpairments(std::optional<LinkDirection> direction,
                          const std::optional<FrameFilter>& filter);
  std::vector<ImpairmentState> Impairments() const;

  DeviceSnapshot Snapshot() const;
  PortLosses losses() const;     // none on a wire
  uint32_t queue_pairs() const;  // on all lcores

  // For the rest of the dataplane.
  DeviceLane& lane(uint32_t lcore) { return *lanes_[lcore]; }
  Dataplane& dataplane() { return dataplane_; }
  // QPNs of an lcore; control thread only.
  QpnSpace& qpns() { return qpns_; }
  // Numbers of shared receive queues in XRC domains; no two share a slot of a lane's table. Control
  // thread only.
  QpnSpace& srqns() { return srqns_; }
  // Gives a received frame to the control plane; any lcore. Takes the mbuf over.
  bool PushSlowPath(rte_mbuf* frame);

 private:
  void RemoveFlowFrom(size_t lanes, FlowRule& rule);
  explicit Device(Dataplane& dataplane);
  absl::Status OpenPort(const DeviceConfig& config);
  absl::Status OpenSlowPath();
  void AddLanes(const DeviceConfig& config);
  uint32_t MaxFrameBytes() const;
  uint32_t LineRateKbps() const;
  struct ImpairmentRule;
  void OpenTaps();
  void RemoveRule(size_t index);

  Dataplane& dataplane_;
  std::string name_;
  roce::Mac mac_;
  LinkState link_;
  std::optional<roce::CongestionParameters> congestion_;  // as configured
  // What the lanes have been told.
  uint32_t max_frame_bytes_ = 0;
  uint32_t line_rate_kbps_ = 0;
  Wire* wire_ = nullptr;
  uint32_t wire_endpoint_ = 0;
  std::unique_ptr<EthdevPort> ethdev_;
  uint32_t home_lcore_ = 0;  // polls the ethdev and sends raw frames
  QpnSpace qpns_;
  QpnSpace srqns_;
  Fd slow_path_event_;
  std::atomic<bool> slow_path_signalled_{false};
  rte_ring* slow_path_ = nullptr;         // lcores -> control
  rte_ring* raw_ = nullptr;               // control -> home lcore
  std::vector<rte_ring*> matched_rings_;  // to each lcore, if there are several
  uint32_t flow_count_ = 0;
  std::vector<std::unique_ptr<LinkTap>> taps_;  // of each lane, once there was need for one
  std::vector<CaptureTap*> captures_;
  std::vector<std::unique_ptr<ImpairmentRule>> rules_;
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
};

}  // namespace roci::dataplane
