// A queue pair of the dataplane: rings shared with the program, the transport core, the frame
// template of its path, its place in the lists of the lcore.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/prefetch.h"
#include "dataplane/base/record_arena.h"
#include "dataplane/base/resource_storage.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/base/timer_wheel.h"
#include "dataplane/qp/early_frames.h"
#include "dataplane/qp/queue_pair_events.h"
#include "dataplane/qp/queue_pair_host.h"
#include "dataplane/qp/queue_pair_path.h"
#include "dataplane/qp/rss_group.h"
#include "dataplane/qp/tag_receiver.h"
#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/queue_pair_info.h"
#include "dataplane/types/queue_pair_match.h"
#include "roce/qp.h"

namespace roci::dataplane {

class LaneState;

class alignas(kCacheLineBytes) QueuePair {
 public:
  using Core = roce::Qp<QueuePairHost>;

  // By ShardClient, on the control thread. Not attached to an lcore yet.
  // `context` is null for XRC receive.
  static absl::StatusOr<std::unique_ptr<QueuePair>> Create(const ShardView& shard,
                                                           VerbsContext* context, LaneState& lane,
                                                           const QueuePairConfig& config,
                                                           roce::Qpn qpn, uint32_t handle);
  ~QueuePair();
  // From a slab of huge pages: with thousands of queue pairs, TLB misses dominate a visit.
  static void* operator new(size_t bytes);
  static void operator delete(void* qp);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // ---- Any thread
  roce::Qpn qpn() const { return host_.qpn(); }
  uint32_t handle() const { return host_.handle(); }
  roce::QpType type() const { return core_.type(); }
  uint64_t user_handle() const { return events_.user_handle(); }
  CompletionQueue* send_cq() const { return host_.send_cq(); }
  uint32_t async_events() const { return events_.sent(); }
  Fd TakeFd() { return memory_.TakeFd(); }
  LaneState& lane() const { return host_.lane(); }
  bool blocks_own_multicast() const { return blocks_own_multicast_; }
  const QueuePairOrigin& origin() const { return origin_; }
  // Any thread, except for XRC receive: there the shard changes these for each request.
  uint32_t pd() const { return host_.pd(); }
  CompletionQueue* recv_cq() const { return host_.recv_cq(); }
  SharedReceiveQueue* srq() const { return host_.shared_queue(); }

  // ---- On the shard: the transport core, with this queue pair as its host
  const Core& core(const OnShard&) const { return core_; }
  QueuePairHost& host(const OnShard&) { return host_; }
  const QueuePairHost& host(const OnShard&) const { return host_; }
  roce::PacketEffects HandlePacket(const OnShard&, roce::TimeNs now, const roce::Packet& packet) {
    return core_.HandlePacket(host_, now, packet);
  }
  roce::DropReason HandleFrame(const OnShard&, std::span<const std::byte> frame,
                               const roce::FrameInfo& info) {
    return core_.HandleFrame(host_, frame, info);
  }
  roce::Effects HandleWork(const OnShard&) { return core_.HandleWork(host_); }
  roce::Effects HandleTimeout(const OnShard&, roce::TimeNs now) {
    return core_.HandleTimeout(host_, now);
  }
  roce::Polled PollTransmit(const OnShard&, roce::TimeNs now, roce::TxPacket& out,
                            memory::SegmentList& payload) {
    return core_.PollTransmit(host_, now, out, payload);
  }
  roce::Effects HandleTransmitFault(
      const OnShard&, roce::TimeNs now, const roce::TxPacket& packet,
      roce::CompletionStatus status = roce::CompletionStatus::kLocalProtectionError) {
    return core_.HandleTransmitFault(host_, now, packet, status);
  }
  // Its durable flush has ended in `state`.
  roce::Effects EndDurable(const OnShard&, roce::DurableState state) {
    host_.NoteDurable(state);
    return core_.NoteDurable();
  }
  // There is no room now for the durable flush that it has asked for.
  void RefuseDurable(const OnShard&) { host_.NoteDurable(roce::DurableState::kBusy); }
  // There may be room for the durable flush that waits for it.
  roce::Effects RetryDurable(const OnShard&) { return core_.NoteDurable(); }
  // Records that the core lends from the shard's pool, of this size class.
  uint8_t record_class(const OnShard&) const { return record_class_; }
  void LendRecords(const OnShard&, roce::SendRecord* records) { core_.LendRecords(records); }
  roce::SendRecord* TakeRecordsBack(const OnShard&) { return core_.TakeRecordsBack(); }
  // Records that the shard takes into its pool, and returns when it removes the queue pair.
  RecordStorage& record_storage(const OnShard&) { return storage_; }
  TimerNode& timer(const OnShard&) { return timer_; }
  static QueuePair& OfTimer(TimerNode& node) { return *static_cast<Timer&>(node).owner; }

