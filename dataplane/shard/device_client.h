// The control thread's side of an RDMA device: opens its port, and sends commands to the lcores.
// The shards' side is ShardedDevice, which has the lanes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/limits.h"
#include "dataplane/shard/device_commands.h"
#include "dataplane/types/port_state.h"
#include "dataplane/types/slow_path_kind.h"
#include "dataplane/types/vendor_errors.h"
#include "roce/dcqcn.h"
#include "roce/types.h"

namespace roci::dataplane {

class CaptureTap;
struct CompletionFault;
class Dataplane;
struct DeviceTrace;
class FaultTable;
class LinkTap;
class ShardedDevice;
class Wire;

struct DeviceClientConfig {
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

// Control thread only. Clients of its verbs contexts and XRC domains must be destroyed before it.
class DeviceClient {
 public:
  // Opens the port and adds the device to every lcore.
  static absl::StatusOr<std::unique_ptr<DeviceClient>> Create(Dataplane& dataplane,
                                                              const DeviceClientConfig& config);
  ~DeviceClient();
  DeviceClient(const DeviceClient&) = delete;
  DeviceClient& operator=(const DeviceClient&) = delete;

  const std::string& name() const { return name_; }
  const roce::Mac& mac() const;
  // The state at the last RefreshLink; if the speed is unknown now, the last known speed.
  const LinkState& link() const { return link_; }
  uint32_t mtu() const { return link_.mtu; }
  bool link_up() const { return link_.up; }
  // The line rate that the lanes use for congestion control; 0: it is off.
  uint32_t line_rate_kbps() const { return line_rate_kbps_; }
  bool on_wire() const;
  PortQueues port_queues() const;  // none on a wire
  PortOffloads port_offloads() const;
  uint32_t port_rx_ring() const;  // frames in each receive ring; 0: unknown
  PortFlowControl port_flow_control() const;
  // The fill of a receive ring from which frames are handled as CE-marked; 0: never.
  uint32_t port_backlog_mark() const;
  // Whether sleeping lcores poll the port at intervals, as they have nothing to wait for.
  bool port_is_polled() const;
  uint64_t frames_linearized() const;  // as EthdevPort::linearized
  DeviceSnapshot Snapshot() const;
  PortLosses losses() const;     // none on a wire
  uint32_t queue_pairs() const;  // on all lcores
  size_t captures() const { return captures_.size(); }
  bool traced() const { return trace_ != nullptr; }

  // The slow path: frames for the control thread, which are all but RoCE, and RoCE to QP 1. The
  // queue of each kind is bounded; further frames are dropped and counted. The eventfd is readable
  // while frames wait. Call ForgetSlowPathEvent before taking frames: it reads the eventfd, and
  // later frames make it readable again.
  void ForgetSlowPathEvent();
  int slow_path_fd() const;
  // Takes the oldest frame of a kind, a whole Ethernet frame without FCS. False: there is none.
  // MADs have passed ParsePacket.
  bool ReceiveSlowPath(SlowPathKind kind, std::vector<std::byte>& frame);
  // Sends a complete Ethernet frame (ARP, ICMP, CM, ...; RoCE with its ICRC). ResourceExhausted:
  // the queue to the lcore is full or the frame pool is empty; InvalidArgument: shorter than 14
  // bytes or longer than a frame buffer.
  absl::Status SendRaw(std::span<const std::byte> frame);

  // ---- Commands to the lcores
  const LinkState& Do(const RefreshLink& command);
  void Do(const SetLinkDown& command);
  void Do(const SetLocalAddresses& command);
  absl::Status Do(const AttachMulticast& command);
  absl::Status Do(const DetachMulticast& command);
  absl::StatusOr<FlowId> Do(const AddFlow& command);
  void Do(const RemoveFlow& command);
  void Do(const CountFlow& command);
  absl::StatusOr<std::unique_ptr<CaptureReader>> Do(const StartCapture& command);
  void Do(const StopCapture& command);
  absl::Status Do(const StartTrace& command);
  void Do(const StopTrace& command);
  absl::Status Do(const SetImpairment& command);
  size_t Do(const ClearImpairments& command);
  std::vector<ImpairmentState> Do(const ListImpairments& command) const;
  absl::StatusOr<uint32_t> Do(const AddFault& command);
  bool Do(const RemoveFault& command);
  void Do(const ClearFaults& command);
  std::vector<FaultState> Do(const ListFaults& command) const;
  absl::StatusOr<uint32_t> Do(const AddCompletionFault& command);
  bool Do(const RemoveCompletionFault& command);
  std::vector<CompletionFaultState> Do(const ListCompletionFaults& command) const;

  // A number for a fault of another kind, which no other fault of the device has or had.
  uint32_t TakeFaultId() { return ++last_fault_id_; }

 private:
  friend class ShardAccess;
  friend class ShardClient;
  friend class XrcClient;
  struct ImpairmentRule;
  struct FaultRule;
  // The faults of completions as one lane uses them.
  struct LaneFaults {
    std::array<CompletionFault*, AddCompletionFault::kMost> faults;
    size_t count = 0;
  };

  DeviceClient(const DeviceClientConfig& config, std::unique_ptr<ShardedDevice> device);
  LinkState FirstLink(uint32_t mtu) const;
  uint32_t MaxFrameBytes() const;
  uint32_t LineRateKbps() const;
  void RemoveFlowFrom(size_t lanes, FlowRule& rule);
  void OpenTaps();
  void UseWireTime(uint32_t rate_mbps);
  void RemoveRule(size_t index);
  std::unique_ptr<FaultTable> TableOf(size_t lane, LinkDirection direction) const;
  void UseFaults(std::initializer_list<LinkDirection> directions);
  void ForgetFaults() noexcept;
  template <class Change>
  void ChangeLaneFaults(Change&& change);

  // Numbers a new queue pair.
  uint64_t TakeQueuePairNumber() { return ++last_queue_pair_; }
  // A queue pair has been created, and is not used yet.
  void NoteCreated(const QueuePair& qp);
  // A queue pair is gone. Deletes the faults of this queue pair alone and those of the n-th created
  // that it was; faults of several queue pairs lose its number.
  void FreeQpn(const QueuePair& qp) noexcept;

  const std::string name_;
  std::unique_ptr<ShardedDevice> device_;
  LinkState link_;
  bool is_set_down_ = false;
  const std::optional<roce::CongestionParameters> congestion_;  // as configured
  // The values that the lanes use.
  uint32_t max_frame_bytes_ = 0;
  uint32_t line_rate_kbps_ = 0;
  std::map<FlowId, FlowRule> flows_;
  uint64_t last_flow_ = 0;
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
};

}  // namespace roci::dataplane
