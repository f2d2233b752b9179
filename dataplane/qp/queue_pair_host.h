// The host of the transport core (roce/host.h) in the dataplane: WQEs from the program's rings,
// translation with its keys, completions and events.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/base/counters.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/copy_state.h"
#include "dataplane/qp/host_effects.h"
#include "dataplane/qp/lane_state.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/rings/work_queue.h"
#include "memory/copy.h"
#include "memory/key_table.h"
#include "memory/segment.h"
#include "roce/host.h"
#include "roce/work.h"

namespace roci::dataplane {

class QueuePair;
struct CompletionFaultSettings;
class TagReceiver;
class VerbsContext;
class XrcTargets;
struct TaggedBuffer;

// One per queue pair; on its lcore.
class QueuePairHost {
 public:
  // The rings, and the completion queues of their work requests.
  struct Queues {
    SendQueue send;
    CompletionOwner send_owner{};  // what completions of the send queue carry
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* recv_cq = nullptr;
    SharedReceiveQueue* shared = nullptr;  // instead of `recv`. XRC: of the request under way
    RecvQueue recv;
    CompletionOwner recv_owner{};        // what completions of receives carry
    bool shared_is_broken = false;       // the shared receive queue was needed and is broken
    TagReceiver* tags = nullptr;         // of a tag-matching receive queue only
    const XrcTargets* domain = nullptr;  // XRC receive only: has the queues that requests may name
  };
  // What work requests and packets may access. XRC: of the request under way.
  struct MemoryAccess {
    memory::KeyTable* keys = nullptr;
    AppCopies* copies = nullptr;  // of the programs that share `keys`
    uint32_t pd = 0;
    uint32_t recv_pd = 0;  // of the L_Keys in receives
  };
  // What the queue pair uses of its surroundings.
  struct Services {
    const ShardView* shard = nullptr;
    LaneState* lane = nullptr;
    VerbsContext* context = nullptr;   // null for XRC receive
    const uint64_t* now_ns = nullptr;  // time of the burst
  };

  QueuePairHost(QueuePair& queue_pair, const Services& services, const MemoryAccess& access,
                const Queues& queues)
      : services_(services), access_(access), queues_(queues), queue_pair_(&queue_pair) {}

  // ---- Identity
  roce::Qpn qpn() const { return roce::Qpn(queues_.send_owner.qpn); }
  uint32_t handle() const { return queues_.send_owner.qp_handle; }
  uint32_t pd() const { return access_.pd; }
  // It receives by the queues of an XRC domain, of several programs.
  bool is_of_domain() const { return queues_.domain != nullptr; }

  // ---- Surroundings
  QueuePair& queue_pair() const { return *queue_pair_; }
  LaneState& lane() const { return *services_.lane; }
  VerbsContext& context() const { return *services_.context; }  // not XRC receive
  AppCopies& copies() const { return *access_.copies; }         // XRC: of the request under way
  AppCopies* current_copies() const { return access_.copies; }  // XRC: null if there is none
  uint64_t now_ns() const { return *services_.now_ns; }
  void CountMemoryFault() { effects_.AddMemoryFault(); }
  // The durable flush of StartDurable has ended; kBusy: there was no room to start it.
  void NoteDurable(roce::DurableState state) { durable_ = state; }

  // ---- What calls of the core leave to do
  bool has_effects() const { return effects_.any(); }
  HostEffects TakeEffects() { return std::exchange(effects_, HostEffects()); }

