// What the transport core asks of the dataplane (roce/host.h): entries from the app's rings,
// translation with the session's keys, completions and events.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "dataplane/completion_queue.h"
#include "dataplane/counters.h"
#include "dataplane/place_batch.h"
#include "dataplane/work_queue.h"
#include "memory/copy.h"
#include "memory/key_table.h"
#include "memory/segment.h"
#include "roce/host.h"
#include "roce/work.h"

namespace roci::dataplane {

class Session;

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
  PlaceBatch* places = nullptr;      // the lcore's
  bool copy_failed = false;          // a payload that was taken could not be placed
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  RecvQueue recv_queue;
  Counter* memory_faults = nullptr;
  Session* session = nullptr;
  uint64_t user_handle = 0;
  std::atomic<uint32_t> async_events{0};

  roce::FetchResult FetchSend(roce::SendWqe& wqe, roce::CompletionStatus& bad_status) {
    return send_queue.Fetch(wqe, bad_status);
  }
  roce::FetchResult FetchRecv(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status) {
    return recv_queue.Fetch(wqe, bad_status);
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
    if (wqe.num_sge == 1) [[likely]] {
      return ResolveLocal(wqe.first_sge, offset, length, memory::Access::kLocalWrite, out);
    }
    return ResolveElements(recv_queue, wqe, offset, length, memory::Access::kLocalWrite, out);
  }
  memory::MemoryStatus ResolveRemote(roce::Key rkey, uint64_t va, uint32_t length,
                                     memory::Access need, memory::SegmentList& out) {
    return keys->Resolve(rkey.value(), Context(), va, length, need, out);
  }
  memory::MemoryStatus CheckRemote(roce::Key rkey, uint64_t va, uint32_t length,
                                   memory::Access need) {
    return keys->Check(rkey.value(), Context(), va, length, need);
  }
  // There are neither memory windows nor fast registration: nothing can be taken away.
  memory::MemoryStatus Invalidate(roce::Key) { return memory::MemoryStatus::kNoPermission; }

  memory::MemoryStatus Place(const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
    const memory::MemoryStatus status = segments.AllDirect() ? memory::CopyIn(segments, bytes)
                                                             : places->Add(*this, segments, bytes);
    if (status != memory::MemoryStatus::kOk) [[unlikely]]
      memory_faults->Add(1);
    return status;
  }
  memory::MemoryStatus AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                         uint64_t swap, uint64_t& original) {
    if (!places->empty()) places->Flush();
    const memory::AtomicResult result = memory::CompareAndSwap(segment, compare, swap);
    original = result.original;
    return result.status;
  }
  memory::MemoryStatus AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                      uint64_t& original) {
    if (!places->empty()) places->Flush();
    const memory::AtomicResult result = memory::FetchAndAdd(segment, add);
    original = result.original;
    return result.status;
  }

  void CompleteSend(const roce::Completion& completion) {
    if (completion.signaled) Complete(*send_cq, completion, true);
  }
  void CompleteRecv(const roce::Completion& completion) { Complete(*recv_cq, completion, false); }
  void RaiseEvent(roce::QpEvent event);
  void Count(roce::QpCounter counter) { counters->qp[static_cast<size_t>(counter)].Add(1); }

 private:
  memory::AccessContext Context() const { return {pd, owner.qpn}; }
  void Complete(CompletionQueue& cq, const roce::Completion& completion, bool is_send) {
    if (places->empty()) [[likely]] {
      cq.Write(completion, owner, is_send, *now_ns);
    } else {
      places->Defer(*this, cq, completion, is_send);
    }
  }
  memory::MemoryStatus GatherInline(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                    memory::SegmentList& out) {
    // Rings are sealed, so the bytes cannot vanish.
    return out.Append(memory::Segment::Direct(send_queue.InlineData(wqe) + offset, length, nullptr))
               ? memory::MemoryStatus::kOk
               : memory::MemoryStatus::kTooManySegments;
  }
  memory::MemoryStatus ResolveLocal(const roce::Sge& sge, uint32_t offset, uint32_t length,
                                    memory::Access need, memory::SegmentList& out) {
    return keys->Resolve(sge.lkey.value(), Context(), sge.va + offset, length, need, out);
  }
  memory::MemoryStatus ResolveSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::Access need, memory::SegmentList& out) {
    if (wqe.num_sge == 1) [[likely]] {
      return ResolveLocal(wqe.first_sge, offset, length, need, out);
    }
    return ResolveElements(send_queue, wqe, offset, length, need, out);
  }
  // Several elements, read from the ring again: the app may have changed them since their lengths
  // were added up, in which case they may fall short (kOutOfBounds).
  template <class Queue, class Wqe>
  memory::MemoryStatus ResolveElements(const Queue& queue, const Wqe& wqe, uint32_t offset,
                                       uint32_t length, memory::Access need,
                                       memory::SegmentList& out);
};

}  // namespace roci::dataplane