  // ---- On the shard: verbs
  roce::ModifyResult Modify(const OnShard& shard, const roce::QpAttributes& attributes,
                            uint32_t mask, const roce::Path* path);
  // See roce::Qp.
  void UseSelectiveRepeat(const OnShard&) { core_.UseSelectiveRepeat(); }
  void SetPath(const OnShard&, const roce::Path& path) {
    path_.Use(path, /*answers_marks=*/lane().congestion && roce::IsConnected(type()));
  }
  // As ibv_query_qp.
  roce::QpAttributes Query(const OnShard&) const {
    roce::QpAttributes attributes;
    core_.Query(attributes);
    return attributes;
  }
  QueuePairInfo Inspect(const OnShard& shard) const;
  // On the shard. The queue pair to which it is connected; 0: none.
  roce::Qpn peer() const {
    roce::QpAttributes attributes;
    core_.Query(attributes);
    return roce::IsConnected(type()) ? attributes.dest_qpn : roce::Qpn(0);
  }
  // Before destruction: returns the receive WQE of the current message to its shared receive queue.
  void GiveBackReceive(const OnShard& shard);
  // XRC receive: `queue` is being destroyed.
  void ForgetReceiveQueue(const OnShard&, const SharedReceiveQueue& queue);
  // XRC receive: the programs that get its events.
  QueuePairEvents& events(const OnShard&) { return events_; }
  // Completions that the events follow must be published before. Returns how many were sent.
  uint32_t SendEvents(const OnShard& shard, const HostEffects& effects) {
    uint32_t sent = 0;
    effects.ForEachEvent([&](roce::QpEvent event) { sent += events_.Send(shard, event); });
    return sent;
  }

  // ---- On the shard: packets
  // As QueuePairPath::Check.
  roce::DropReason CheckPath(const OnShard&, const roce::Packet& packet) const {
    return path_.Check(packet, type());
  }
  // UD: uses the source of `packet` as destination of CNPs.
  void SetNotificationPath(const OnShard&, const roce::Packet& packet) {
    path_.UseSourceOf(packet, lane().mac, qpn());
  }
  const roce::FrameTemplate& frame(const OnShard&) const { return path_.frame(); }
  // Raw packets: the queue pair that receives a frame with this key.
  QueuePair& ReceiverOf(const OnShard&, const roce::FlowKey& key) {
    return rss_ != nullptr ? rss_->Choose(key) : *this;
  }
  void CountSent(const OnShard&, uint32_t packets) { tx_packets_ += packets; }
  void CountReceived(const OnShard&) { ++rx_packets_; }
  void CountDrop(const OnShard&) { ++drops_; }
  // It has joined or left a multicast group.
  void CountGroup(const OnShard&, int change) {
    multicast_groups_ += static_cast<uint32_t>(change);
  }
  bool is_in_groups(const OnShard&) const { return multicast_groups_ != 0; }

  // ---- On the shard: new WQEs. The loop polls the producer index of a busy send queue. A quiet
  // one is armed: its next post rings the doorbell. A caller that arms a queue then executes a full
  // fence and checks the queue once more.
  bool is_polled(const OnShard&) const { return is_polled_; }
  // The doorbell has rung: a send queue that is rung often becomes polled.
  void NoteRing(const OnShard&, uint64_t now_ns) {
    if (!is_polled_ && now_ns - last_ring_ns_ < kHotRingNs) {
      host_.send_queue().SetArmed(false);
      is_polled_ = true;
    }
    last_ring_ns_ = now_ns;
  }
  void NoteWork(const OnShard&, uint64_t now_ns) { last_work_ns_ = now_ns; }
  // A polled send queue should be armed again.
  bool IsQuiet(const OnShard&, uint64_t now_ns) const {
    return now_ns - last_work_ns_ >= kRearmAfterNs;
  }
  void ArmSends(const OnShard&) {
    is_polled_ = false;
    host_.send_queue().SetArmed(true);
  }
  // Arms the receive queue while posts need action: in ERR (flush), and while the peer has no
  // credits (credit update). Returns true if this call has armed it.
  bool WatchReceives(const OnShard&, bool watches) {
    if (watches == watches_receives_) [[likely]]
      return false;
    watches_receives_ = watches;
    host_.recv_queue().SetArmed(watches);
    return watches;
  }
  // There are WQEs of which HandleWork must be told.
  bool HasNewWork(const OnShard&) {
    return host_.send_queue().HasPosted() || (watches_receives_ && host_.recv_queue().HasPosted());
  }
  // The program has posted requests that can be sent now. Responses to the peer do not count.
  bool HasPosted(const OnShard&) { return host_.send_queue().HasPosted() || core_.HasRequest(); }

  // ---- On the shard: early packets
  // Only of a queue pair that keeps early packets.
  EarlyFrames::List& early(const OnShard&) { return reordering_->frames; }
  bool has_early_frames(const OnShard&) const { return has_early_frames_; }
  // The packet is counted as received when it is due.
  void NoteEarly(const OnShard&) {
    has_early_frames_ = true;
    --rx_packets_;
  }
  void NoteNoEarly(const OnShard&) { has_early_frames_ = false; }

