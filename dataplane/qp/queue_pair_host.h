// What the transport core asks of the dataplane (roce/host.h): entries from the app's rings,
// translation with the session's keys, completions and events.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/completion_queue.h"
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
class ReceiveQueueTable;
class TagReceiver;
class VerbsContext;
class XrcDomain;
struct TaggedBuffer;
struct TargetOpening;

// Payloads that were taken could not be placed.
struct CopyFault {
  bool failed = false;
  bool of_request = false;   // of the peer: packet `psn`, the first of them
  bool of_response = false;  // to a READ or atomic of our own
  bool recv_told = false;    // a completion has told of it already
  bool send_told = false;
  roce::Psn psn;
  uint32_t place = 0;  // in the batch
};

// One per queue pair; on its lcore. Members are set once by QueuePair.
struct QueuePairHost {
  struct Owner : CompletionOwner {
    roce::Qpn qpn_value() const { return roce::Qpn(qpn); }
  };

  SendQueue send_queue;
  memory::KeyTable* keys = nullptr;
  uint32_t pd = 0;
  Owner owner{};
  LaneCounters* counters = nullptr;
  const uint64_t* now_ns = nullptr;  // the lcore's time of this burst
  AppCopies* copies = nullptr;       // of who shares `keys`
  AppCopies* held_in = nullptr;      // with copies for this queue pair that are not settled yet
  bool wants_packet_again = false;   // the packet that it was offered
  AppCopies* parked_in = nullptr;    // where frames for it wait
  AtomicCopy atomic;                 // settled, and waits for the packet that asked for it
  CopyFault copy_fault;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  SharedReceiveQueue* srq = nullptr;  // instead of recv_queue; XRC: of the request under way
  RecvQueue recv_queue;
  uint32_t recv_pd = 0;          // whose L_Keys receives use
  bool shared_broken = false;    // the shared receive queue was needed and is broken
  CompletionOwner recv_owner{};  // of receive completions
  Counter* memory_faults = nullptr;
  const ShardServices* shard = nullptr;
  VerbsContext* context = nullptr;  // null for XRC receive
  uint64_t user_handle = 0;
  bool is_work_queue = false;
  std::atomic<uint32_t> async_events{0};
  const XrcDomain* domain = nullptr;  // XRC receive only
  const ReceiveQueueTable* receive_queues = nullptr;
  std::vector<TargetOpening*> openings;  // XRC receive only: get its events
  TagReceiver* tags = nullptr;           // of a tag-matching receive queue only
  QueuePair* queue_pair = nullptr;       // that this is of
  roce::DurableState durable{};          // what became of the last StartDurable

