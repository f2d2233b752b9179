// The part of the loop for memory that is copied by system calls: packets that wait for copies, the
// copies, and the work after them.
#include <rte_mbuf.h>

#include <algorithm>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/worker.h"
#include "roce/parse.h"
#include "roce/work.h"

namespace roci::dataplane {
namespace {

// Most copies per call: completing one may start another, and the next round continues.
constexpr uint32_t kCopiesPerCall = 256;
constexpr uint64_t kRefusedRetryNs = roce::kNsPerMs;

}  // namespace

// A packet must wait while nothing may be added to the batch, or the batch lacks room; while
// payload that the packet reports is not placed yet; and behind frames that already wait.
// PlaceBatch::HasRoom() includes room for the flush of a queue pair that this packet moves to ERR.
bool Worker::MustWait(AppCopies& copies, const QueuePair& qp, const roce::Packet& packet) const {
  if (copies.IsRunning(shard_) || qp.host(shard_).copy_state().parked_in() != nullptr ||
      copies.IsShut(shard_)) {
    return true;
  }
  // One completion for a receive; for a response, one for each request that it may complete.
  const uint32_t completions =
      packet.info->is_request ? 1 : 1 + qp.core(shard_).UnfinishedRequests();
  const PlaceBatch& places = copies.places(shard_);
  if (!places.empty() && !places.HasRoom(completions)) return true;
  if (!copies.HasRoomForFrame(shard_)) return true;
  // The next message of an XRC queue pair may use another program's memory, and tag matching
  // completes one message at a time.
  return qp.host(shard_).IsHeld() && (packet.info->NeedsPlaced() ||
                                      qp.host(shard_).is_of_domain() || qp.host(shard_).has_tags());
}

void Worker::Enlist(AppCopies& copies) {
  if (copies.TakeRunRequest(shard_)) collecting_.push_back(&copies);
}

// True: took the caller's reference to the frame, the only one. False: the caller keeps its
// reference; the frame was dropped for this queue pair, or its reference count was raised.
bool Worker::Park(AppCopies& copies, QueuePair& qp, DeviceLane& lane, rte_mbuf* frame,
                  Sharing sharing) {
  const CopyState& state = qp.host(shard_).copy_state();
  AppCopies& where = state.parked_in() != nullptr ? *state.parked_in()
                     : state.held_by() != nullptr ? *state.held_by()
                                                  : copies;
  if (!where.Park(shard_, frame, lane, qp)) {
    lane.counters.rx_memory_dropped.Add(1);
    return false;
  }
  Enlist(where);
  if (sharing == Sharing::kNobody) return true;
  rte_mbuf_refcnt_update(frame, 1);
  shares_frames_ = true;
  return false;
}

// True: took ownership of the frame.
bool Worker::KeepFrame(AppCopies& copies, const DeviceLane& lane, rte_mbuf* frame,
                       Sharing sharing) {
  if (sharing == Sharing::kOthers) {
    rte_mbuf_refcnt_update(frame, 1);
    shares_frames_ = true;
  }
  copies.Keep(
      shard_, frame,
      sharing == Sharing::kNobody && lane.wire != nullptr && rte_mbuf_refcnt_read(frame) == 1);
  return sharing == Sharing::kNobody;
}

// False: another thread has become the lcore.
bool Worker::RunCopies(uint32_t& work) {
  ++work;
  if (runs_for_caller_) return true;
  for (uint32_t count = 0; !collecting_.empty() && count < kCopiesPerCall; ++count) {
    AppCopies& copies = *collecting_.front();
    collecting_.erase(collecting_.begin());
    if (copies.IsOverLimit()) [[unlikely]] {
      copies.SetRefused(shard_, true);
      refused_.push_back(&copies);
    } else if (!RunCopies(copies)) {
      return false;
    }
  }
  events_.Publish(shard_);
  return true;
}

bool Worker::RunCopies(AppCopies& copies) {
  copies.Begin(shard_);
  if (copies.HasCopier() && copies.HandOver(shard_)) [[unlikely]] {
    copies.Detach(shard_);
    detached_.push_back(&copies);
    return true;
  }
  // A function that runs in the lcore's place during the copy may destroy a queue pair, so the
  // queue pair's completions must be published before.
  events_.Publish(shard_);
  running_copy_ = &copies;
  if (!lcore_.Copy(copies)) [[unlikely]]
    return false;
  RefreshTime();
  if (copies.IsGone()) [[unlikely]] {
    copies.Detach(shard_);
    copies.SetDone();
    ForgetOrphan(copies);
  } else {
    SettleCopies(copies);
  }
  return true;
}

void Worker::DetachCopy() {
  running_copy_->Detach(shard_);
  running_copy_->CountCopier();
  detached_.push_back(running_copy_);
}

uint32_t Worker::CollectCopies() {
  uint32_t work = 0;
  for (size_t i = 0; i < detached_.size();) {
    AppCopies& copies = *detached_[i];
    if (!copies.IsDone()) {
      ++i;
      continue;
    }
    detached_.erase(detached_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!copies.IsGone()) {
      SettleCopies(copies);
    } else {
      ForgetOrphan(copies);
    }
    ++work;
  }
  if (!refused_.empty() && now_ >= refused_retry_ns_) {
    refused_retry_ns_ = now_ + kRefusedRetryNs;
    for (AppCopies* copies : refused_) copies->SetRefused(shard_, false);
    collecting_.insert(collecting_.end(), refused_.begin(), refused_.end());
    refused_.clear();
  }
  return work;
}

bool Worker::CopiesPending() const {
  return !collecting_.empty() ||
         std::any_of(detached_.begin(), detached_.end(),
                     [](const AppCopies* copies) { return copies->IsDone(); });
}

void Worker::SettleCopies(AppCopies& copies) {
  const bool was_detached = copies.IsDetached();
  copies.Settle(shard_);
  copies.gathers(shard_).Settle([&](const GatherBatch::Frame& frame) {
    if (!was_detached) frame.lane->Unreserve(shard_);
    SendGathered(frame);
  });
  for (const AppCopies::Kept& kept : copies.TakeKept(shard_)) {
    rte_mbuf* frame = kept.frame;
    if (kept.to_stash) {
      stash_.Put(&frame, 1);
    } else {
      rte_pktmbuf_free(frame);
    }
  }
  copies.VisitWaiting(shard_, [this](QueuePair& qp) {
    qp.ApplyLaterFailure(shard_);
    VisitAfterPackets(qp);
    // It may have been rung while it was held, or is polled.
    if (qp.HasNewWork(shard_)) {
      AwaitTurn(qp);
    } else {
      scheduler_.PushPolled(ShareOf(qp), qp);
    }
  });
  Unpark(copies.TakeParked(shard_));
  VisitTouched();
  if (!orphans_.empty()) [[unlikely]]
    ForgetOrphan(copies);
}

void Worker::ForgetOrphan(const AppCopies& copies) {
  std::erase_if(orphans_, [&](const auto& orphan) { return orphan.get() == &copies; });
}

void Worker::SendGathered(const GatherBatch::Frame& frame) {
  DeviceLane& lane = DeviceLane::Of(*frame.lane);
  if (frame.qp != nullptr && !frame.failed) [[likely]] {
    if (lane.IsFull(shard_) && !lane.FlushStage(shard_)) [[unlikely]] {
      lane.counters.tx_dropped.Add(1);
      rte_pktmbuf_free(frame.buffer);
      return;
    }
    if (frame.fill_checksums) [[unlikely]]
      lane.FillChecksums(shard_, *frame.buffer, frame.packet.payload_length);
    lane.Stage(shard_, frame.buffer, frame.to_lcore);
    return;
  }
  rte_pktmbuf_free(frame.buffer);
  if (frame.qp == nullptr) return;
  QueuePair& qp = *frame.qp;
  stats_.memory_faults.Add(1);
  if (qp.HandleTransmitFault(shard_, now_, frame.packet).has_transmit) AwaitTurn(qp);
  ApplyEffects(qp);
}

// Switches the mapped memory of users that have blocked an lcore to access by system calls: at most
// kMostKeys keys per round.
void Worker::StopDirectAccess() {
  constexpr uint32_t kMostKeys = 1024;
  const uint32_t changes = CopyUse::changes();
  uint32_t left = kMostKeys;
  for (VerbsContext* context : contexts_) {
    if (!context->copies().use()->has_blocked()) continue;
    left -= context->keys(shard_).StopDirectAccess(left);
    if (left == 0) return;
  }
  changes_seen_ = changes;
}

// Headers and ICRC of parked frames were checked at their arrival.
void Worker::Unpark(std::span<const AppCopies::Parked> parked) {
  for (const AppCopies::Parked& each : parked) {
    if (each.qp != nullptr) each.qp->host(shard_).copy_state().Unpark();
  }
  roce::Packet packet;
  for (const AppCopies::Parked& each : parked) {
    if (touched_count_ == touched_.size()) VisitTouched();
    const std::span bytes(rte_pktmbuf_mtod(each.frame, const std::byte*), each.frame->data_len);
    const bool is_taken =
        each.qp != nullptr && roce::ParseHeaders(bytes, packet) == roce::DropReason::kNone &&
        Deliver(DeviceLane::Of(*each.lane), *each.qp, packet, each.frame, Sharing::kNobody);
    if (!is_taken) rte_pktmbuf_free(each.frame);
  }
}

// Frames, queue pairs and lanes may be destroyed with the context; a running copy uses none of
// them.
void Worker::RemoveCopies(std::shared_ptr<AppCopies> copies) {
  std::erase(collecting_, copies.get());
  std::erase(refused_, copies.get());
  for (const AppCopies::Parked& each : copies->TakeParked(shard_)) {
    if (each.qp != nullptr) each.qp->host(shard_).copy_state().Unpark();
    rte_pktmbuf_free(each.frame);
  }
  // A queue pair of an XRC domain outlives the program whose receive WQE it used.
  copies->Abandon(shard_, [this](QueuePair& qp) { AwaitTurn(qp); });
  if (!copies->IsRunning(shard_)) {
    copies->gathers(shard_).ReleaseLanes(shard_);
    return;
  }
  if (copies->IsDone() && copies->IsGone()) {
    std::erase(detached_, copies.get());
    return;
  }
  if (!copies->IsDetached()) copies->Detach(shard_);
  orphans_.push_back(std::move(copies));
}

}  // namespace roci::dataplane
