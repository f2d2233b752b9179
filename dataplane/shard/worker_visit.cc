// The sending part of the loop: queue pairs take new work and build frames.
#include <rte_mbuf.h>

#include <optional>

#include "dataplane/base/limits.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"
#include "memory/copy.h"
#include "roce/frame.h"

namespace roci::dataplane {
namespace {

// Prefetch distances in the list of active queue pairs: for a queue pair's own lines, then for the
// lines that these point to.
constexpr uint32_t kPrefetchStateAhead = 5;
constexpr uint32_t kPrefetchWorkAhead = 2;

// The identification of a packet's IPv4 header: the low 16 bits of the PSN. Packets of a message
// then have consecutive ones, like the segments that the kernel makes of a GSO frame
// (port/udp_gso.h). As DF is set, it need not be unique (RFC 6864).
uint16_t IpIdOf(const roce::TxPacket& packet) { return static_cast<uint16_t>(packet.psn.value()); }

}  // namespace

uint32_t Worker::VisitActive() {
  uint32_t work = 0;
  const uint32_t visits = std::min(scheduler_.size(), kVisitsPerRound);
  const auto has_budget = [this] {
    return sent_this_round_ < kPacketsPerRound && bytes_this_round_ < kBytesPerRound;
  };
  // At least one, even if queue pairs that got ACKs in this round have used the budget up.
  for (uint32_t i = 0; i < visits && (i == 0 || has_budget()); ++i) {
    QueuePair* qp = scheduler_.Begin();
    if (qp == nullptr) continue;
    PrefetchAhead();
    work += TakeTurn(*qp);
  }
  if (rearmed_count_ != 0) FinishRearming();
  return work;
}

// Returns the amount of work done.
uint32_t Worker::TakeTurn(QueuePair& qp) {
  if (qp.host(shard_).MayNotRun()) [[unlikely]] {
    SendScheduler::Postpone(qp);
    qp.host(shard_).AwaitCopies();
    scheduler_.End(0);
    return 0;
  }
  const uint32_t budget = scheduler_.Budget(qp);
  const Progress made = Visit(qp, budget);
  SendScheduler::NoteSent(qp, made.bytes, budget);
  if (made.work != 0) qp.NoteWork(shard_, now_);
  if (made.has_more) {
    AwaitTurn(qp);
  } else if (qp.is_polled(shard_)) {
    if (!qp.IsQuiet(shard_, now_)) {
      scheduler_.PushPolled(ShareOf(qp), qp);
    } else {
      Rearm(qp);
    }
  }
  ApplyEffects(qp);
  scheduler_.End(std::max(made.bytes, SendScheduler::kPacketBytes));
  return made.work;
}

// XRC receive queue pairs have no context: they answer programs of several users.
TurnShare& Worker::ShareOf(QueuePair& qp) {
  if (!scheduler_.by_user()) [[likely]]
    return scheduler_.common();
  const QueuePairHost& host = qp.host(shard_);
  return host.is_of_domain() ? scheduler_.common() : host.context().turn_share(shard_);
}

// With thousands of queue pairs, their lines are not in the cache.
void Worker::PrefetchAhead() {
  if (const QueuePair* far = scheduler_.Peek(kPrefetchStateAhead)) far->Prefetch(shard_);
  if (const QueuePair* near = scheduler_.Peek(kPrefetchWorkAhead)) near->PrefetchWork(shard_);
}

Worker::Progress Worker::Visit(QueuePair& qp, uint32_t budget) {
  const SendQueue& sends = qp.host(shard_).send_queue();
  const uint32_t taken = sends.taken();
  const bool has_transmit =
      qp.HasNewWork(shard_) ? qp.HandleWork(shard_).has_transmit : qp.core(shard_).HasTransmit();
  Progress made{};
  if (has_transmit) made = Transmit(qp, budget);
  made.work += sends.taken() - taken;
  return made;
}

// `qp` has packets to send.
Worker::Progress Worker::Transmit(QueuePair& qp, uint32_t budget) {
  return TransmitWhile(qp, [budget](uint32_t bytes) { return bytes < budget; });
}

// Sends ACKs, NAKs and atomic responses, for which the peer waits.
void Worker::TransmitAnswers(QueuePair& qp) {
  TransmitWhile(qp, [this, &qp](uint32_t) { return qp.core(shard_).HasAnswer(); });
}

template <class MayContinue>
[[gnu::always_inline]] inline Worker::Progress Worker::TransmitWhile(QueuePair& qp,
                                                                     MayContinue&& may_continue) {
  MemoryUse use(*this, qp.host(shard_).current_copies());
  DeviceLane& lane = DeviceLane::Of(qp.lane());
  uint32_t sent = 0, bytes = 0;
  bool has_more = true;
  if (qp.core(shard_).NeedsRecords())
    qp.LendRecords(shard_, records_.Borrow(qp.record_class(shard_)));
  while (may_continue(bytes)) {
    // PollTransmit must not be undone, so room for the packet is ensured before.
    if (lane.IsFull(shard_)) [[unlikely]] {
      use.Switch(nullptr);  // a driver may sleep
      if (!lane.FlushStage(shard_)) break;
      use.Switch(qp.host(shard_).current_copies());
    }
    if (qp.host(shard_).is_of_domain() && !SelectAnswerProgram(qp)) [[unlikely]] {
      has_more = false;  // SettleCopies visits it
      break;
    }
    if (!qp.host(shard_).HasRoomToGather()) [[unlikely]]
      break;
    if (!stash_.Ensure()) [[unlikely]] {
      lane.counters.no_frame_buffer.Add(1);
      break;
    }
    const roce::Polled polled = qp.PollTransmit(shard_, now_, tx_, payload_);
    if (!polled) {
      has_more = polled.has_more;
      break;
    }
    bytes += std::max(tx_.payload_length, SendScheduler::kPacketBytes);
    if (qp.host(shard_).is_of_domain()) [[unlikely]]
      use.Switch(qp.host(shard_).current_copies());
    Emit(qp, lane, polled);
    ++sent;
    // The next packet of an XRC queue pair may use another program's memory.
    if (qp.host(shard_).IsHeld() && (polled.completes_once_sent || qp.host(shard_).is_of_domain()))
      break;
  }
  qp.CountSent(shard_, sent);
  lane.counters.tx_roce_packets.Add(sent);
  stats_.tx_packets.Add(sent);
  sent_this_round_ += sent;
  bytes_this_round_ += bytes;
  return {sent, bytes, has_more};
}

// XRC: data of the next READ response may be another program's than that of the last request.
// False: it must wait for that program's copies.
bool Worker::SelectAnswerProgram(QueuePair& qp) {
  QueuePairHost& host = qp.host(shard_);
  const std::optional<uint32_t> queue = qp.core(shard_).AnswerQueue();
  if (!queue || !host.SelectReceiveQueue(*queue) || !host.MayNotRun()) return true;
  host.AwaitCopies();
  return false;
}

void Worker::Emit(QueuePair& qp, DeviceLane& lane, roce::Polled polled) {
  rte_mbuf* buffer = stash_.Top();
  std::byte* out = static_cast<std::byte*>(buffer->buf_addr) + kFrameOffset;
  const Encoded made = Encode(qp, polled, out);
  uint32_t bytes = made.bytes;
  if (bytes == 0) [[unlikely]]
    return FailTransmit(qp, made.result);
  if (bytes < roce::kMinFrameBytes) [[unlikely]] {
    std::memset(out + bytes, 0, roce::kMinFrameBytes - bytes);
    bytes = roce::kMinFrameBytes;
  }
  stash_.Pop();
  buffer->data_off = kFrameOffset;
  buffer->data_len = static_cast<uint16_t>(bytes);
  buffer->pkt_len = bytes;
  buffer->ol_flags = 0;
  buffer->hash.usr = qp.qpn().value();  // for the lane's tap
  if (made.result == Encoded::Result::kGathersLater) [[unlikely]] {
    lane.Reserve(shard_);
    return;
  }
  if (qp.host(shard_).IsHeld()) [[unlikely]] {
    // Queued behind the frames that wait for their payload.
    lane.Reserve(shard_);
    qp.host(shard_).copy_state().held_by()->gathers(shard_).Hold(
        FrameOf(qp, polled, buffer, nullptr));
    return;
  }
  if (polled.fill_checksums) [[unlikely]]
    lane.FillChecksums(shard_, *buffer, made.bytes);
  lane.Stage(shard_, buffer, ReceiverOf(qp, polled));
}

// The packet could not be built. An address handle that is destroyed or of another PD is no
// protection error (IBTA vol 1, 11.6.2).
void Worker::FailTransmit(QueuePair& qp, Encoded::Result result) {
  stats_.memory_faults.Add(1);
  const auto status = result == Encoded::Result::kNoPath
                          ? roce::CompletionStatus::kLocalQpOperationError
                          : roce::CompletionStatus::kLocalProtectionError;
  qp.HandleTransmitFault(shard_, now_, tx_, status);
}

uint32_t Worker::ReceiverOf(const QueuePair& qp, roce::Polled polled) const {
  return polled.kind == roce::Polled::Kind::kFrame
             ? uint32_t{Wire::kRawPacket}
             : QpnSpace::LcoreOf(tx_.dest_qpn, DeviceLane::Of(qp.lane()).lcore_bits);
}

GatherBatch::Frame Worker::FrameOf(QueuePair& qp, roce::Polled polled, rte_mbuf* buffer,
                                   std::byte* bytes) const {
  return {.qp = &qp,
          .buffer = buffer,
          .bytes = bytes,
          .shape = {},
          .packet = tx_,
          .lane = &qp.lane(),
          .to_lcore = ReceiverOf(qp, polled),
          .fill_checksums = polled.fill_checksums};
}

[[gnu::always_inline]] inline Worker::Encoded Worker::Encode(QueuePair& qp, roce::Polled polled,
                                                             std::byte* out) {
  using Kind = roce::Polled::Kind;
  const roce::FrameTemplate* frame = &qp.frame(shard_);
  if (polled.kind != Kind::kPacket) [[unlikely]] {
    if (polled.kind == Kind::kCnp) return Encoded::Ready(EncodeCnp(qp, out));
    if (polled.kind == Kind::kFrame) return EncodeRaw(qp, polled, out);
    frame = qp.host(shard_).context().addresses(shard_).Find(polled.address_handle, qp.pd());
    if (frame == nullptr) return {0, Encoded::Result::kNoPath};
  }
  const uint16_t ip_id = IpIdOf(tx_);
  if (tx_.payload_length == 0) {
    return Encoded::Ready(
        roce::EncodeFrame(*frame, tx_, static_cast<const std::byte*>(nullptr), ip_id, out));
  }
  if (payload_.size() == 1 && payload_[0].direct != nullptr) [[likely]] {
    const uint32_t bytes = roce::EncodeFrame(*frame, tx_, payload_[0].direct, ip_id, out);
    return payload_.Intact() ? Encoded::Ready(bytes) : Encoded::NoMemory();
  }
  return payload_.AllDirect() ? EncodePieces(*frame, out) : EncodeLater(qp, polled, *frame, out);
}

uint32_t Worker::EncodeCnp(const QueuePair& qp, std::byte* out) {
  const roce::CongestionParameters& parameters = qp.lane().congestion->parameters;
  const roce::FrameTemplate own =
      qp.frame(shard_).ForNotifications(parameters.cnp_dscp, parameters.cnp_priority);
  return roce::EncodeFrame(own, tx_, static_cast<const std::byte*>(nullptr), IpIdOf(tx_), out);
}

// Copies a raw frame, which the program has built.
Worker::Encoded Worker::EncodeRaw(QueuePair& qp, roce::Polled polled, std::byte* out) {
  static_assert(kMaxMtuBytes + roce::kMaxLinkHeaderBytes + kFrameOffset <= kFrameBufferBytes);
  const uint32_t bytes = tx_.payload_length;
  if (!payload_.AllDirect()) {
    return GatherLater(qp, FrameOf(qp, polled, stash_.Top(), nullptr), out, bytes);
  }
  return memory::CopyOut(payload_, {out, bytes}) == memory::MemoryStatus::kOk
             ? Encoded::Ready(bytes)
             : Encoded::NoMemory();
}

Worker::Encoded Worker::EncodePieces(const roce::FrameTemplate& frame, std::byte* out) {
  std::array<roce::PayloadPart, memory::SegmentList::kCapacity> parts;
  for (uint32_t i = 0; i < payload_.size(); ++i) {
    parts[i] = {payload_[i].direct, payload_[i].length};
  }
  const uint32_t bytes = roce::EncodeFrame(
      frame, tx_, std::span<const roce::PayloadPart>(parts.data(), payload_.size()), IpIdOf(tx_),
      out);
  return payload_.Intact() ? Encoded::Ready(bytes) : Encoded::NoMemory();
}

// For memory of another process that is not mapped: the payloads of a round are copied together.
Worker::Encoded Worker::EncodeLater(QueuePair& qp, roce::Polled polled,
                                    const roce::FrameTemplate& frame, std::byte* out) {
  GatherBatch::Frame later = FrameOf(qp, polled, stash_.Top(), out);
  later.shape = roce::ShapeOf(frame, tx_);
  std::byte* to = roce::StartFrame(frame, tx_, IpIdOf(tx_), out);
  return GatherLater(qp, later, to, roce::FrameBytes(frame, tx_));
}

// `bytes`: length of the frame.
Worker::Encoded Worker::GatherLater(QueuePair& qp, const GatherBatch::Frame& frame, std::byte* to,
                                    uint32_t bytes) {
  AppCopies& copies = qp.host(shard_).copies();
  // An XRC queue pair may use another program's memory now.
  if (copies.IsRunning(shard_)) [[unlikely]]
    return Encoded::NoMemory();
  if (copies.gathers(shard_).Add(frame, to, payload_) != memory::MemoryStatus::kOk) {
    return Encoded::NoMemory();
  }
  copies.Hold(shard_, qp);
  Enlist(copies);
  return {bytes, Encoded::Result::kGathersLater};
}

uint32_t Worker::FindPosted(const OnShard&, const VerbsContext& context, uint32_t handle,
                            uint32_t end) {
  end = std::min({end, context.handle_end(), handle + kWalkedPerRound});
  for (; handle < end; ++handle) {
    QueuePair* qp = context.FindQueuePair(shard_, handle);
    if (qp != nullptr && qp->HasPosted(shard_)) break;
  }
  return handle;
}

bool Worker::SendPosted(const OnShard&, const VerbsContext& context, uint32_t handle) {
  QueuePair* qp = context.FindQueuePair(shard_, handle);
  if (qp == nullptr || !qp->HasPosted(shard_)) return false;
  if (qp->host(shard_).MayNotRun()) return !qp->host(shard_).copies().IsStalled();
  const Progress made = Visit(*qp, SendScheduler::kTurnBytes);
  ApplyEffects(*qp);
  return made.work != 0 && qp->HasPosted(shard_);
}

// Called after every call into the core, or a burst of them.
void Worker::ApplyEffects(QueuePair& qp) {
  if (qp.HasFailed(shard_)) [[unlikely]]
    qp.Fail(shard_);
  if (qp.host(shard_).has_effects()) [[unlikely]]
    ApplyHostEffects(qp);
  const roce::QpUpkeep upkeep = qp.core(shard_).Upkeep();
  if (upkeep.has_idle_records) records_.Return(qp.record_class(shard_), qp.TakeRecordsBack(shard_));
  if (qp.has_early_frames(shard_) && !upkeep.awaits_kept) [[unlikely]]
    DropEarly(qp);
  if (qp.WatchReceives(shard_, upkeep.awaits_receives)) [[unlikely]] {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    AwaitTurn(qp);
  }
  SetTimer(qp, upkeep.next_timeout);
}

// A program that reads an event finds the completions that led to it.
void Worker::ApplyHostEffects(QueuePair& qp) {
  const HostEffects effects = qp.host(shard_).TakeEffects();
  stats_.memory_faults.Add(effects.memory_faults());
  if (effects.has_events()) {
    events_.Publish(shard_);
    stats_.async_events.Add(qp.SendEvents(shard_, effects));
  }
  if (effects.has_durable()) StartDurable(qp);
}

void Worker::SetTimer(QueuePair& qp, roce::TimeNs next) {
  // A timer that is set too early stays, and is set again when it expires.
  if (next < qp.timer(shard_).expiry_ns) wheel_.Set(qp.timer(shard_), next);
}

void Worker::Rearm(QueuePair& qp) {
  qp.ArmSends(shard_);
  rearmed_[rearmed_count_++] = &qp;
}

// The program stores its index before it reads `armed`; this reads the index after it has stored
// `armed`. So at least one of both sees the other.
void Worker::FinishRearming() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (uint32_t i = 0; i < rearmed_count_; ++i) {
    if (rearmed_[i]->host(shard_).send_queue().HasNew()) AwaitTurn(*rearmed_[i]);
  }
  rearmed_count_ = 0;
}

}  // namespace roci::dataplane
