// State that a device's queue pairs on one lcore share. DeviceLane (shard/) has the rest of the
// lane.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/qp/receive_queue_table.h"
#include "dataplane/types/vendor_errors.h"
#include "roce/dcqcn.h"
#include "roce/types.h"

namespace roci::dataplane {

struct CompletionFault;
class LaneTrace;

// Touched by that lcore only. Any thread may read the counters, and whether there is a
// `congestion`, which never changes.
class LaneState {
 public:
  // Reserves a place in the transmit stage for a frame whose payload is still being copied. The
  // stage must not be full.
  void Reserve(const OnShard&) { ++reserved_; }
  void Unreserve(const OnShard&) {
    assert(reserved_ != 0);
    --reserved_;
  }

  const roce::Mac mac;
  LaneCounters counters;
  std::optional<roce::CongestionPort> congestion;  // none: congestion control is off
  ReceiveQueueTable receive_queues;
  std::span<CompletionFault* const> completion_faults;
  const VendorErrors* vendor_errors = nullptr;  // null: kPlainVendorErrors
  // Null: the device is not traced on this lcore.
  LaneTrace* trace = nullptr;
  // One test of a completion for both: there are faults of completions, or a trace.
  bool watches_completions = false;
  void UseCompletionFaults(const OnShard&, std::span<CompletionFault* const> faults) {
    completion_faults = faults;
    watches_completions = !completion_faults.empty() || trace != nullptr;
  }
  void UseTrace(const OnShard&, LaneTrace* used) {
    trace = used;
    watches_completions = !completion_faults.empty() || trace != nullptr;
  }

 protected:
  LaneState(const roce::Mac& address, const std::optional<roce::CongestionParameters>& parameters)
      : mac(address) {
    if (parameters) congestion = roce::CongestionPort{.parameters = *parameters};
  }
  ~LaneState() = default;
  uint32_t reserved() const { return reserved_; }

 private:
  uint32_t reserved_ = 0;
};

}  // namespace roci::dataplane
