// Queues and memory of a simulated program.
#include "tests/sim/sim_host.h"

#include <algorithm>
#include <utility>

namespace roci::sim {
using memory::MemoryStatus;

void SimHost::PostSend(PostedSend post) {
  post.wqe.slot = static_cast<uint32_t>(sends_.size());
  sends_.push_back(std::move(post));
}

void SimHost::PostRecv(PostedRecv post) {
  post.wqe.slot = static_cast<uint32_t>(recvs_.size());
  recvs_.push_back(std::move(post));
}

roce::FetchResult SimHost::FetchSend(roce::SendWqe& out, roce::CompletionStatus&) {
  if (next_send_ == sends_.size()) return roce::FetchResult::kEmpty;
  out = sends_[next_send_++].wqe;
  return roce::FetchResult::kOk;
}

roce::FetchResult SimHost::FetchRecv(roce::RecvWqe& out, roce::CompletionStatus&,
                                     const roce::Packet* packet) {
  if (choose_ != nullptr) {
    const PostedRecv* chosen = packet != nullptr ? choose_(*packet) : nullptr;
    if (chosen == nullptr) return roce::FetchResult::kEmpty;
    chosen_ = chosen;
    out = chosen->wqe;
    return roce::FetchResult::kOk;
  }
  if (shared_ != nullptr) return shared_->Fetch(selected_, out);
  if (next_recv_ == recvs_.size()) return roce::FetchResult::kEmpty;
  out = recvs_[next_recv_++].wqe;
  return roce::FetchResult::kOk;
}

MemoryStatus SimHost::Walk(std::span<const roce::Sge> sges, uint32_t offset, uint32_t length,
                           memory::Access access, memory::SegmentList& out) {
  for (const roce::Sge& sge : sges) {
    if (length == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const uint32_t piece = std::min(length, sge.length - offset);
    const MemoryStatus status =
        arena_->keys().Resolve(sge.lkey.value(), context_, sge.va + offset, piece, access, out);
    if (status != MemoryStatus::kOk) return status;
    offset = 0;
    length -= piece;
  }
  return length == 0 ? MemoryStatus::kOk : MemoryStatus::kOutOfBounds;
}

MemoryStatus SimHost::GatherSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                 memory::SegmentList& out) {
  PostedSend& post = sends_[wqe.slot];
  if (!wqe.is_inline) return Walk(post.sges, offset, length, memory::Access::kNone, out);
  if (uint64_t{offset} + length > post.inline_bytes.size()) return MemoryStatus::kOutOfBounds;
  if (length != 0) {
    out.Append(memory::Segment::Direct(post.inline_bytes.data() + offset, length, nullptr));
  }
  return MemoryStatus::kOk;
}

MemoryStatus SimHost::ScatterSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                  memory::SegmentList& out) {
  return Walk(sends_[wqe.slot].sges, offset, length, memory::Access::kLocalWrite, out);
}

MemoryStatus SimHost::ScatterRecv(const roce::RecvWqe& wqe, uint32_t offset, uint32_t length,
                                  memory::SegmentList& out) {
  const PostedRecv& post = choose_ != nullptr   ? *chosen_
                           : shared_ != nullptr ? shared_->At(selected_, wqe.slot)
                                                : recvs_[wqe.slot];
  return Walk(post.sges, offset, length, memory::Access::kLocalWrite, out);
}

MemoryStatus SimHost::ResolveRemote(roce::Key key, uint64_t va, uint32_t length,
                                    memory::Access access, memory::SegmentList& out) {
  return arena_->keys().Resolve(key.value(), context_, va, length, access, out);
}

// Leaves out the check for persistence: the key table grants it for files on real disks only.
MemoryStatus SimHost::CheckRemote(roce::Key key, uint64_t va, uint32_t length,
                                  memory::Access access) {
  return arena_->keys().Check(key.value(), context_, va, length,
                              access & ~memory::Access::kFlushPersistent);
}

MemoryStatus SimHost::CheckRemoteKey(roce::Key key, memory::Access access) {
  return arena_->keys().CheckKey(key.value(), context_, access & ~memory::Access::kFlushPersistent);
}

roce::DurableState SimHost::StartDurable(roce::Key key, uint64_t va, uint32_t length,
                                         bool whole_region) {
  if (key.value() != arena_->key(kTarget)) return roce::DurableState::kNoAccess;
  wants_sync_ = true;
  if (busy_ != 0) {
    --busy_;
    return roce::DurableState::kBusy;
  }
  ++syncs_;
  sync_offset_ = whole_region ? 0 : va - arena_->va(kTarget);
  const auto from = arena_->bytes(kTarget).subspan(
      sync_offset_, whole_region ? arena_->size(kTarget) : uint64_t{length});
  syncing_.assign(from.begin(), from.end());
  return durable_ = roce::DurableState::kRunning;
}

void SimHost::EndSync() {
  wants_sync_ = false;
  std::copy(syncing_.begin(), syncing_.end(),
            disk_.begin() + static_cast<std::ptrdiff_t>(sync_offset_));
  syncing_.clear();
  durable_ = roce::DurableState::kDone;
}

MemoryStatus SimHost::Invalidate(roce::Key key) {
  return arena_->keys().Invalidate(key.value(), context_);
}

MemoryStatus SimHost::BindWindow(const roce::SendWqe& wqe) {
  const roce::BindWork& bind = wqe.bind;
  return arena_->keys().BindWindow({.window = bind.window,
                                    .new_key = bind.new_key,
                                    .region_key = bind.region_key,
                                    .access = static_cast<memory::Access>(bind.access),
                                    .address = bind.start,
                                    .length = bind.length},
                                   context_);
}

MemoryStatus SimHost::AtomicWrite(const memory::Segment& segment,
                                  std::span<const std::byte, 8> bytes) {
  return memory::AtomicWrite(segment, bytes);
}

bool SimHost::SelectReceiveQueue(uint32_t number) {
  if (shared_ == nullptr || !shared_->Has(number)) return false;
  selected_ = number;
  return true;
}

MemoryStatus SimHost::Place(const memory::SegmentList& segments, std::span<const std::byte> bytes) {
  return memory::CopyIn(segments, bytes);
}

MemoryStatus SimHost::AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                        uint64_t swap, uint64_t& original) {
  const memory::AtomicResult result = memory::CompareAndSwap(segment, compare, swap);
  original = result.original;
  return result.status;
}

MemoryStatus SimHost::AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                     uint64_t& original) {
  const memory::AtomicResult result = memory::FetchAndAdd(segment, add);
  original = result.original;
  return result.status;
}

void SimHost::CompleteSend(const roce::Completion& completion) {
  send_completions_.push_back(completion);
}

void SimHost::CompleteRecv(const roce::Completion& completion) {
  recv_completions_.push_back(completion);
  completed_queues_.push_back(selected_);
}

}  // namespace roci::sim
