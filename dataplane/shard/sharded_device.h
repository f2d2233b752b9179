// The dataplane part of an RDMA device: its port, its QPNs, and a lane on each lcore with the queue
// pairs and counters of that lcore.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/limits.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/types/capture_reader.h"
#include "dataplane/types/capture_settings.h"
#include "dataplane/types/completion_fault_settings.h"
#include "dataplane/types/fault_settings.h"
#include "dataplane/types/flow_rule.h"
#include "dataplane/types/impairment_settings.h"
#include "dataplane/types/port_state.h"
#include "dataplane/types/slow_path_kind.h"
#include "dataplane/types/trace_reader.h"
#include "dataplane/types/vendor_errors.h"
#include "roce/dcqcn.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

class CaptureTap;
struct DeviceTrace;
struct CompletionFault;
class FaultTable;
class Dataplane;
class DeviceLane;
class EthdevPort;
class Lcore;
class LinkTap;
class QpnSpace;
class QueuePair;
class Wire;

struct ShardedDeviceConfig {
  std::string name;  // "roci0"
  // Exactly one of the two: a wire of this daemon, or a DPDK ethdev by its devargs (a vdev such as
  // "net_af_packet0,iface=eth0", or a PCI address).
  Wire* wire = nullptr;
  std::string devargs;
  roce::Mac mac;               // wire: the device's address; ethdev: all zero for the port's own
  PortSettings port_settings;  // of an ethdev
  // Requested Ethernet MTU; an ethdev may have less, see link().
  uint32_t mtu = kMaxMtuBytes;
  // None: congestion control is off. Packets are not sent as ECN-capable, CE marks are not
  // answered, and CNPs are ignored. The port's link speed, once it is known, replaces the line
  // rate.
  std::optional<roce::CongestionParameters> congestion;
  VendorErrors vendor_errors = kPlainVendorErrors;
  uint32_t rate_mbps = 100'000;  // of a wire, with virtual time
  // Of the first numbers of queue pairs and shared receive queues; none: they are random.
  std::optional<uint64_t> seed;
};

// Control thread only, except where noted. Its clients must be destroyed before it.
class ShardedDevice {
 public:
  // Opens the port and adds the device to every lcore.
  static absl::StatusOr<std::unique_ptr<ShardedDevice>> Create(Dataplane& dataplane,
                                                               const ShardedDeviceConfig& config);
  ~ShardedDevice();

  const std::string& name() const { return name_; }
  const roce::Mac& mac() const { return mac_; }
  // The state at the last RefreshLink; if the speed is unknown now, the last known speed.
  const LinkState& link() const { return link_; }
  uint32_t mtu() const { return link_.mtu; }
  bool link_up() const { return link_.up; }
  // The line rate that the lanes use for congestion control; 0: it is off.
  uint32_t line_rate_kbps() const { return line_rate_kbps_; }
  // Reads the state of the link and passes its MTU and line rate to the lcores.
  void RefreshLink();
  // Sets the link down, as an administrator does, or lets it follow the port again. While it is
  // down, no frame is sent or received, loopback included.
  void SetLinkDown(bool is_down);
  bool on_wire() const { return wire_ != nullptr; }
  PortQueues port_queues() const;  // none on a wire
  PortOffloads port_offloads() const;
  uint32_t port_rx_ring() const;  // frames in each receive ring; 0: unknown
  PortFlowControl port_flow_control() const;
  // The fill of a receive ring from which frames are handled as CE-marked; 0: never.
  uint32_t port_backlog_mark() const;
  // Whether sleeping lcores poll the port at intervals, as they have nothing to wait for.
  bool port_is_polled() const;
  uint64_t frames_linearized() const;  // as EthdevPort::linearized

  // The slow path: frames for the control thread, which are all but RoCE, and RoCE to QP 1. The
  // queue of each kind is bounded; further frames are dropped and counted. The eventfd is readable
  // while frames wait. Call ForgetSlowPathEvent before taking frames: it reads the eventfd, and
  // later frames make it readable again.
  void ForgetSlowPathEvent();
  int slow_path_fd() const { return slow_path_event_.get(); }
  // Takes the oldest frame of a kind, a whole Ethernet frame without FCS. False: there is none.
  // MADs have passed ParsePacket.
  bool ReceiveSlowPath(SlowPathKind kind, std::vector<std::byte>& frame);
  // Sends a complete Ethernet frame (ARP, ICMP, CM, ...; RoCE with its ICRC). ResourceExhausted:
  // the queue to the lcore is full or the frame pool is empty; InvalidArgument: shorter than 14
  // bytes or longer than a frame buffer.
  absl::Status SendRaw(std::span<const std::byte> frame);

