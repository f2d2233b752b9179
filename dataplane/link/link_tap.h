// Stands between a lane and its port while the device has captures, faults or impairments; does not
// exist otherwise. Sent frames are captured last, received frames first: a capture shows the frames
// on the wire. Faults apply before impairments.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/link/capture_tap.h"
#include "dataplane/link/fault.h"
#include "dataplane/link/fault_table.h"
#include "dataplane/link/frame_filter.h"
#include "dataplane/link/impairment.h"
#include "dataplane/link/overtaken_frames.h"
#include "dataplane/rings/trace.h"

struct rte_mbuf;
struct rte_mempool;

namespace roci::dataplane {

// Frames that are held until they are due: the earliest first, equal times in order of arrival.
class DelayQueue {
 public:
  static constexpr uint32_t kCapacity = 2048;
  static constexpr uint64_t kNever = UINT64_MAX;

  DelayQueue() { heap_.reserve(kCapacity); }
  ~DelayQueue();
  DelayQueue(const DelayQueue&) = delete;
  DelayQueue& operator=(const DelayQueue&) = delete;

  // Takes ownership of the frame. False: no room; the caller keeps the frame.
  bool Push(rte_mbuf* frame, uint8_t to, uint64_t due_ns);
  // The next frame that is due, or null.
  rte_mbuf* Pop(uint64_t now_ns, uint8_t* to);
  uint64_t next_due() const { return heap_.empty() ? kNever : heap_.front().due_ns; }
  bool empty() const { return heap_.empty(); }
  bool HasRoom() const { return heap_.size() != kCapacity; }

 private:
  struct Held {
    uint64_t due_ns;
    uint64_t serial;
    rte_mbuf* frame;
    uint8_t to;
  };
  static bool Later(const Held& a, const Held& b) {
    return a.due_ns != b.due_ns ? a.due_ns > b.due_ns : a.serial > b.serial;
  }

  uint64_t serial_ = 0;
  std::vector<Held> heap_;
};

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
  // No captures, no faults, no rules and no held frames.
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
    return std::min(QueueOf(direction).next_due(),
                    overtaken_[static_cast<size_t>(direction)].next_due());
  }
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
  // Overtaken or injected frames are in the queue, and must not be overtaken by more.
  std::array<bool, 2> follows_{};
};

}  // namespace roci::dataplane
