// Stands between a lane and its port while the device has captures, faults or impairments, or time
// is virtual; does not exist otherwise. Sent frames are captured last, received frames first: a
// capture shows the frames on the wire. Faults apply before impairments.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/link/capture_tap.h"
#include "dataplane/link/delay_queue.h"
#include "dataplane/link/fault.h"
#include "dataplane/link/fault_table.h"
#include "dataplane/link/frame_filter.h"
#include "dataplane/link/impairment.h"
#include "dataplane/link/overtaken_frames.h"
#include "dataplane/link/wire_time.h"
#include "dataplane/rings/trace.h"

struct rte_mbuf;
struct rte_mempool;

namespace roci::dataplane {

// Lookups of queue pairs for a tap. A queue pair of another lcore is not found.
struct LaneView {
  const void* lane = nullptr;
  // Null: there is no such queue pair.
  const QueuePairOrigin* (*origin_of)(const void* lane, roce::Qpn qpn) = nullptr;
  // The queue pair to which it is connected; 0: none.
  roce::Qpn (*peer_of)(const void* lane, roce::Qpn qpn) = nullptr;
  // To which lcore a frame to this queue pair of another device goes, as in DeviceLane::Stage.
  uint8_t (*lcore_of)(const void* lane, roce::Qpn qpn) = nullptr;
  // Whether the queue pair of the device, if there is one, belongs to another lcore.
  bool (*is_elsewhere)(const void* lane, roce::Qpn qpn) = nullptr;
  // The lane hands received frames off to the lcore of their queue pair.
  bool hands_off = false;
};

// The tap of one lane. On the shard.
class LinkTap {
 public:
  static constexpr size_t kMaxCaptures = 4;                // of a device
  static constexpr size_t kMaxRules = 16;                  // of a device
  static constexpr size_t kMaxFaults = FaultTable::kMost;  // of a device

  // `now` points to the lcore's time of the burst in ns; `pool` has the buffers for duplicates and
  // injected frames.
  LinkTap(uint32_t lcore, const uint64_t* now, rte_mempool* pool, const LaneView& view);

  void AddCapture(const OnShard&, CaptureTap& capture) { captures_.push_back(&capture); }
  void RemoveCapture(const OnShard&, CaptureTap& capture);
  // No capture is near to losing frames.
  bool CapturesHaveRoom() const;
  void AddRule(const OnShard&, LinkDirection direction, Impairment& rule) {
    RulesOf(direction).push_back(&rule);
  }
  void RemoveRule(const OnShard&, Impairment& rule);
  // Records the packets that queue pairs send, before faults, and receive, after faults. Null:
  // none.
  void UseTrace(const OnShard&, LaneTrace* trace) { trace_ = trace; }
  // `table` is used until the next call; null: no faults.
  void UseFaults(const OnShard&, LinkDirection direction, const FaultTable* table) {
    faults_[static_cast<size_t>(direction)] = table;
  }
  // Virtual time, before the first frame: from now on frames take time, see WireTime. `frames`:
  // that there are.
  void UseWireTime(const OnShard&, uint32_t rate_mbps, uint32_t frames) {
    wire_time_.emplace(rate_mbps, frames);
  }
  // No captures, no faults, no rules, no held frames, and no time for frames.
  bool IsIdle() const;

  // Takes `count` frames from the port. Returns the number of frames in `frames` (at most
  // `capacity`) that go on to the lane now.
  uint32_t Receive(rte_mbuf** frames, uint32_t count, uint32_t capacity);
  // Takes `staged` frames for the lcores `to`. Returns the number of frames to send now. Frames
  // that remained because the port was full (see Sent) are not processed again.
  uint32_t Send(rte_mbuf** frames, uint8_t* to, uint32_t staged, uint32_t capacity);
  void Sent(uint32_t left) { passed_ = left; }
  // Whether held frames are due for Send.
  bool SendIsDue() const { return NextDue(LinkDirection::kOut) <= *now_ns_; }
  uint64_t next_due() const {
    return std::min(NextDue(LinkDirection::kIn), NextDue(LinkDirection::kOut));
  }

 private:
  std::vector<Impairment*>& RulesOf(LinkDirection direction) {
    return rules_[static_cast<size_t>(direction)];
  }
  // Null: none.
  const FaultTable* FaultsOf(LinkDirection direction) const {
    return faults_[static_cast<size_t>(direction)];
  }
  OvertakenFrames& OvertakenOf(LinkDirection direction) {
    return overtaken_[static_cast<size_t>(direction)];
  }
  DelayQueue& QueueOf(LinkDirection direction) { return queues_[static_cast<size_t>(direction)]; }
  const DelayQueue& QueueOf(LinkDirection direction) const {
    return queues_[static_cast<size_t>(direction)];
  }
  uint64_t NextDue(LinkDirection direction) const {
    const uint64_t due_ns = std::min(QueueOf(direction).next_due(),
                                     overtaken_[static_cast<size_t>(direction)].next_due());
    if (!wire_time_) [[likely]]
      return due_ns;
    return std::min(due_ns, direction == LinkDirection::kOut ? wire_time_->next_departure()
                                                             : wire_time_->next_arrival());
  }
  uint32_t Depart(rte_mbuf** frames, uint8_t* to, uint32_t begin, uint32_t end, uint32_t capacity);
  uint32_t Arrive(rte_mbuf** frames, uint32_t count, uint32_t capacity);
  uint32_t Impair(LinkDirection direction, rte_mbuf** frames, uint8_t* to, uint32_t begin,
                  uint32_t end);
  bool PassesNow(LinkDirection direction, rte_mbuf* frame, uint8_t to);
  FaultFate ApplyFaults(LinkDirection direction, rte_mbuf* frame, uint8_t to);
  roce::Qpn AnsweredBy(const FaultFrame& hit) const;
  void Inject(FaultLane& fault, const FaultFrame& hit, uint8_t to);
  FrameFate ApplyRules(LinkDirection direction, rte_mbuf* frame);
  void Duplicate(LinkDirection direction, rte_mbuf* frame, uint8_t to, uint32_t copies,
                 uint64_t due_ns, FaultLane* by);
  bool ReleaseOvertaken(LinkDirection direction, uint64_t due_ns);
  bool PassInOrder(LinkDirection direction, rte_mbuf* frame, uint8_t to);
  // `by`: the fault that holds the frame; null: a rule, or unknown.
  void Hold(LinkDirection direction, rte_mbuf* frame, uint8_t to, uint64_t due_ns,
            FaultLane* by = nullptr);
  void NoteNoRoom(LinkDirection direction, FaultLane* by);
  void Capture(LinkDirection direction, rte_mbuf** frames, uint32_t count);
  void Trace(LinkDirection direction, rte_mbuf* const* frames, uint32_t count);

  const uint32_t lcore_;
  const uint64_t* now_ns_;
  rte_mempool* pool_;
  uint32_t passed_ = 0;
  std::vector<CaptureTap*> captures_;
  LaneTrace* trace_ = nullptr;
  const LaneView view_;
  std::array<const FaultTable*, 2> faults_{};
  std::array<std::vector<Impairment*>, 2> rules_;
  std::array<DelayQueue, 2> queues_;
  std::array<OvertakenFrames, 2> overtaken_;
  std::optional<WireTime> wire_time_;
  // Overtaken or injected frames are in the queue, and must not be overtaken by more.
  std::array<bool, 2> follows_{};
};

}  // namespace roci::dataplane