  roce::FetchResult FetchSend(roce::SendWqe& wqe, roce::CompletionStatus& bad_status) {
    return send_queue.Fetch(wqe, bad_status);
  }
  roce::FetchResult FetchRecv(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                              const roce::Packet* packet) {
    if (srq != nullptr) [[unlikely]]
      return FetchShared(wqe, bad_status, packet);
    return recv_queue.Fetch(wqe, bad_status);
  }
  bool SelectReceiveQueue(uint32_t number) {
    return (srq != nullptr && srq->number() == number) || FindReceiveQueue(number);
  }
  // XRC: the selected one is about to go.
  void ForgetReceiveQueue() {
    if (IsHeld()) held_in->places.ForgetReceives(*this);
    srq = nullptr;
    keys = nullptr;
    copies = nullptr;
    recv_cq = nullptr;
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
      return ResolveLocal(recv_pd, wqe.first_sge, offset, length, kWrite, out);
    }
    return srq != nullptr ? ScatterShared(wqe, offset, length, out)
                          : ResolveElements(recv_pd, recv_queue, wqe, offset, length, kWrite, out);
  }
  memory::MemoryStatus ResolveRemote(roce::Key rkey, uint64_t va, uint32_t length,
                                     memory::Access need, memory::SegmentList& out) {
    return keys->Resolve(rkey.value(), Context(), va, length, need, out);
  }
  memory::MemoryStatus CheckRemote(roce::Key rkey, uint64_t va, uint32_t length,
                                   memory::Access need) {
    return keys->Check(rkey.value(), Context(), va, length, need);
  }
  memory::MemoryStatus CheckRemoteKey(roce::Key rkey, memory::Access need) {
    return keys->CheckKey(rkey.value(), Context(), need);
  }
  memory::MemoryStatus Invalidate(roce::Key key) {
    return keys->Invalidate(key.value(), Context());
  }
  memory::MemoryStatus BindWindow(const roce::SendWqe& wqe);
  memory::MemoryStatus RegisterList(const roce::SendWqe& wqe);
  bool IsHeld() const { return held_in != nullptr; }
  // Until copies are settled.
  bool MayNotRun() const { return IsHeld() || (copies != nullptr && copies->IsRunning()); }
  // Visits the queue pair when it may run again.
  void AwaitCopies() { (IsHeld() ? held_in : copies)->Await(*queue_pair); }
  bool HasRoomToGather() const {
    return copies == nullptr || (copies->gathers.HasRoom() && !copies->IsShut());
  }
  // Those that `packet` may need; null: none.
  AppCopies* CopiesFor(const roce::Packet& packet) const {
    return domain == nullptr ? copies : CopiesOfQueue(packet);
  }

  roce::DurableState StartDurable(roce::Key rkey, uint64_t va, uint32_t length, bool whole_region);
  roce::DurableState PollDurable() const { return durable; }

  memory::MemoryStatus Place(const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
    const memory::MemoryStatus status =
        segments.AllDirect() ? memory::CopyIn(segments, bytes) : PlaceLater(segments, bytes);
    if (status != memory::MemoryStatus::kOk) [[unlikely]]
      memory_faults->Add(1);
    return status;
  }
  // The worker offers what comes here only when everything before is placed. But what the peer
  // asked for before may have failed: it must not see this done.
  memory::MemoryStatus AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                         uint64_t swap, uint64_t& original) {
    if (copy_fault.failed) [[unlikely]]
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
    if (copy_fault.failed) [[unlikely]]
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
    if (copy_fault.failed) [[unlikely]]
      return memory::MemoryStatus::kFault;
    if (!IsRemote(segment)) return memory::AtomicWrite(segment, bytes);
    AtomicCopy write{.kind = AtomicCopy::Kind::kWrite, .host = this, .segment = segment};
    std::memcpy(&write.operand, bytes.data(), bytes.size());
    uint64_t ignored;
    return AtomicLater(write, ignored);
  }

  void CompleteSend(const roce::Completion& completion) {
    if (!completion.signaled) return;
    // Of the dataplane's own requests, which tag matching makes.
    if (owner.is_shared) [[unlikely]]
      return CompleteOwnSend(completion);
    Complete(*send_cq, completion, owner, true);
  }
  void CompleteRecv(const roce::Completion& completion) {
    if (recv_owner.is_shared) [[unlikely]]
      return CompleteShared(completion);
    Complete(*recv_cq, completion, recv_owner, false);
  }
  // For TagReceiver: a receive of the shared queue itself; the memory of a tagged buffer.
  void CompleteUntagged(const roce::Completion& completion) {
    Complete(*recv_cq, completion, recv_owner, false);
  }
  memory::MemoryStatus ResolveTagged(const TaggedBuffer& buffer, uint32_t offset, uint32_t length,
                                     memory::SegmentList& out);
  void RaiseEvent(roce::QpEvent event);
  void Count(roce::QpCounter counter) { counters->qp[static_cast<size_t>(counter)].Add(1); }

 private:
  memory::AccessContext Context() const { return {pd, owner.qpn}; }
  void Complete(CompletionQueue& cq, const roce::Completion& completion, const CompletionOwner& who,
                bool is_send) {
    if (IsHeld() && held_in->places.Defer(*this, cq, completion, who, is_send)) [[unlikely]] {
      return;
    }
    if (!copy_fault.failed) [[likely]] {
      cq.Write(completion, who, is_send, *now_ns);
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
  // kNotYet the first time, and the answer when the packet comes again.
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
    // Rings are sealed, so the bytes cannot vanish.
    return out.Append(memory::Segment::Direct(send_queue.InlineData(wqe) + offset, length, nullptr))
               ? memory::MemoryStatus::kOk
               : memory::MemoryStatus::kTooManySegments;
  }
  memory::MemoryStatus ResolveLocal(uint32_t domain_pd, const roce::Sge& sge, uint32_t offset,
                                    uint32_t length, memory::Access need,
                                    memory::SegmentList& out) {
    return keys->Resolve(sge.lkey.value(), {domain_pd, owner.qpn}, sge.va + offset, length, need,
                         out);
  }
  memory::MemoryStatus ResolveSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::Access need, memory::SegmentList& out) {
    if (wqe.num_sge == 1) [[likely]] {
      return ResolveLocal(pd, wqe.first_sge, offset, length, need, out);
    }
    return ResolveElements(pd, send_queue, wqe, offset, length, need, out);
  }
  // Several elements, read from the ring again: the app may have changed them since their lengths
  // were added up, in which case they may fall short (kOutOfBounds).
  template <class Queue, class Wqe>
  memory::MemoryStatus ResolveElements(uint32_t domain_pd, const Queue& queue, const Wqe& wqe,
                                       uint32_t offset, uint32_t length, memory::Access need,
                                       memory::SegmentList& out);
};

}  // namespace roci::dataplane
