// The host of the transport core (roce/host.h) in the dataplane: WQEs from the program's rings,
// translation with its keys, completions and events.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/lane_state.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/rings/work_queue.h"
#include "memory/copy.h"
#include "memory/key_table.h"
#include "memory/segment.h"
#include "roce/host.h"
#include "roce/work.h"

namespace roci::dataplane {

class QueuePair;
struct ShardServices;
class TagReceiver;
class VerbsContext;
class XrcTargets;
struct TaggedBuffer;
struct TargetOpening;

// Payloads of acknowledged packets could not be written.
struct CopyFault {
  bool failed = false;
  bool of_request = false;   // of the peer; the first one is packet `psn`
  bool of_response = false;  // to a READ or atomic of our own
  bool recv_told = false;    // a receive completion has reported it
  bool send_told = false;
  roce::Psn psn;
  uint32_t place = 0;  // in the batch
};

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
    const ShardServices* shard = nullptr;
    LaneState* lane = nullptr;
    VerbsContext* context = nullptr;   // null for XRC receive
    const uint64_t* now_ns = nullptr;  // time of the burst
  };
  // Asynchronous events of the queue pair.
  struct Events {
    uint64_t user_handle = 0;  // what they carry
    bool is_work_queue = false;
    std::atomic<uint32_t> sent{0};
    std::vector<TargetOpening*> openings;  // XRC receive only: each gets them
  };
  // Copies by system calls for this queue pair, and what waits for them.
  struct Copying {
    AppCopies* held_in = nullptr;    // has copies for it that are not settled yet
    AppCopies* parked_in = nullptr;  // has received frames that wait for it
    CopyFault fault;
    AtomicCopy atomic;  // settled; its result waits for the packet that asked for it
  };

  // In the order of their use: a visit and a packet touch the first lines only.
 private:
  Services services_;
  MemoryAccess access_;

 public:
  Queues queues;
  Copying copying;
  Events events;

 private:
  QueuePair* queue_pair_;
  roce::DurableState durable_{};  // state of the last StartDurable

 public:
  QueuePairHost(QueuePair& queue_pair, const Services& services, const MemoryAccess& access,
                uint64_t user_handle, bool is_work_queue)
      : services_(services), access_(access), queue_pair_(&queue_pair) {
    events.user_handle = user_handle;
    events.is_work_queue = is_work_queue;
  }

  // ---- Identity
  roce::Qpn qpn() const { return roce::Qpn(queues.send_owner.qpn); }
  uint32_t handle() const { return queues.send_owner.qp_handle; }
  uint32_t pd() const { return access_.pd; }
  // It receives by the queues of an XRC domain, of several programs.
  bool is_of_domain() const { return queues.domain != nullptr; }

  // ---- Surroundings
  QueuePair& queue_pair() const { return *queue_pair_; }
  LaneState& lane() const { return *services_.lane; }
  VerbsContext& context() const { return *services_.context; }  // not XRC receive
  AppCopies& copies() const { return *access_.copies; }         // XRC: of the request under way
  uint64_t now_ns() const { return *services_.now_ns; }
  void CountMemoryFault();
  // A durable flush has ended; see StartDurable.
  void NoteDurable(roce::DurableState state) { durable_ = state; }

  // ---- roce::QpHost
  roce::FetchResult FetchSend(roce::SendWqe& wqe, roce::CompletionStatus& bad_status) {
    return queues.send.Fetch(wqe, bad_status);
  }
  roce::FetchResult FetchRecv(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                              const roce::Packet* packet) {
    if (queues.shared != nullptr) [[unlikely]]
      return FetchShared(wqe, bad_status, packet);
    return queues.recv.Fetch(wqe, bad_status);
  }
  bool SelectReceiveQueue(uint32_t number) {
    return (queues.shared != nullptr && queues.shared->number() == number) ||
           FindReceiveQueue(number);
  }
  // XRC: the selected queue is being destroyed.
  void ForgetReceiveQueue() {
    if (IsHeld()) copying.held_in->places.ForgetReceives(*this);
    queues.shared = nullptr;
    access_.keys = nullptr;
    access_.copies = nullptr;
    queues.recv_cq = nullptr;
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
    return queues.shared != nullptr
               ? ScatterShared(wqe, offset, length, out)
               : ResolveElements(access_.recv_pd, queues.recv, wqe, offset, length, kWrite, out);
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
  bool IsHeld() const { return copying.held_in != nullptr; }
  // It must wait until copies are settled.
  bool MayNotRun() const {
    return IsHeld() || (access_.copies != nullptr && access_.copies->IsRunning());
  }
  // Visits the queue pair when it may run again.
  void AwaitCopies() { (IsHeld() ? copying.held_in : access_.copies)->Await(*queue_pair_); }
  bool HasRoomToGather() const {
    return access_.copies == nullptr ||
           (access_.copies->gathers.HasRoom() && !access_.copies->IsShut());
  }
  // The copies that `packet` may need; null: none.
  AppCopies* CopiesFor(const roce::Packet& packet) const {
    return queues.domain == nullptr ? access_.copies : CopiesOfQueue(packet);
  }

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
                                         uint64_t swap, uint64_t& original) {
    if (copying.fault.failed) [[unlikely]]
      return memory::MemoryStatus::kFault;
    if (IsRemote(segment)) {
      return AtomicLater({.kind = AtomicCopy::Kind::kCompareSwap,
                          .host = this,
                          .segment = segment,
                          .operand = compare,
                          .swap = swap},
                         original);
    }
    const memory::AtomicResult result = memory::CompareAndSwap(segment, compare, swap);
    original = result.original;
    return result.status;
  }
  memory::MemoryStatus AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                      uint64_t& original) {
    if (copying.fault.failed) [[unlikely]]
      return memory::MemoryStatus::kFault;
    if (IsRemote(segment)) {
      return AtomicLater(
          {.kind = AtomicCopy::Kind::kFetchAdd, .host = this, .segment = segment, .operand = add},
          original);
    }
    const memory::AtomicResult result = memory::FetchAndAdd(segment, add);
    original = result.original;
    return result.status;
  }
  memory::MemoryStatus AtomicWrite(const memory::Segment& segment,
                                   std::span<const std::byte, 8> bytes) {
    if (copying.fault.failed) [[unlikely]]
      return memory::MemoryStatus::kFault;
    if (!IsRemote(segment)) return memory::AtomicWrite(segment, bytes);
    AtomicCopy write{.kind = AtomicCopy::Kind::kWrite, .host = this, .segment = segment};
    std::memcpy(&write.operand, bytes.data(), bytes.size());
    uint64_t ignored;
    return AtomicLater(write, ignored);
  }

  void CompleteSend(const roce::Completion& completion) {
    if (!completion.signaled) return;
    // A request of tag matching, not of the program.
    if (queues.send_owner.is_shared) [[unlikely]]
      return CompleteOwnSend(completion);
    Complete(*queues.send_cq, completion, queues.send_owner, true);
  }
  void CompleteRecv(const roce::Completion& completion) {
    if (queues.recv_owner.is_shared) [[unlikely]]
      return CompleteShared(completion);
    Complete(*queues.recv_cq, completion, queues.recv_owner, false);
  }
  // For TagReceiver: a receive of the shared queue itself; the memory of a tagged buffer.
  void CompleteUntagged(const roce::Completion& completion) {
    Complete(*queues.recv_cq, completion, queues.recv_owner, false);
  }
  memory::MemoryStatus ResolveTagged(const TaggedBuffer& buffer, uint32_t offset, uint32_t length,
                                     memory::SegmentList& out);
  void RaiseEvent(roce::QpEvent event);
  void Count(roce::QpCounter counter) {
    services_.lane->counters.qp[static_cast<size_t>(counter)].Add(1);
  }

 private:
  memory::AccessContext Context() const { return {access_.pd, queues.send_owner.qpn}; }
  void Complete(CompletionQueue& cq, const roce::Completion& completion, const CompletionOwner& who,
                bool is_send) {
    if (IsHeld() && copying.held_in->places.Defer(*this, cq, completion, who, is_send))
        [[unlikely]] {
      return;
    }
    if (!copying.fault.failed) [[likely]] {
      cq.Write(completion, who, is_send, now_ns());
    } else {
      CompleteBehindFault(cq, completion, who, is_send);
    }
  }
  AppCopies* CopiesOfQueue(const roce::Packet& packet) const;
  static bool IsRemote(const memory::Segment& segment) {
    return segment.direct == nullptr && segment.kind == memory::SegmentKind::kMemory;
  }
  memory::MemoryStatus PlaceLater(const memory::SegmentList& segments,
                                  std::span<const std::byte> bytes);
  // kNotYet at first; the result when the packet is offered again.
  memory::MemoryStatus AtomicLater(const AtomicCopy& wanted, uint64_t& original);
  roce::FetchResult FetchShared(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                                const roce::Packet* packet);
  memory::MemoryStatus ScatterShared(const roce::RecvWqe& wqe, uint32_t offset, uint32_t length,
                                     memory::SegmentList& out);
  void CompleteShared(const roce::Completion& completion);
  void CompleteBehindFault(CompletionQueue& cq, roce::Completion completion,
                           const CompletionOwner& who, bool is_send);
  void CompleteOwnSend(const roce::Completion& completion);
  bool FindReceiveQueue(uint32_t number);
  // Counts the event in `sent` where it is not lost.
  void SendEvent(VerbsContext& to, uint64_t element, uint32_t type, std::atomic<uint32_t>& sent);
  memory::MemoryStatus GatherInline(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                    memory::SegmentList& out) {
    // Rings are sealed, so reading cannot fault.
    return out.Append(
               memory::Segment::Direct(queues.send.InlineData(wqe) + offset, length, nullptr))
               ? memory::MemoryStatus::kOk
               : memory::MemoryStatus::kTooManySegments;
  }
  memory::MemoryStatus ResolveLocal(uint32_t domain_pd, const roce::Sge& sge, uint32_t offset,
                                    uint32_t length, memory::Access need,
                                    memory::SegmentList& out) {
    return access_.keys->Resolve(sge.lkey.value(), {domain_pd, queues.send_owner.qpn},
                                 sge.va + offset, length, need, out);
  }
  memory::MemoryStatus ResolveSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::Access need, memory::SegmentList& out) {
    if (wqe.num_sge == 1) [[likely]] {
      return ResolveLocal(access_.pd, wqe.first_sge, offset, length, need, out);
    }
    return ResolveElements(access_.pd, queues.send, wqe, offset, length, need, out);
  }
  // Several SGEs, read from the ring again. The program may have changed them since their lengths
  // were added up; kOutOfBounds: they are too short now.
  template <class Queue, class Wqe>
  memory::MemoryStatus ResolveElements(uint32_t domain_pd, const Queue& queue, const Wqe& wqe,
                                       uint32_t offset, uint32_t length, memory::Access need,
                                       memory::SegmentList& out);
};

}  // namespace roci::dataplane
