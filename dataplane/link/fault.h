// Exact faults: the n-th packet of a kind is lost, delayed, changed, ... Counts are shared by all
// lcores of a device, so "the n-th" means one packet. Uses no port and reads no clock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/link/fault_frame.h"
#include "dataplane/link/injection.h"
#include "dataplane/types/fault_settings.h"
#include "roce/types.h"

namespace roci::dataplane {

class FaultLane;

// Decision about a frame, besides changes in place.
struct FaultFate {
  bool is_dropped = false;
  uint32_t copies = 0;
  uint64_t delay_ns = 0;
  uint32_t overtaken_by = 0;
  uint32_t cut_bytes = 0;
  FaultLane* by = nullptr;       // the last fault that holds or copies the frame
  FaultLane* injects = nullptr;  // set by Apply: the fault injects a frame for this packet
  bool is_hit = false;
};

// A fault of a device. Outlives its lanes.
struct Fault {
  // `began_ns`: when it was added, in the lcores' time.
  Fault(const FaultSettings& fault_settings, uint64_t now_ns)
      : settings(fault_settings), began_ns(now_ns), choice(settings.match.queue_pair) {}

  FaultSnapshot Snapshot() const;

  const FaultSettings settings;
  const uint64_t began_ns;
  QueuePairChoice choice;
  std::atomic<bool> is_over{false};  // hits nothing any more
#define ROCI_FAULT_COUNTER(member, name) std::atomic<uint64_t> member{0};
  ROCI_FAULT_COUNTERS(ROCI_FAULT_COUNTER)
#undef ROCI_FAULT_COUNTER
};

// A fault on one lcore.
class FaultLane {
 public:
  // Queue pairs that a fault with a PSN distinguishes on each lcore.
  static constexpr size_t kMostFlows = 64;

  explicit FaultLane(Fault& fault);

  // Changes the frame in place and adds to `fate` if the fault hits. Must not be called for a frame
  // that another fault has dropped.
  void Apply(const FaultFrame& frame, FaultFate& fate);
  // A frame could not be held, not be copied, or not be injected.
  void NoteNoRoom() { Add(fault_.no_room); }
  // A frame to inject would not reach its queue pair.
  void NoteNotThere() { Add(fault_.not_there); }
  // After Apply said that it injects: as MakeInjected, with the changes of the fault.
  std::optional<InjectedFrame> Inject(const FaultFrame& hit, roce::Qpn answered,
                                      std::span<std::byte> out);
  const FaultMatch& match() const { return fault_.settings.match; }
  bool changes_packets() const { return changes_packets_; }

 private:
  struct Flow {
    roce::Qpn qpn;
    bool is_response = false;
    roce::Psn first;
    uint64_t passes = 0;  // of the PSN of the match
  };

  static void Add(std::atomic<uint64_t>& counter) {
    counter.fetch_add(1, std::memory_order_relaxed);
  }
  bool Matches(const FaultFrame& frame);
  bool Hits(const FaultFrame& frame);
  bool HasPsn(std::span<const std::byte> transport);
  void KeepFirst(const FaultFrame& frame);
  void Change(std::span<std::byte> frame, std::span<std::byte> transport);
  Flow* FlowOf(roce::Qpn qpn, bool is_response, roce::Psn psn);

  Fault& fault_;
  const bool injects_;
  const bool changes_packets_;
  std::vector<std::byte> first_;  // with room for a frame if it is injected again
  size_t first_bytes_ = 0;        // 0: no packet has matched
  size_t flow_count_ = 0;
  std::array<Flow, kMostFlows> flows_{};
};

}  // namespace roci::dataplane