  // Sets the addresses of this device. Datagrams to other addresses, except multicast groups, are
  // dropped as DropReason::kAddress. Datagrams to an address of another VLAN, and to groups in
  // VLANs without an address of the device, are dropped as kVlan. Empty (initially): all are
  // accepted.
  void SetLocalAddresses(std::span<const roce::NetAddress> addresses);

  // Delivers frames to this group, in any network of the device, to `qp` (UD). ALREADY_EXISTS,
  // NOT_FOUND.
  absl::Status AttachMulticast(QueuePair& qp, const roce::Gid& group);
  absl::Status DetachMulticast(QueuePair& qp, const roce::Gid& group);

  // Delivers frames that match the rule to its queue pair. The caller owns the rule and removes it
  // before it destroys the queue pair. ResourceExhausted: too many different masks
  // (FlowTable::kMaxClasses).
  absl::Status AddFlow(FlowRule& rule);
  void RemoveFlow(FlowRule& rule);
  // Makes the rule count in `counters` from now on.
  void CountFlow(FlowRule& rule, FlowCounters& counters);

  // Captures the device's frames until StopCapture, which must come before the reader is destroyed.
  // ResourceExhausted: there are LinkTap::kMaxCaptures, or no memory is left.
  absl::StatusOr<std::unique_ptr<CaptureReader>> StartCapture(const CaptureSettings& settings);
  // Frames that wait can still be read.
  void StopCapture(CaptureReader& reader);
  size_t captures() const { return captures_.size(); }

  // Records what queue pairs do for `reader` (Dataplane::OpenTrace) until StopTrace, which must
  // come before the reader is destroyed. `number`: TraceRecord::device. A device has one trace at
  // most: AlreadyExists.
  absl::Status StartTrace(TraceReader& reader, TraceSettings settings, uint8_t number);
  void StopTrace();
  bool traced() const { return trace_ != nullptr; }

  // Rules of a direction apply in the order of their creation. A new rule replaces the rule of the
  // same direction and filter, and counts from 0. ResourceExhausted: there are LinkTap::kMaxRules.
  struct ImpairmentState {
    ImpairmentSettings settings;
    ImpairmentSnapshot counters;
  };
  absl::Status SetImpairment(const ImpairmentSettings& settings);
  // Removes all rules, or only those of a direction or a filter. Held frames are still sent when
  // they are due. Returns the number of removed rules.
  size_t ClearImpairments(std::optional<LinkDirection> direction,
                          const std::optional<FrameFilter>& filter);
  std::vector<ImpairmentState> Impairments() const;

  // Faults of a direction apply in the order of their creation, before impairments. Returns the
  // fault's number, which no other fault of the device gets. ResourceExhausted: there are
  // LinkTap::kMaxFaults.
  struct FaultState {
    uint32_t id = 0;
    FaultSettings settings;
    FaultSnapshot counters;
  };
  absl::StatusOr<uint32_t> AddFault(const FaultSettings& settings);
  // False: there is no such fault. Held frames go on when they are due.
  bool RemoveFault(uint32_t id);
  void ClearFaults();
  // Faults of completions: as those of packets. ResourceExhausted: there are kMostCompletionFaults.
  static constexpr size_t kMostCompletionFaults = 64;
  absl::StatusOr<uint32_t> AddCompletionFault(const CompletionFaultSettings& settings);
  bool RemoveCompletionFault(uint32_t id);
  std::vector<CompletionFaultState> CompletionFaults() const;
  // A number for a fault of another kind, which no other fault of the device has or had.
  uint32_t TakeFaultId() { return ++last_fault_id_; }
  std::vector<FaultState> Faults() const;

  DeviceSnapshot Snapshot() const;
  PortLosses losses() const;     // none on a wire
  uint32_t queue_pairs() const;  // on all lcores

