// Definitions of Requester: sending. Included by qp_inl.h only.
#pragma once

#include <bit>
#include <cassert>
#include <cstring>

#include "roce/headers.h"
#include "roce/requester.h"

namespace roci::roce {

// Most binds and local invalidates per call.
inline constexpr uint32_t kLocalBudget = 16;

// Bytes that a rate limit counts: a frame without FCS, with an IPv4 header.
inline uint32_t BytesOnWire(QpType type, const TxPacket& packet) {
  if (type == QpType::kRawPacket) return packet.payload_length;
  constexpr uint32_t kNetwork = EthernetHeader::kBytes + Ipv4Header::kBytes + UdpHeader::kBytes;
  return kNetwork + InfoOf(packet.opcode).header_bytes + packet.payload_length +
         (-packet.payload_length & 3) + kIcrcBytes;
}

template <class Host>
Requester<Host>::Requester(QpContext& context, std::span<SendRecord> records)
    : context_(context),
      records_(records.data()),
      mask_(static_cast<uint32_t>(records.size()) - 1) {
  assert(std::has_single_bit(records.size()));
}

template <class Host>
Requester<Host>::Requester(QpContext& context, uint32_t record_count)
    : context_(context), mask_(record_count - 1) {
  assert(std::has_single_bit(record_count));
}

template <class Host>
void Requester<Host>::Reset() {
  Start(Psn());
  more_work_ = false;
}

template <class Host>
void Requester<Host>::Start(Psn sq_psn) {
  head_ = cursor_ = tail_ = 0;
  una_ = send_psn_ = sent_end_ = next_psn_ = sq_psn;
  rd_atomic_outstanding_ = 0;
  durable_outstanding_ = 0;
  since_ack_request_ = 0;
  retries_left_ = context_.attributes.retry_count;
  rnr_retries_left_ = context_.attributes.rnr_retry;
  rnr_waiting_ = false;
  recovering_ = false;
  repeating_ = false;
  timer_shift_ = 0;
  SetWindow(context_.config.limits.window_packets);
  widening_ = 0;
  receives_started_ = receives_done_ = receive_limit_ = messages_done_ = 0;
  obeys_credits_ = held_back_ = credit_waiting_ = probing_ = false;
  expects_updates_ = true;
  deadline_ = kNever;
  pacer_.StopWaiting();
  ForgetKept();
  if (context_.reorder != nullptr) {
    context_.reorder->narrowed_until = sq_psn;
    context_.reorder->responder = AskedPeer();
  }
  more_work_ = true;
}

template <class Host>
bool Requester<Host>::CanTransmit() const {
  const QpState state = context_.state();
  if (state != QpState::kRts && state != QpState::kSqd) return false;
  if (!context_.IsReliable() && head_ != cursor_) return true;  // completions are due
  if (rnr_waiting_ || pacer_.waiting() || !WindowOpen() || AwaitsProbe()) return false;
  if (cursor_ == tail_) return state == QpState::kRts && more_work_ && tail_ - head_ <= mask_;
  const SendRecord& record = At(cursor_);
  // Poll() notes that a request is held back.
  return !record.failed && MayStart(record) && (!held_back_ || HasCredit(record));
}

// Whether the first packet of `record` may be sent now. SQD finishes started requests and starts
// none (IBTA vol 1, 10.3.1.5); a fence waits for all earlier READs and atomics (10.8.3.3).
template <class Host>
bool Requester<Host>::MayStart(const SendRecord& record) const {
  if (record.started) return true;
  if (context_.state() == QpState::kSqd) return false;
  if (record.wqe.fence && rd_atomic_outstanding_ != 0) return false;
  // A local invalidate waits for all earlier requests (the local invalidate fence, 10.6.5.1).
  if (record.wqe.opcode == WorkOpcode::kLocalInvalidate) return &record == &At(head_);
  if (!IsAnswered(InfoOf(record.wqe.opcode).work_class)) return true;
  if (rd_atomic_outstanding_ >= context_.attributes.max_rd_atomic) return false;
  if (durable_outstanding_ != 0 && FollowsDurableFlush(record.wqe)) [[unlikely]] {
    return false;
  }
  // A responder can distinguish new requests from duplicates in half of the PSN space only.
  return InFlight() == 0 || InFlight() + record.packets <= kMaxPsnsInFlight;
}

template <class Host>
bool Requester<Host>::Poll(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if (!context_.IsReliable() && head_ != cursor_) ReportSent(host);
  for (uint32_t budget = kLocalBudget; budget != 0 && CanTransmit(); --budget) {
    if (cursor_ == tail_ && !FetchNext(host)) return false;
    SendRecord& record = At(cursor_);
    if (record.failed || !MayStart(record)) [[unlikely]] {
      return false;
    }
    if (!HasCredit(record)) [[unlikely]] {
      HoldBack(host, now);
      continue;
    }
    if (record.packets != 0) [[likely]] {
      if (pacer_.limited() && !pacer_.MayGo(now)) [[unlikely]] {
        return false;
      }
      return BuildPacket(host, now, record, out, payload);
    }
    if (!PassLocal(host, record)) return false;
  }
  return false;
}

// The peer has no receive for the next request. The answers to the requests in flight bring
// credits.
template <class Host>
void Requester<Host>::HoldBack(Host& host, TimeNs now) {
  held_back_ = true;
  host.Count(QpCounter::kCreditWaits);
  if (IsDrained()) AwaitCredit(now);
}

// Nothing is in flight, so only an unsolicited ACK can bring credits. The IBTA allows one packet
// without a credit (9.7.7.2). It is sent at once if the peer sends no such ACKs, else after a
// while, since the ACK may be lost.
template <class Host>
void Requester<Host>::AwaitCredit(TimeNs now) {
  if (!expects_updates_) return StartProbe();
  credit_waiting_ = true;
  deadline_ = now + std::min(AckTimeoutNs(context_.attributes.timeout), kLongestCreditWaitNs);
}

template <class Host>
void Requester<Host>::StartProbe() {
  StopHolding();
  probing_ = true;
  receive_limit_ = receives_started_ + 1;
}

template <class Host>
void Requester<Host>::StopHolding() {
  held_back_ = false;
  if (!credit_waiting_) return;
  credit_waiting_ = false;
  deadline_ = kNever;
}

template <class Host>
memory::MemoryStatus Requester<Host>::ExecuteLocal(Host& host, const SendWqe& wqe) {
  switch (wqe.opcode) {
    case WorkOpcode::kBindMw:
      return host.BindWindow(wqe);
    case WorkOpcode::kRegisterList:
      return host.RegisterList(wqe);
    default:
      return host.Invalidate(Key(wqe.invalidate_key));
  }
}

// A bind, registration or local invalidate: executed once, in queue order, before any later request
// starts; it completes in order (IBTA vol 1, 10.8.3.3). False: it failed, or it took long and other
// queue pairs get their turn.
template <class Host>
bool Requester<Host>::PassLocal(Host& host, SendRecord& record) {
  bool was_short = true;
  if (!record.started) {
    const memory::MemoryStatus status = ExecuteLocal(host, record.wqe);
    if (status != memory::MemoryStatus::kOk) {
      FailRecord(host, cursor_, CompletionStatus::kMwBindError);
      return false;
    }
    record.started = true;
    // The cost of a registration grows with the number of runs in its list.
    was_short = record.wqe.opcode != WorkOpcode::kRegisterList;
  }
  ++cursor_;
  if (context_.IsReliable()) CompleteLocals(host);
  return was_short;
}

// Completes executed local operations that have no unanswered request before them.
template <class Host>
void Requester<Host>::CompleteLocals(Host& host) {
  while (head_ != tail_) {
    const SendRecord& record = At(head_);
    if (record.packets != 0 || !record.started || record.failed) [[likely]] {
      return;
    }
    if (cursor_ == head_) ++cursor_;
    CompleteHead(host, CompletionStatus::kSuccess);
  }
}

// Fetches one work request into the ring. False: the queue is empty.
template <class Host>
bool Requester<Host>::FetchNext(Host& host) {
  assert(records_ != nullptr);
  // An empty ring restarts at index 0: a queue pair touches only as many records as it ever has in
  // flight.
  if (head_ == tail_) head_ = cursor_ = tail_ = 0;
  SendRecord& record = At(tail_);
  CompletionStatus status = CompletionStatus::kLocalQpOperationError;
  const FetchResult result = host.FetchSend(record.wqe, status);
  if (result == FetchResult::kEmpty) {
    more_work_ = false;
    return false;
  }
  assert(static_cast<size_t>(record.wqe.opcode) < kWorkOpcodeCount);
  if (result == FetchResult::kOk) [[likely]] {
    status =
        CheckSendWqe(record.wqe, context_.config.type, context_.mtu_bytes(),
                     context_.config.limits.max_message_bytes, context_.attributes.max_rd_atomic);
  }
  record.first_psn = next_psn_;
  record.packets = 0;
  record.received = 0;
  record.started = false;
  record.failed = false;
  ++tail_;
  if (result == FetchResult::kBad || status != CompletionStatus::kSuccess) [[unlikely]] {
    FailRecord(host, tail_ - 1, status);
    return false;
  }
  const WorkClass work_class = InfoOf(record.wqe.opcode).work_class;
  if (context_.config.type == QpType::kRawPacket) [[unlikely]] {
    record.packets = 1;
  } else if (work_class == WorkClass::kSegmented || work_class == WorkClass::kRead) [[likely]] {
    record.packets = PacketsOf(record.wqe.length, context_.mtu_shift);
  } else {
    record.packets = work_class == WorkClass::kLocal ? 0 : 1;
  }
  next_psn_ += record.packets;
  return true;
}

template <class Host>
bool Requester<Host>::BuildPacket(Host& host, TimeNs now, SendRecord& record, TxPacket& out,
                                  memory::SegmentList& payload) {
  const WorkInfo& info = InfoOf(record.wqe.opcode);
  out.solicited = false;
  out.ack_request = true;
  out.fecn = false;
  out.becn = false;
  out.psn = send_psn_;
  out.dest_qpn = context_.attributes.dest_qpn;
  out.payload_length = 0;
  uint32_t psns = 1;
  if (context_.config.type == QpType::kRawPacket) [[unlikely]] {
    if (!BuildFrame(host, record, out, payload)) return false;
  } else if (info.work_class == WorkClass::kSegmented ||
             record.wqe.opcode == WorkOpcode::kAtomicWrite) [[likely]] {
    if (!BuildSegmented(host, info, record, out, payload)) [[unlikely]] {
      return false;
    }
  } else if (info.work_class == WorkClass::kRead) {
    psns = BuildRead(info, record, out);
  } else if (record.wqe.opcode == WorkOpcode::kFlush) {
    BuildFlush(info, record, out);
  } else {
    BuildAtomic(info, record, out);
  }
  out.opcode = WithTransport(out.opcode, TransportOf(context_.config.type));
  out.ext.xrc.srq_number = record.wqe.remote_srq_number;
  if (pacer_.limited()) [[unlikely]] {
    pacer_.Charge(now, BytesOnWire(context_.config.type, out));
    // Request an ACK before a pause: the pause must not count as the peer's ACK timeout.
    if (context_.IsReliable() && pacer_.IsSpent(now)) out.ack_request = true;
  }
  NoteSent(host, now, record, psns);
  return true;
}

// A raw packet queue pair's request is one frame, sent as it is.
template <class Host>
bool Requester<Host>::BuildFrame(Host& host, SendRecord& record, TxPacket& out,
                                 memory::SegmentList& payload) {
  if (host.GatherSend(record.wqe, 0, record.wqe.length, payload) != memory::MemoryStatus::kOk) {
    FailRecord(host, cursor_, CompletionStatus::kLocalProtectionError);
    return false;
  }
  out.opcode = Opcode::kRcSendOnly;  // a placeholder that marks a request
  out.ack_request = false;
  out.payload_length = record.wqe.length;
  return true;
}

// One packet of a SEND or WRITE, or an ATOMIC WRITE (IBTA vol 1, 9.4.1, 9.4.3). Each retransmission
// reads the payload again. False: the data is not accessible, the request fails.
template <class Host>
bool Requester<Host>::BuildSegmented(Host& host, const WorkInfo& info, SendRecord& record,
                                     TxPacket& out, memory::SegmentList& payload) {
  const SendWqe& wqe = record.wqe;
  const uint32_t index = StepsForward(record.first_psn, send_psn_);
  assert(index < record.packets);
  const uint32_t offset = index << context_.mtu_shift;
  const uint32_t left = wqe.length - offset;
  const uint32_t bytes = left < context_.mtu_bytes() ? left : context_.mtu_bytes();
  if (bytes != 0 && host.GatherSend(wqe, offset, bytes, payload) != memory::MemoryStatus::kOk)
      [[unlikely]] {
    FailRecord(host, cursor_, CompletionStatus::kLocalProtectionError);
    return false;
  }
  out.payload_length = bytes;
  const Position position = PositionOf(index, record.packets);
  const bool is_last = position == Position::kLast || position == Position::kOnly;
  switch (position) {
    case Position::kFirst:
      out.opcode = info.first;
      break;
    case Position::kMiddle:
      out.opcode = info.middle;
      break;
    case Position::kLast:
      out.opcode = info.last;
      break;
    case Position::kOnly:
      out.opcode = info.only;
      break;
  }
  if (info.has_reth && index == 0) out.ext.reth = Reth{wqe.remote_va, wqe.rkey, wqe.length};
  if (is_last) {
    // The solicited event bit is valid only if a receive completes (9.2.3).
    out.solicited = wqe.solicited && (!info.has_reth || info.has_immediate);
    if (info.has_immediate) out.ext.imm.value = SwapNetworkOrder(wqe.immediate);
    if (info.has_invalidate) out.ext.ieth.rkey = Key(wqe.invalidate_key);
  }
  if (context_.config.type == QpType::kUd) {
    const DatagramWork& to = wqe.datagram;
    out.dest_qpn = Qpn(to.remote_qpn);
    const bool use_own = IsControlledQkey(to.remote_qkey);
    out.ext.deth = Deth{use_own ? context_.attributes.qkey : to.remote_qkey, context_.config.qpn};
  }
  out.ack_request = context_.IsReliable() && WantsAck(is_last);
  return true;
}

// An ACK is requested by the last packet of a message, by every `ack_every_`-th packet of a long
// one, and by the packet that closes the window.
template <class Host>
bool Requester<Host>::WantsAck(bool is_last) {
  ++since_ack_request_;
  if (!is_last && since_ack_request_ < ack_every_ && !probing_ && InFlight() + 1 < window_) {
    return false;
  }
  since_ack_request_ = 0;
  return true;
}

// The whole READ, or its rest after a loss (IBTA vol 1, 9.7.3 and 9.7.5), or with selective repeat
// the part that is missing. Returns its number of PSNs.
template <class Host>
uint32_t Requester<Host>::BuildRead(const WorkInfo& info, const SendRecord& record, TxPacket& out) {
  const uint32_t index = StepsForward(record.first_psn, send_psn_);
  assert(index < record.packets);
  const uint32_t offset = index << context_.mtu_shift;
  out.opcode = info.only;
  out.ext.reth = Reth{record.wqe.remote_va + offset, record.wqe.rkey, record.wqe.length - offset};
  const uint32_t left = record.packets - index;
  if (!repeating_) [[likely]]
    return left;
  const uint32_t part = PartToReread();
  if (part >= left) return left;
  out.ext.reth.length = part << context_.mtu_shift;
  return part;
}

// IBTA vol 1, A19.4.3.
template <class Host>
void Requester<Host>::BuildFlush(const WorkInfo& info, const SendRecord& record, TxPacket& out) {
  const SendWqe& wqe = record.wqe;
  out.opcode = info.only;
  out.ext.feth = Feth{wqe.flush.placement_type, wqe.flush.selectivity_level};
  out.ext.reth = Reth{wqe.remote_va, wqe.rkey, wqe.length};
}

template <class Host>
void Requester<Host>::BuildAtomic(const WorkInfo& info, const SendRecord& record, TxPacket& out) {
  const SendWqe& wqe = record.wqe;
  const bool is_swap = wqe.opcode == WorkOpcode::kCompareSwap;
  out.opcode = info.only;
  out.ext.atomic =
      AtomicEth{wqe.remote_va, wqe.rkey, is_swap ? wqe.atomic.swap : wqe.atomic.compare_add,
                is_swap ? wqe.atomic.compare_add : 0};
}

template <class Host>
void Requester<Host>::NoteSent(Host& host, TimeNs now, SendRecord& record, uint32_t psns) {
  const bool is_new = send_psn_ == sent_end_;
  if (is_new) [[likely]] {
    sent_end_ += psns;
  } else {
    host.Count(QpCounter::kRetransmittedPackets);
    const uint32_t ahead = StepsForward(send_psn_, sent_end_);
    if (ahead < psns) sent_end_ += psns - ahead;
  }
  send_psn_ += psns;
  if (!record.started) {
    record.started = true;
    receives_started_ += ReceivesOf(record.wqe.opcode);
    const WorkClass work_class = InfoOf(record.wqe.opcode).work_class;
    if (work_class != WorkClass::kSegmented) {
      ++rd_atomic_outstanding_;
      durable_outstanding_ += IsDurableFlush(record.wqe);
    }
  }
  const bool is_complete = send_psn_ == record.first_psn + record.packets;
  if (is_complete) ++cursor_;
  if (context_.IsReliable()) [[likely]] {
    if (deadline_ == kNever) ArmTimer(now);
    if (!is_new && repeating_) [[unlikely]]
      SeekRepeat();
    return;
  }
  // No answer comes: the request is complete once sent. The next Poll reports it, when it is known
  // that the payload could be read.
  una_ = send_psn_;
}

template <class Host>
Polled Requester<Host>::LastSent() const {
  Polled polled{.kind = Polled::Kind::kPacket, .has_more = true};
  if (context_.IsReliable()) return polled;
  polled.completes_once_sent = true;
  // Requests of these types have one packet each, which is sent.
  const SendWqe& wqe = At(cursor_ - 1).wqe;
  if (context_.config.type == QpType::kUd) {
    polled.kind = Polled::Kind::kDatagram;
    polled.address_handle = wqe.datagram.address_handle;
  } else if (context_.config.type == QpType::kRawPacket) {
    polled.kind = Polled::Kind::kFrame;
    polled.fill_checksums = wqe.fill_checksums;
  }
  return polled;
}

template <class Host>
void Requester<Host>::ReportSent(Host& host) {
  while (head_ != cursor_ && !At(head_).failed) CompleteHead(host, CompletionStatus::kSuccess);
  if (head_ != tail_ && At(head_).failed) FailHead(host, At(head_).local_status);
}

}  // namespace roci::roce
