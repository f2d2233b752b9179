// The request packets that a requester builds (IBTA vol 1, 9.4). Included by qp_inl.h only.
#pragma once

#include <cassert>

#include "roce/headers.h"
#include "roce/requester.h"

namespace roci::roce {

// Bytes that a rate limit counts: a frame without FCS, with an IPv4 header.
inline uint32_t BytesOnWire(QpType type, const TxPacket& packet) {
  if (type == QpType::kRawPacket) return packet.payload_length;
  constexpr uint32_t kNetwork = EthernetHeader::kBytes + Ipv4Header::kBytes + UdpHeader::kBytes;
  return kNetwork + InfoOf(packet.opcode).header_bytes + packet.payload_length +
         (-packet.payload_length & 3) + kIcrcBytes;
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

}  // namespace roci::roce
