// The sending part of the loop: queue pairs take new work and build frames.
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device.h"
#include "dataplane/shard/worker.h"
#include "memory/copy.h"
#include "roce/frame.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kMinFrameBytes = RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN;
constexpr uint32_t kFrameHeaderBytes = RTE_ETHER_HDR_LEN + sizeof(rte_vlan_hdr);
// Prefetch distances in the list of active queue pairs: for a queue pair's own lines, then for the
// lines that these point to.
constexpr uint32_t kPrefetchStateAhead = 6;
constexpr uint32_t kPrefetchWorkAhead = 3;

bool IsReliable(roce::QpType type) {
  return type != roce::QpType::kUd && type != roce::QpType::kUc && type != roce::QpType::kRawPacket;
}

}  // namespace

uint32_t Worker::VisitActive() {
  uint32_t work = 0;
  const uint32_t visits = std::min(active_.size(), kVisitsPerRound);
  for (uint32_t i = 0; i < visits && sent_this_round_ < kPacketsPerRound; ++i) {
    PrefetchAhead();
    QueuePair* qp = active_.Pop();
    if (qp == nullptr) continue;
    if (qp->host.MayNotRun()) [[unlikely]] {
      qp->host.AwaitCopies();
      continue;
    }
    const uint32_t done = Visit(*qp);
    work += done;
    if (done != 0) qp->last_work_ns = now_;
    if (qp->core.HasTransmit()) {
      active_.Push(*qp);
    } else if (qp->polled) {
      if (now_ - qp->last_work_ns < kLingerNs) {
        active_.Push(*qp);
      } else {
        Unpoll(*qp);
      }
    }
    Settle(*qp);
  }
  if (unpolled_count_ != 0) FinishUnpolling();
  return work;
}

// With thousands of queue pairs, their lines are not in the cache.
void Worker::PrefetchAhead() {
  if (const QueuePair* far = active_.Peek(kPrefetchStateAhead)) far->Prefetch();
  if (const QueuePair* near = active_.Peek(kPrefetchWorkAhead)) near->PrefetchWork();
}

uint32_t Worker::Visit(QueuePair& qp) {
  const uint32_t taken = qp.host.queues.send.taken();
  if (qp.host.queues.send.HasPosted() || (qp.watches_receives && qp.host.queues.recv.HasPosted())) {
    qp.core.HandleWork(qp.host, now_);
  }
  uint32_t work = 0;
  if (qp.core.HasTransmit()) work = Transmit(qp);
  return work + (qp.host.queues.send.taken() - taken);
}

uint32_t Worker::Transmit(QueuePair& qp) {
  DeviceLane& lane = DeviceLane::Of(qp.lane());
  uint32_t sent = 0;
  if (qp.core.NeedsRecords()) qp.core.LendRecords(records_.Borrow(qp.record_class));
  while (sent < kPacketBudget) {
    // PollTransmit must not be undone, so room for the packet is ensured before.
    if (!HasRoom(lane) || !qp.host.HasRoomToGather()) [[unlikely]]
      break;
    if (!stash_.Ensure()) [[unlikely]] {
      lane.counters.no_frame_buffer.Add(1);
      break;
    }
    payload_.Clear();
    if (!qp.core.PollTransmit(qp.host, now_, tx_, payload_)) break;
    Emit(qp, lane);
    ++sent;
    // The next PollTransmit of an unreliable queue pair completes the sent packet; that of an XRC
    // queue pair may use another program's memory.
    if (qp.host.IsHeld() && (!IsReliable(qp.type()) || qp.host.is_of_domain())) break;
  }
  qp.tx_packets += sent;
  lane.counters.tx_roce_packets.Add(sent);
  stats_.tx_packets.Add(sent);
  sent_this_round_ += sent;
  return sent;
}

bool Worker::HasRoom(DeviceLane& lane) {
  if (!lane.IsFull()) [[likely]]
    return true;
  return lane.FlushStage();
}