  // For the rest of the dataplane.
  DeviceLane& lane(uint32_t lcore) { return *lanes_[lcore]; }
  Dataplane& dataplane() { return dataplane_; }
  // QPNs of an lcore; control thread only.
  QpnSpace& qpns() { return *qpns_; }
  // Numbers a new queue pair. Control thread only.
  uint64_t TakeQueuePairNumber() { return ++last_queue_pair_; }
  // A queue pair has been created, and is not used yet. Control thread only.
  void NoteCreated(const QueuePair& qp);
  // A queue pair is gone. Deletes the faults of this queue pair alone and those of the n-th created
  // that it was; faults of several queue pairs lose its number. Control thread only.
  void FreeQpn(const QueuePair& qp) noexcept;
  // Numbers of shared receive queues in XRC domains; each has its own slot in a lane's table.
  // Control thread only.
  QpnSpace& srqns() { return *srqns_; }
  // Passes a received frame, and its ownership, to the control thread. Any lcore.
  bool PushSlowPath(SlowPathKind kind, rte_mbuf* frame);

 private:
  void RemoveFlowFrom(size_t lanes, FlowRule& rule);
  explicit ShardedDevice(Dataplane& dataplane);
  Lcore& LcoreOf(size_t lane);
  absl::Status OpenPort(const ShardedDeviceConfig& config);
  absl::Status OpenSlowPath();
  void AddLanes(const ShardedDeviceConfig& config);
  uint32_t MaxFrameBytes() const;
  uint32_t LineRateKbps() const;
  struct ImpairmentRule;
  struct FaultRule;
  void OpenTaps();
  void UseWireTime(uint32_t rate_mbps);
  std::unique_ptr<FaultTable> TableOf(size_t lane, LinkDirection direction) const;
  void UseFaults(std::initializer_list<LinkDirection> directions);
  void ForgetFaults() noexcept;
  // The faults of completions as one lane uses them.
  struct LaneFaults {
    std::array<CompletionFault*, kMostCompletionFaults> faults;
    size_t count = 0;
  };
  template <class Change>
  void ChangeLaneFaults(Change&& change);
  void RemoveRule(size_t index);

  Dataplane& dataplane_;
  std::string name_;
  roce::Mac mac_;
  LinkState link_;
  bool is_set_down_ = false;
  std::optional<roce::CongestionParameters> congestion_;  // as configured
  // The values that the lanes use.
  uint32_t max_frame_bytes_ = 0;
  uint32_t line_rate_kbps_ = 0;
  Wire* wire_ = nullptr;
  uint32_t wire_endpoint_ = 0;
  std::unique_ptr<EthdevPort> ethdev_;
  uint32_t home_lcore_ = 0;  // polls the ethdev and sends raw frames
  std::unique_ptr<QpnSpace> qpns_;
  std::unique_ptr<QpnSpace> srqns_;
  Fd slow_path_event_;
  std::atomic<bool> slow_path_signalled_{false};
  // From the lcores to the control thread.
  rte_ring* SlowPathOf(SlowPathKind kind) const { return slow_paths_[static_cast<size_t>(kind)]; }
  std::array<rte_ring*, kSlowPathKinds.size()> slow_paths_{};
  rte_ring* raw_ = nullptr;               // control -> home lcore
  std::vector<rte_ring*> matched_rings_;  // to each lcore, if there are several
  uint32_t flow_count_ = 0;
  std::vector<std::unique_ptr<LinkTap>> taps_;  // of each lane; created when first needed
  std::vector<CaptureTap*> captures_;
  std::unique_ptr<DeviceTrace> trace_;  // null: not traced
  std::vector<std::unique_ptr<ImpairmentRule>> rules_;
  std::vector<std::unique_ptr<FaultRule>> faults_;
  // Of each tap, by direction; null: no faults.
  std::vector<std::array<std::unique_ptr<FaultTable>, 2>> fault_tables_;
  uint64_t last_queue_pair_ = 0;
  std::vector<std::unique_ptr<CompletionFault>> completion_faults_;
  std::vector<std::unique_ptr<LaneFaults>> lane_faults_;  // as soon as there was a fault
  uint32_t last_fault_id_ = 0;
  VendorErrors vendor_errors_ = kPlainVendorErrors;
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
};

}  // namespace roci::dataplane
