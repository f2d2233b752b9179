// Definitions of Responder for services without answers: UC, UD and raw packets. Included by
// qp_inl.h only.
#pragma once

#include "roce/responder.h"

namespace roci::roce {

// Unreliable connection (IBTA vol 1, 9.8.2): a lost packet drops its message; the next FIRST or
// ONLY starts a message at any PSN. The receive of a dropped message is kept for the next one that
// needs a receive.
template <class Host>
DropReason Responder<Host>::HandleUnreliable(Host& host, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const bool in_sequence = packet.psn == expected_;
  expected_ = packet.psn + 1;
  if (!in_sequence) host.Count(QpCounter::kOutOfSequence);
  if (info.IsFirst()) {
    message_.kind = InMessage::kNone;
    discarding_ = false;
  } else if (!in_sequence || discarding_) {
    message_.kind = InMessage::kNone;
    discarding_ = true;
    return DropReason::kOutOfSequence;
  }
  RequestFault fault = CheckOpcodeSequence(message_.kind, info);
  if (fault == RequestFault::kNone) [[likely]] {
    fault = CheckOpcodeEnabled(context_.attributes.access_flags, info);
  }
  if (fault == RequestFault::kNone) [[likely]] {
    fault = Execute(host, packet);
    expected_ = packet.psn + 1;
    ack_pending_ = false;
  }
  return fault == RequestFault::kNone ? DropReason::kNone : Discard(host, fault);
}

// A fault caused by the peer drops the message (class D; IBTA vol 1, 9.9.3); the receive is kept
// for the next message. A receive of a shared queue is not kept and completes with the error (class
// E). A fault of the posted receive moves the QP to ERR (class A).
template <class Host>
DropReason Responder<Host>::Discard(Host& host, RequestFault fault) {
  const FaultInfo& info = InfoOf(fault);
  host.Count(info.counter);
  message_.kind = InMessage::kNone;
  discarding_ = true;
  const bool is_local = fault == RequestFault::kReceiveMemory || fault == RequestFault::kReceiveBad;
  const bool shared_too_short = fault == RequestFault::kReceiveTooLong && context_.config.uses_srq;
  if (is_local || shared_too_short) FailReceive(host, info.receive_status);
  if (is_local) context_.error_pending = true;
  return info.drop;
}

// Unreliable datagram (IBTA vol 1, 9.8.3): 40 bytes of network header precede the payload in the
// buffer and count in the length (A17.4.5.1).
template <class Host>
DropReason Responder<Host>::HandleDatagram(Host& host, const Packet& packet) {
  if (packet.ext.deth.qkey != context_.attributes.qkey) return DropReason::kQkey;
  if (packet.payload.size() > context_.mtu_bytes()) return DropReason::kPayloadLength;
  if (const RequestFault fault = TakeReceive(host, &packet); fault != RequestFault::kNone) {
    return Discard(host, fault);
  }
  const auto total = static_cast<uint32_t>(kGrhBytes + packet.payload.size());
  if (total > receive_.capacity) return Discard(host, RequestFault::kReceiveTooLong);
  if (!PlaceDatagram(host, packet)) return Discard(host, RequestFault::kReceiveMemory);
  host.Count(QpCounter::kRxSendRequests);
  CompleteReceive(host, packet, CompletionOpcode::kRecv, total);
  return DropReason::kNone;
}

// A frame that is too long for the next receive is dropped and the receive is kept: a sender of
// frames must not be able to move the queue pair to ERR.
template <class Host>
DropReason Responder<Host>::HandleFrame(Host& host, std::span<const std::byte> frame,
                                        const FrameInfo& info) {
  if (const RequestFault fault = TakeReceive(host, nullptr); fault != RequestFault::kNone) {
    return Discard(host, fault);
  }
  if (frame.size() > receive_.capacity) {
    host.Count(QpCounter::kRespLocalLengthErrors);
    return DropReason::kReceiveTooLong;
  }
  const auto bytes = static_cast<uint32_t>(frame.size());
  memory::SegmentList segments;
  if (host.ScatterRecv(receive_, 0, bytes, segments) != memory::MemoryStatus::kOk ||
      host.Place(segments, frame) != memory::MemoryStatus::kOk) {
    return Discard(host, RequestFault::kReceiveMemory);
  }
  Completion completion{};
  completion.wr_id = receive_.wr_id;
  completion.slot = receive_.slot;
  completion.byte_length = bytes;
  completion.flow_tag = info.flow_tag;
  completion.checksums_right = info.checksums_right;
  completion.status = CompletionStatus::kSuccess;
  completion.opcode = CompletionOpcode::kRecv;
  completion.signaled = true;
  has_receive_ = false;
  host.CompleteRecv(completion);
  return DropReason::kNone;
}

template <class Host>
bool Responder<Host>::PlaceDatagram(Host& host, const Packet& packet) {
  std::byte header[kGrhBytes];
  StoreGrh(packet, header);
  memory::SegmentList segments;
  if (host.ScatterRecv(receive_, 0, kGrhBytes, segments) != memory::MemoryStatus::kOk ||
      host.Place(segments, header) != memory::MemoryStatus::kOk) {
    return false;
  }
  if (packet.payload.empty()) return true;
  segments.Clear();
  return host.ScatterRecv(receive_, kGrhBytes, static_cast<uint32_t>(packet.payload.size()),
                          segments) == memory::MemoryStatus::kOk &&
         host.Place(segments, packet.payload) == memory::MemoryStatus::kOk;
}

}  // namespace roci::roce