void Worker::Emit(QueuePair& qp, DeviceLane& lane) {
  const roce::FrameTemplate* frame = &qp.frame;
  if (qp.type() == roce::QpType::kUd && tx_.opcode != roce::Opcode::kCnp) {
    frame = qp.host.context().addresses().Find(tx_.address_handle, qp.pd());
  }
  rte_mbuf* buffer = stash_.Top();
  std::byte* out = static_cast<std::byte*>(buffer->buf_addr) + kFrameOffset;
  const bool is_raw = qp.type() == roce::QpType::kRawPacket;
  uint32_t bytes = 0;
  gathers_later_ = false;
  if (is_raw) [[unlikely]] {
    bytes = EncodeRaw(qp, out);
  } else if (frame != nullptr) [[likely]] {
    bytes = Encode(qp, *frame, out);
  }
  if (bytes == 0) [[unlikely]] {
    stats_.memory_faults.Add(1);
    // An address handle that is destroyed or of another PD is no protection error (IBTA vol 1,
    // 11.6.2).
    qp.core.HandleTransmitFault(qp.host, now_, tx_,
                                frame == nullptr ? roce::CompletionStatus::kLocalQpOperationError
                                                 : roce::CompletionStatus::kLocalProtectionError);
    return;
  }
  const uint32_t made = bytes;
  if (bytes < kMinFrameBytes) [[unlikely]] {
    std::memset(out + bytes, 0, kMinFrameBytes - bytes);
    bytes = kMinFrameBytes;
  }
  stash_.Pop();
  buffer->data_off = kFrameOffset;
  buffer->data_len = static_cast<uint16_t>(bytes);
  buffer->pkt_len = bytes;
  buffer->ol_flags = 0;
  if (gathers_later_) [[unlikely]] {
    lane.Reserve();
    return;
  }
  if (qp.host.IsHeld()) [[unlikely]] {
    // Queued behind the frames that wait for their payload.
    lane.Reserve();
    qp.host.copying.held_in->gathers.Hold(FrameOf(qp, buffer, nullptr));
    return;
  }
  if (is_raw && tx_.fill_checksums) [[unlikely]]
    lane.FillChecksums(*buffer, made);
  lane.Stage(buffer, ReceiverOf(qp));
}

uint32_t Worker::ReceiverOf(const QueuePair& qp) const {
  return qp.type() == roce::QpType::kRawPacket
             ? uint32_t{Wire::kRawPacket}
             : QpnSpace::LcoreOf(tx_.dest_qpn, DeviceLane::Of(qp.lane()).lcore_bits);
}

GatherBatch::Frame Worker::FrameOf(QueuePair& qp, rte_mbuf* buffer, std::byte* bytes) const {
  return {.qp = &qp,
          .buffer = buffer,
          .bytes = bytes,
          .shape = {},
          .packet = tx_,
          .lane = &qp.lane(),
          .to_lcore = ReceiverOf(qp)};
}

// Returns the length of the frame in bytes; 0: the payload could not be read.
uint32_t Worker::Encode(QueuePair& qp, const roce::FrameTemplate& frame, std::byte* out) {
  if (tx_.payload_length == 0) {
    if (tx_.opcode == roce::Opcode::kCnp) [[unlikely]]
      return EncodeCnp(DeviceLane::Of(qp.lane()), frame, out);
    return roce::EncodeFrame(frame, tx_, static_cast<const std::byte*>(nullptr), 0, out);
  }
  if (payload_.size() == 1 && payload_[0].direct != nullptr) [[likely]] {
    const uint32_t bytes = roce::EncodeFrame(frame, tx_, payload_[0].direct, 0, out);
    return payload_.Intact() ? bytes : 0;
  }
  return payload_.AllDirect() ? EncodePieces(frame, out) : EncodeLater(qp, frame, out);
}

uint32_t Worker::EncodeCnp(const DeviceLane& lane, const roce::FrameTemplate& frame,
                           std::byte* out) {
  const roce::CongestionParameters& parameters = lane.congestion->parameters;
  const roce::FrameTemplate own =
      frame.ForNotifications(parameters.cnp_dscp, parameters.cnp_priority);
  return roce::EncodeFrame(own, tx_, static_cast<const std::byte*>(nullptr), 0, out);
}

// Copies a raw frame, which the program has built.
uint32_t Worker::EncodeRaw(QueuePair& qp, std::byte* out) {
  static_assert(kMaxWireMtu + kFrameHeaderBytes + kFrameOffset <= kFrameBufferBytes);
  const memory::MemoryStatus status =
      payload_.AllDirect() ? memory::CopyOut(payload_, {out, tx_.payload_length})
                           : GatherLater(qp, FrameOf(qp, stash_.Top(), nullptr), out);
  return status == memory::MemoryStatus::kOk ? tx_.payload_length : 0;
}