  // ---- On the shard: the lists of the loop
  // True: it was not in the list of this receive burst.
  bool Touch(const OnShard&) { return !std::exchange(is_touched_, true); }
  void Untouch(const OnShard&) { is_touched_ = false; }
  bool is_waiting_for_copies(const OnShard&) const { return copy_wait_.in != nullptr; }
  // On reset or destruction. Running copies continue, but their completions, events and frames, and
  // the parked frames of the queue pair, are dropped.
  void LeaveCopies(const OnShard&);
  // Prefetches the lines that a visit or a packet touches.
  void Prefetch(const OnShard&) const { PrefetchLines(this, &path_ + 1); }
  void PrefetchWork(const OnShard&) const {
    host_.send_queue().PrefetchProducer();
    host_.send_queue().PrefetchNext();
  }

  // ---- On the shard: failures that the core does not know of
  // A ring holds impossible indices, or a payload could not be written. Fail moves the QP to ERR
  // and raises the event.
  bool HasFailed(const OnShard&) const {
    return HasBrokenQueue() || host_.copy_state().fault().failed();
  }
  void Fail(const OnShard& shard);
  // Its completion queue has overflowed: raises IBV_EVENT_QP_FATAL and moves the QP to ERR; nothing
  // in ERR or RESET.
  void FailForQueue(const OnShard& shard);
  // The same when the copies for which the queue pair waits are settled.
  void FailForQueueLater(const OnShard&) { fails_after_copies_ = true; }
  void ApplyLaterFailure(const OnShard& shard) {
    if (!fails_after_copies_) [[likely]]
      return;
    fails_after_copies_ = false;
    FailForQueue(shard);
  }

 private:
  friend class ActiveList;     // active_position_
  friend class SendScheduler;  // wants_turn_, keeps_turn_, turn_excess_bytes_
  friend class AppCopies;      // copy_wait_

  static constexpr uint32_t kNotActive = ~0u;
  // A queue pair whose doorbell rings twice within this time becomes polled.
  static constexpr uint64_t kHotRingNs = 20'000;
  // A polled queue pair without work for this time is armed again.
  static constexpr uint64_t kRearmAfterNs = 30'000;

  struct Reordering {
    roce::ReorderState state;
    EarlyFrames::List frames;
  };

  QueuePair(const ShardView& shard, VerbsContext* context, LaneState& qp_lane,
            const QueuePairConfig& config, const roce::QpConfig& core_config, uint32_t qp_handle,
            const QueueLayout& layout, std::unique_ptr<TagReceiver> tags,
            std::unique_ptr<Reordering> reordering, SharedMemory memory, RecordStorage storage,
            ResourceStorage resources);

  bool HasBrokenQueue() const { return host_.HasBrokenQueue() && !broken_handled_; }
  void MoveToError();

  struct HeldReceive {
    SharedReceiveQueue* srq = nullptr;
    roce::RecvWqe wqe{};
  };
  // The receive WQE of the current message, which a RESET would lose.
  HeldReceive FindHeldReceive();
  void GiveBack(const OnShard& shard, const HeldReceive& held);

  struct Timer : TimerNode {
    QueuePair* owner;
  };

  // Touched by every visit and packet; see Prefetch.
  uint64_t last_work_ns_ = 0;              // when it last had work
  uint64_t last_ring_ns_ = 0;              // when the doorbell was last rung
  uint32_t active_position_ = kNotActive;  // in the lcore's active list
  bool is_polled_ = false;                 // the send queue is not armed
  bool is_touched_ = false;                // in the list of this receive burst
  bool fails_after_copies_ = false;        // see FailForQueueLater
  bool watches_receives_ = false;          // the receive queue is armed
  const uint8_t record_class_;
  const bool blocks_own_multicast_;
  bool wants_turn_ = false;         // in the active list because it has something to send
  bool keeps_turn_ = false;         // first in the active list when it is pushed
  uint16_t turn_excess_bytes_ = 0;  // sent beyond its last turn
  bool has_early_frames_ = false;   // in reordering_->frames
  uint64_t tx_packets_ = 0;
  uint64_t rx_packets_ = 0;
  uint64_t drops_ = 0;
  QueuePairHost host_;
  Core core_;
  Timer timer_;
  QueuePairPath path_;

  // Rarely touched.
  const std::unique_ptr<const RssGroup> rss_;  // null: frames come to its own receive queue
  roce::Dcqcn congestion_;                     // used only with congestion control
  CopyWait copy_wait_;
  const std::unique_ptr<Reordering> reordering_;  // null: it keeps no early packets
  const QueuePairOrigin origin_;
  uint32_t multicast_groups_ = 0;  // of which it is a member
  bool broken_handled_ = false;
  QueuePairEvents events_;
  SharedMemory memory_;
  RecordStorage storage_;  // empty while the lcore's pool has it
  ResourceStorage resources_;
  std::unique_ptr<TagReceiver> tags_;  // of a tag-matching receive queue only
};

}  // namespace roci::dataplane
