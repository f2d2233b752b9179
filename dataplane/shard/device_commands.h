// Commands of the control thread about a device and about its XRC domains, and the answers.
// DeviceClient::Do() and XrcClient::Do() run them between two bursts of each lcore concerned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/types/capture_reader.h"
#include "dataplane/types/capture_settings.h"
#include "dataplane/types/completion_fault_settings.h"
#include "dataplane/types/fault_settings.h"
#include "dataplane/types/flow_rule.h"
#include "dataplane/types/impairment_settings.h"
#include "dataplane/types/port_state.h"
#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/target_opening.h"
#include "dataplane/types/trace_reader.h"
#include "roce/types.h"

namespace roci::dataplane {

class QueuePair;
class ShardClient;

// ---- Link and addresses

// Reads the state of the link and passes its MTU and line rate to the lcores.
struct RefreshLink {};  // -> LinkState
// Sets the link down, as an administrator does, or lets it follow the port again. While it is
// down, no frame is sent or received, loopback included.
struct SetLinkDown {
  bool is_down;
};
// Sets the addresses of the device. Datagrams to other addresses, except multicast groups, are
// dropped as DropReason::kAddress. Datagrams to an address of another VLAN, and to groups in VLANs
// without an address of the device, are dropped as kVlan. Empty (initially): all are accepted.
struct SetLocalAddresses {
  std::span<const roce::NetAddress> addresses;
};

// ---- Multicast groups

// Delivers frames to this group, in any network of the device, to `qp` (UD).
struct AttachMulticast {  // AlreadyExists
  QueuePair& qp;
  const roce::Gid& group;
};
struct DetachMulticast {  // NotFound
  QueuePair& qp;
  const roce::Gid& group;
};

// ---- Flow rules

// Names a rule of a device.
enum class FlowId : uint64_t {};
// Delivers frames that match the rule to its queue pair. The rule is removed before its queue pair
// and its counters are destroyed.
struct AddFlow {  // -> FlowId. ResourceExhausted: too many different masks (FlowTable::kMaxClasses)
  const FlowRule& rule;
};
struct RemoveFlow {
  FlowId flow;
};
// Makes the rule count in `counters` from now on.
struct CountFlow {
  FlowId flow;
  FlowCounters& counters;
};

// ---- Captures and traces

// Captures the device's frames until StopCapture, which must come before the reader is destroyed.
struct StartCapture {  // -> CaptureReader. ResourceExhausted: there are LinkTap::kMaxCaptures, or
                       // no memory is left
  const CaptureSettings& settings;
};
// Frames that wait can still be read.
struct StopCapture {
  CaptureReader& reader;
};
// Records what queue pairs do for `reader` (Dataplane::OpenTrace) until StopTrace, which must come
// before the reader is destroyed.
struct StartTrace {  // AlreadyExists: a device has one trace at most
  TraceReader& reader;
  const TraceSettings& settings;
  uint8_t number;  // TraceRecord::device
};
struct StopTrace {};

// ---- Impairments. Those of a direction apply in the order of their creation.

struct ImpairmentState {
  ImpairmentSettings settings;
  ImpairmentSnapshot counters;
};
// Replaces the impairment of the same direction and filter, and counts from 0.
struct SetImpairment {  // ResourceExhausted: there are LinkTap::kMaxRules
  const ImpairmentSettings& settings;
};
// Removes all impairments, or only those of a direction or a filter. Held frames are still sent
// when they are due.
struct ClearImpairments {  // -> size_t, the number of removed ones
  std::optional<LinkDirection> direction = {};
  std::optional<FrameFilter> filter = {};
};
struct ListImpairments {};  // -> std::vector<ImpairmentState>

// ---- Faults. Those of a direction apply in the order of their creation, before impairments. A
// fault has a number, which no other fault of the device gets.

struct FaultState {
  uint32_t id = 0;
  FaultSettings settings;
  FaultSnapshot counters;
};
struct AddFault {  // -> uint32_t. ResourceExhausted: there are LinkTap::kMaxFaults
  const FaultSettings& settings;
};
// Held frames go on when they are due.
struct RemoveFault {  // -> bool; false: there is no such fault
  uint32_t id;
};
struct ClearFaults {};
struct ListFaults {};  // -> std::vector<FaultState>
// Faults of completions.
struct AddCompletionFault {  // -> uint32_t. ResourceExhausted: there are kMost
  static constexpr size_t kMost = 64;
  const CompletionFaultSettings& settings;
};
struct RemoveCompletionFault {  // -> bool; false: there is no such fault
  uint32_t id;
};
struct ListCompletionFaults {};  // -> std::vector<CompletionFaultState>

// ---- Queue pairs of an XRC domain, which receive for several programs

// Creates a queue pair that no context has open yet. Uses only the type and limits of the config.
struct CreateTarget {  // -> CreatedTarget. ResourceExhausted: no QPN or memory left
  const QueuePairConfig& config;
};
struct CreatedTarget {
  QueuePair* qp;
  roce::Qpn qpn;
};
// All its openings are closed.
struct DestroyTarget {
  QueuePair& qp;
};
// Sends the events of the queue pair to the client's program, too.
struct OpenTarget {  // -> TargetOpening
  QueuePair& qp;
  ShardClient& client;
  uint64_t user_handle;
};
struct CloseTarget {  // -> uint32_t: events sent for this opening
  QueuePair& qp;
  TargetOpening& opening;
};

}  // namespace roci::dataplane