  // ---- Queues
  SendQueue& send_queue() { return queues_.send; }
  const SendQueue& send_queue() const { return queues_.send; }
  RecvQueue& recv_queue() { return queues_.recv; }
  const RecvQueue& recv_queue() const { return queues_.recv; }
  CompletionQueue* send_cq() const { return queues_.send_cq; }
  CompletionQueue* recv_cq() const { return queues_.recv_cq; }
  // XRC: of the request under way.
  SharedReceiveQueue* shared_queue() const { return queues_.shared; }
  bool has_tags() const { return queues_.tags != nullptr; }
  // A queue holds impossible indices.
  bool HasBrokenQueue() const {
    return queues_.send.broken() || queues_.recv.broken() || queues_.shared_is_broken;
  }
  // The queue pair is reset.
  void ResetQueues() {
    queues_.send.Reset();
    queues_.recv.Reset();
    queues_.shared_is_broken = false;
  }
  // XRC: `queue` is being destroyed.
  void ForgetReceiveQueue(const SharedReceiveQueue& queue);

  // ---- Copies by system calls
  CopyState& copy_state() { return copy_state_; }
  const CopyState& copy_state() const { return copy_state_; }
  bool IsHeld() const { return copy_state_.held_by() != nullptr; }
  // It must wait until copies are settled.
  bool MayNotRun() const {
    return IsHeld() || (access_.copies != nullptr && access_.copies->IsRunning(OnThisShard()));
  }
  // Visits the queue pair when it may run again.
  void AwaitCopies() {
    AppCopies* copies = IsHeld() ? copy_state_.held_by() : access_.copies;
    copies->Await(OnThisShard(), *queue_pair_);
  }
  bool HasRoomToGather() const {
    return access_.copies == nullptr || (access_.copies->gathers(OnThisShard()).HasRoom() &&
                                         !access_.copies->IsShut(OnThisShard()));
  }
  // The copies that `packet` may need; null: none.
  AppCopies* CopiesFor(const roce::Packet& packet) const {
    return queues_.domain == nullptr ? access_.copies : CopiesOfQueue(packet);
  }

  // ---- roce::QpHost
  roce::FetchResult FetchSend(roce::SendWqe& wqe, roce::CompletionStatus& bad_status) {
    return queues_.send.Fetch(wqe, bad_status);
  }
  roce::FetchResult FetchRecv(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                              const roce::Packet* packet) {
    if (queues_.shared != nullptr) [[unlikely]]
      return FetchShared(wqe, bad_status, packet);
    return queues_.recv.Fetch(wqe, bad_status);
  }
  uint32_t PostedReceives() { return queues_.recv.CountPosted(); }
  bool HasRoomToKeep() const;
  bool SelectReceiveQueue(uint32_t number) {
    return (queues_.shared != nullptr && queues_.shared->number() == number) ||
           FindReceiveQueue(number);
  }

