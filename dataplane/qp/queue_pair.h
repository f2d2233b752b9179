// A queue pair of the dataplane: rings shared with the program, the transport core, the frame
// template of its path, its place in the lists of the lcore.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/prefetch.h"
#include "dataplane/base/record_arena.h"
#include "dataplane/base/resource_storage.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/base/timer_wheel.h"
#include "dataplane/qp/queue_pair_host.h"
#include "dataplane/qp/queue_pair_path.h"
#include "dataplane/qp/rss_group.h"
#include "dataplane/qp/tag_receiver.h"
#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/queue_pair_info.h"
#include "roce/qp.h"

namespace roci::dataplane {

class LaneState;

class alignas(kCacheLineBytes) QueuePair {
 public:
  using Core = roce::Qp<QueuePairHost>;

  // By ShardClient, on the control thread. Not attached to an lcore yet.
  // `context` is null for XRC receive.
  static absl::StatusOr<std::unique_ptr<QueuePair>> Create(const ShardServices& shard,
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
  roce::Qpn qpn() const { return host.qpn(); }
  uint32_t handle() const { return host.handle(); }
  roce::QpType type() const { return core.type(); }
  uint32_t pd() const { return host.pd(); }
  uint64_t user_handle() const { return events_.user_handle(); }
  const QueueLayout& layout() const { return layout_; }
  CompletionQueue* send_cq() const { return host.send_cq(); }
  CompletionQueue* recv_cq() const { return host.recv_cq(); }
  SharedReceiveQueue* srq() const { return host.shared_queue(); }  // not XRC receive
  uint32_t async_events() const { return events_.sent(); }
  Fd TakeFd() { return memory_.TakeFd(); }
  LaneState& lane() const { return host.lane(); }

  // ---- On the shard
  roce::ModifyResult Modify(const OnShard& shard, roce::TimeNs now,
                            const roce::QpAttributes& attributes, uint32_t mask,
                            const roce::Path* path);
  void SetPath(const OnShard&, const roce::Path& to) {
    path.Use(to, /*answers_marks=*/lane().congestion && roce::IsConnected(type()));
  }
  // Before destruction: returns the receive WQE of the current message to its shared receive queue.
  void GiveBackReceive(const OnShard& shard);
  // On reset or destruction. Running copies continue, but their completions, events and frames, and
  // the parked frames of the queue pair, are dropped.
  void LeaveCopies(const OnShard&);
  // As ibv_query_qp.
  roce::QpAttributes Query(const OnShard&) const {
    roce::QpAttributes attributes;
    core.Query(attributes);
    return attributes;
  }
  QueuePairInfo Inspect(const OnShard& shard) const;
  // A failure that the core does not know of: a ring holds impossible indices, or a payload could
  // not be written. Fail moves the QP to ERR and raises the event.
  bool HasFailed() const { return HasBrokenQueue() || host.copy_state().fault().failed(); }
  void Fail(const OnShard& shard, roce::TimeNs now);
  // Raises IBV_EVENT_QP_FATAL and moves the QP to ERR; nothing in ERR or RESET.
  void FailForQueue(const OnShard& shard, roce::TimeNs now);
  bool HasBrokenQueue() const { return host.HasBrokenQueue() && !broken_handled_; }
  // As QueuePairPath::Check.
  roce::DropReason CheckPath(const OnShard&, const roce::Packet& packet) const {
    return path.Check(packet, type());
  }
  // UD, which has no path: sends notifications to the source of `packet`.
  void SetNotificationPath(const OnShard&, const roce::Packet& packet) {
    path.UseSourceOf(packet, lane().mac, qpn());
  }
  const roce::FrameTemplate& frame(const OnShard&) const { return path.frame(); }

  // Prefetches the lines that a visit or a packet touches.
  void Prefetch() const { PrefetchLines(this, &path + 1); }
  void PrefetchWork() const {
    host.send_queue().PrefetchProducer();
    host.send_queue().PrefetchNext();
  }
  // XRC receive: the programs that get its events.
  QueuePairEvents& events(const OnShard&) { return events_; }
  // Records that the shard takes into its pool, and returns when it removes the queue pair.
  RecordStorage& record_storage(const OnShard&) { return storage_; }

  // Used by the lcore for every packet.
  uint64_t last_work_ns = 0;         // when it last had work
  uint64_t last_ring_ns = 0;         // when the doorbell was last rung
  uint32_t active_position = kNone;  // in the lcore's active list
  bool polled = false;               // the send queue is not armed: the lcore polls it
  bool touched = false;              // in the list of this receive burst
  bool fails_after_copies = false;   // its completion queue has overflowed
  bool watches_receives = false;     // the receive queue is armed (Core::AwaitsReceives)
  uint8_t record_class = 0;          // size class of its borrowed records
  bool blocks_own_multicast = false;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  uint64_t drops = 0;
  QueuePairHost host;
  Core core;
  struct Timer : TimerNode {
    QueuePair* owner;
  } timer;
  QueuePairPath path;
  std::shared_ptr<const RssGroup> rss;  // null: frames come to its own receive queue
  roce::Dcqcn congestion;               // used only with congestion control
  CopyWait copy_wait;
  uint32_t multicast_groups = 0;  // of which it is a member

  static constexpr uint32_t kNone = ~0u;

 private:
  QueuePair(const ShardServices& shard, VerbsContext* context, LaneState& qp_lane,
            const QueuePairConfig& config, const roce::QpConfig& core_config, uint32_t qp_handle,
            const QueueLayout& layout, std::unique_ptr<TagReceiver> tags, SharedMemory memory,
            RecordStorage storage, ResourceStorage resources);

  void MoveToError(roce::TimeNs now);

  struct HeldReceive {
    SharedReceiveQueue* srq = nullptr;
    roce::RecvWqe wqe{};
  };
  // The receive WQE of the current message, which a RESET would lose.
  HeldReceive FindHeldReceive();
  void GiveBack(const OnShard& shard, const HeldReceive& held);

  bool broken_handled_ = false;
  QueuePairEvents events_;
  QueueLayout layout_;
  SharedMemory memory_;
  RecordStorage storage_;  // empty while the lcore's pool has it
  ResourceStorage resources_;
  std::unique_ptr<TagReceiver> tags_;  // of a tag-matching receive queue only
};

}  // namespace roci::dataplane