uint32_t Worker::EncodePieces(const roce::FrameTemplate& frame, std::byte* out) {
  std::array<roce::PayloadPart, memory::SegmentList::kCapacity> parts;
  for (uint32_t i = 0; i < payload_.size(); ++i) {
    parts[i] = {payload_[i].direct, payload_[i].length};
  }
  const uint32_t bytes = roce::EncodeFrame(
      frame, tx_, std::span<const roce::PayloadPart>(parts.data(), payload_.size()), 0, out);
  return payload_.Intact() ? bytes : 0;
}

// For memory of another process that is not mapped: the payloads of a round are copied together.
uint32_t Worker::EncodeLater(QueuePair& qp, const roce::FrameTemplate& frame, std::byte* out) {
  GatherBatch::Frame later = FrameOf(qp, stash_.Top(), out);
  later.shape = roce::ShapeOf(frame, tx_);
  std::byte* to = roce::StartFrame(frame, tx_, 0, out);
  return GatherLater(qp, later, to) == memory::MemoryStatus::kOk ? roce::FrameBytes(frame, tx_) : 0;
}

memory::MemoryStatus Worker::GatherLater(QueuePair& qp, const GatherBatch::Frame& frame,
                                         std::byte* to) {
  AppCopies& copies = qp.host.copies();
  // An XRC queue pair may use another program's memory now.
  if (copies.IsRunning()) [[unlikely]]
    return memory::MemoryStatus::kFault;
  const memory::MemoryStatus status = copies.gathers.Add(frame, to, payload_);
  if (status != memory::MemoryStatus::kOk) return status;
  copies.Hold(qp);
  gathers_later_ = true;
  return status;
}

// Called after every call into the core: handles broken queues, the timer and changes of state.
uint32_t Worker::FindPosted(const OnShard&, const VerbsContext& context, uint32_t handle,
                            uint32_t end) {
  end = std::min({end, context.handle_end(), handle + kWalkedPerRound});
  for (; handle < end; ++handle) {
    QueuePair* qp = context.FindQueuePair(handle);
    if (qp != nullptr && (qp->host.queues.send.HasPosted() || qp->core.HasTransmit())) break;
  }
  return handle;
}

bool Worker::SendPosted(const OnShard&, const VerbsContext& context, uint32_t handle) {
  QueuePair* qp = context.FindQueuePair(handle);
  if (qp == nullptr) return false;
  if (qp->host.MayNotRun()) return !qp->host.copies().IsStalled();
  const uint32_t done = Visit(*qp);
  Settle(*qp);
  return done != 0;
}

void Worker::Settle(QueuePair& qp) {
  if (qp.HasFailed()) [[unlikely]]
    qp.Fail(shard_, now_);
  if (qp.core.HasIdleRecords()) records_.Return(qp.record_class, qp.core.TakeRecordsBack());
  NoteState(qp);
  SetTimer(qp);
}

// In ERR, new receives of the app are flushed, so the receive queue is armed.
void Worker::NoteState(QueuePair& qp) {
  const bool in_error = qp.core.state() == roce::QpState::kErr;
  if (in_error == qp.watches_receives) [[likely]]
    return;
  qp.watches_receives = in_error;
  qp.host.queues.recv.SetArmed(in_error);
  if (!in_error) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  active_.Push(qp);
}

void Worker::SetTimer(QueuePair& qp) {
  const roce::TimeNs next = qp.core.NextTimeout();
  // A timer that is set too early stays, and is set again when it expires.
  if (next < qp.timer.expiry_ns) wheel_.Set(qp.timer, next);
}

void Worker::Unpoll(QueuePair& qp) {
  qp.polled = false;
  qp.host.queues.send.SetArmed(true);
  unpolled_[unpolled_count_++] = &qp;
}

// The app stores its index before it reads `armed`; this reads the index after it has stored
// `armed`. So at least one of both sees the other.
void Worker::FinishUnpolling() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (uint32_t i = 0; i < unpolled_count_; ++i) {
    if (unpolled_[i]->host.queues.send.HasNew()) active_.Push(*unpolled_[i]);
  }
  unpolled_count_ = 0;
}

}  // namespace roci::dataplane