  memory::MemoryStatus GatherSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                  memory::SegmentList& out) {
    if (wqe.is_inline) return GatherInline(wqe, offset, length, out);
    return ResolveSend(wqe, offset, length, memory::Access::kNone, out);
  }
  memory::MemoryStatus ScatterSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::SegmentList& out) {
    return ResolveSend(wqe, offset, length, memory::Access::kLocalWrite, out);
  }
  memory::MemoryStatus ScatterRecv(const roce::RecvWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::SegmentList& out) {
    constexpr auto kWrite = memory::Access::kLocalWrite;
    if (wqe.num_sge == 1) [[likely]] {
      return ResolveLocal(access_.recv_pd, wqe.first_sge, offset, length, kWrite, out);
    }
    return queues_.shared != nullptr
               ? ScatterShared(wqe, offset, length, out)
               : ResolveElements(access_.recv_pd, queues_.recv, wqe, offset, length, kWrite, out);
  }
  memory::MemoryStatus ResolveRemote(roce::Key rkey, uint64_t va, uint32_t length,
                                     memory::Access need, memory::SegmentList& out) {
    return access_.keys->Resolve(rkey.value(), Context(), va, length, need, out);
  }
  memory::MemoryStatus CheckRemote(roce::Key rkey, uint64_t va, uint32_t length,
                                   memory::Access need) {
    return access_.keys->Check(rkey.value(), Context(), va, length, need);
  }
  memory::MemoryStatus CheckRemoteKey(roce::Key rkey, memory::Access need) {
    return access_.keys->CheckKey(rkey.value(), Context(), need);
  }
  memory::MemoryStatus Invalidate(roce::Key key) {
    return access_.keys->Invalidate(key.value(), Context());
  }
  memory::MemoryStatus BindWindow(const roce::SendWqe& wqe);
  memory::MemoryStatus RegisterList(const roce::SendWqe& wqe);

  roce::DurableState StartDurable(roce::Key rkey, uint64_t va, uint32_t length, bool whole_region);
  roce::DurableState PollDurable() const { return durable_; }

  memory::MemoryStatus Place(const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
    const memory::MemoryStatus status =
        segments.AllDirect() ? memory::CopyIn(segments, bytes) : PlaceLater(segments, bytes);
    if (status != memory::MemoryStatus::kOk) [[unlikely]]
      CountMemoryFault();
    return status;
  }
  // The worker calls these only when all earlier payloads are written. If one of them failed, the
  // peer must not see this operation done.
  memory::MemoryStatus AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                         uint64_t swap, uint64_t& original);
  memory::MemoryStatus AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                      uint64_t& original);
  memory::MemoryStatus AtomicWrite(const memory::Segment& segment,
                                   std::span<const std::byte, 8> bytes);

  void CompleteSend(const roce::Completion& completion) {
    if (!completion.signaled) return;
    // A request of tag matching, not of the program.
    if (queues_.send_owner.is_shared) [[unlikely]]
      return CompleteOwnSend(completion);
    Complete(*queues_.send_cq, completion, queues_.send_owner, true);
  }
  void CompleteRecv(const roce::Completion& completion) {
    if (queues_.recv_owner.is_shared) [[unlikely]]
      return CompleteShared(completion);
    Complete(*queues_.recv_cq, completion, queues_.recv_owner, false);
  }
  // For TagReceiver: a receive of the shared queue itself; the memory of a tagged buffer.
  void CompleteUntagged(const roce::Completion& completion) {
    Complete(*queues_.recv_cq, completion, queues_.recv_owner, false);
  }
  memory::MemoryStatus ResolveTagged(const TaggedBuffer& buffer, uint32_t offset, uint32_t length,
                                     memory::SegmentList& out);
  void RaiseEvent(roce::QpEvent event);
  void NoteState(roce::QpState from, roce::QpState to) {
    if (services_.lane->trace != nullptr) [[unlikely]]
      RecordState(from, to);
  }
  void Count(roce::QpCounter counter) {
    services_.lane->counters.qp[static_cast<size_t>(counter)].Add(1);
    // The counter is a constant where it is counted often, so this is no test there.
    if (IsOfTimer(counter) && services_.lane->trace != nullptr) [[unlikely]]
      RecordTimer(counter);
  }

 private:
  // Parts of the host.
  friend class PlaceBatch;
  friend class TagReceiver;
  const OnShard& OnThisShard() const { return services_.shard->token.Token(); }
  memory::AccessContext Context() const { return {access_.pd, queues_.send_owner.qpn}; }
  void Complete(CompletionQueue& cq, const roce::Completion& completion, const CompletionOwner& who,
                bool is_send) {
    if (IsHeld() && HeldPlaces().Defer(*this, cq, completion, who, is_send)) [[unlikely]]
      return;
    const bool is_plain = completion.status == roce::CompletionStatus::kSuccess ||
                          services_.lane->vendor_errors == nullptr;
    if (is_plain && !copy_state_.fault().failed() && !services_.lane->watches_completions)
        [[likely]] {
      cq.Write(OnThisShard(), completion, who, is_send, now_ns());
    } else {
      CompleteSpecially(cq, completion, who, is_send);
    }
  }
  static constexpr bool IsOfTimer(roce::QpCounter counter) {
    return counter == roce::QpCounter::kAckTimeouts || counter == roce::QpCounter::kRnrNaksReceived;
  }
  // For the trace of the device, which exists.
  void RecordTimer(roce::QpCounter counter) const;
  void RecordState(roce::QpState from, roce::QpState to) const;
  // Writes a completion, and records it if there is a trace.
  void WriteTraced(CompletionQueue& cq, const roce::Completion& completion,
                   const CompletionOwner& who, bool is_send);
  void RecordCompletion(const CompletionQueue& cq, const roce::Completion& completion, bool is_send,
                        uint32_t vendor_error) const;
  // Writes a completion, unless or as the device's faults of completions change it.
  void WriteWithFaults(CompletionQueue& cq, roce::Completion completion, const CompletionOwner& who,
                       bool is_send);
  // The fault of the device that hits this completion; null: none.
  const CompletionFaultSettings* FindFault(const CompletionQueue& cq,
                                           const roce::Completion& completion) const;
  // Of a held queue pair.
  PlaceBatch& HeldPlaces() const { return copy_state_.held_by()->places(OnThisShard()); }
  AppCopies* CopiesOfQueue(const roce::Packet& packet) const;
  static bool IsRemote(const memory::Segment& segment) {
    return segment.direct == nullptr && segment.kind == memory::SegmentKind::kMemory;
  }
  memory::MemoryStatus PlaceLater(const memory::SegmentList& segments,
                                  std::span<const std::byte> bytes);
  // kNotYet at first; the result when the packet is offered again.
  memory::MemoryStatus AtomicLater(const AtomicCopy& wanted, uint64_t& original);
  // Leaves the flush of `range` to the shard.
  roce::DurableState RequestDurable(memory::DurableRange& range);
  roce::FetchResult FetchShared(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                                const roce::Packet* packet);
  memory::MemoryStatus ScatterShared(const roce::RecvWqe& wqe, uint32_t offset, uint32_t length,
                                     memory::SegmentList& out);
  void CompleteShared(const roce::Completion& completion);
  void CompleteSpecially(CompletionQueue& cq, roce::Completion completion,
                         const CompletionOwner& who, bool is_send);
  void WriteStatus(CompletionQueue& cq, const roce::Completion& completion,
                   const CompletionOwner& who, bool is_send);
  uint32_t VendorErrorOf(roce::CompletionStatus status) const;
  void CompleteOwnSend(const roce::Completion& completion);
  bool FindReceiveQueue(uint32_t number);
  memory::MemoryStatus GatherInline(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                    memory::SegmentList& out) {
    // Rings are sealed, so reading cannot fault.
    return out.Append(
               memory::Segment::Direct(queues_.send.InlineData(wqe) + offset, length, nullptr))
               ? memory::MemoryStatus::kOk
               : memory::MemoryStatus::kTooManySegments;
  }
  memory::MemoryStatus ResolveLocal(uint32_t domain_pd, const roce::Sge& sge, uint32_t offset,
                                    uint32_t length, memory::Access need,
                                    memory::SegmentList& out) {
    return access_.keys->Resolve(sge.lkey.value(), {domain_pd, queues_.send_owner.qpn},
                                 sge.va + offset, length, need, out);
  }
  memory::MemoryStatus ResolveSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::Access need, memory::SegmentList& out) {
    if (wqe.num_sge == 1) [[likely]] {
      return ResolveLocal(access_.pd, wqe.first_sge, offset, length, need, out);
    }
    return ResolveElements(access_.pd, queues_.send, wqe, offset, length, need, out);
  }
  // Several SGEs, read from the ring again. The program may have changed them since their lengths
  // were added up; kOutOfBounds: they are too short now.
  template <class Queue, class Wqe>
  memory::MemoryStatus ResolveElements(uint32_t domain_pd, const Queue& queue, const Wqe& wqe,
                                       uint32_t offset, uint32_t length, memory::Access need,
                                       memory::SegmentList& out);

  // In the order of their use: a visit and a packet touch the first lines only.
  Services services_;
  MemoryAccess access_;
  Queues queues_;
  CopyState copy_state_;
  QueuePair* queue_pair_;
  HostEffects effects_;
  roce::DurableState durable_{};  // state of the last StartDurable
};

}  // namespace roci::dataplane
