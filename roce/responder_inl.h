// Definitions of Responder, reliable service and what all services share. Included by qp_inl.h
// only.
#pragma once

#include <bit>
#include <cassert>

#include "roce/responder.h"

namespace roci::roce {

template <class Host>
Responder<Host>::Responder(QpContext& context, std::span<ResponderResource> resources)
    : context_(context),
      resources_(resources.data()),
      mask_(static_cast<uint32_t>(resources.size()) - 1) {
  assert(std::has_single_bit(resources.size()));
}

template <class Host>
void Responder<Host>::Reset() {
  oldest_ = emit_ = end_ = 0;
  expected_ = Psn();
  msn_ = Msn();
  message_ = MessageState();
  has_receive_ = false;
  gap_reported_ = false;
  discarding_ = false;
  DropAnswers();
}

template <class Host>
void Responder<Host>::Start(Psn rq_psn) {
  Reset();
  expected_ = rq_psn;
}

template <class Host>
void Responder<Host>::DropAnswers() {
  emit_ = end_;
  nak_pending_ = false;
  ack_pending_ = false;
}

template <class Host>
DropReason Responder<Host>::HandleRequest(Host& host, const Packet& packet) {
  switch (context_.config.type) {
    case QpType::kUc:
      return HandleUnreliable(host, packet);
    case QpType::kUd:
      return HandleDatagram(host, packet);
      [[likely]] default : return HandleReliable(host, packet);
  }
}

template <class Host>
DropReason Responder<Host>::HandleReliable(Host& host, const Packet& packet) {
  if (packet.psn != expected_) [[unlikely]] {
    return ClassifyPsn(expected_, packet.psn) == PsnClass::kDuplicate
               ? HandleDuplicate(host, packet)
               : HandleGap(host);
  }
  RequestFault fault = CheckOpcodeSequence(message_.kind, *packet.info);
  if (fault == RequestFault::kNone) [[likely]] {
    fault = CheckOpcodeEnabled(context_.attributes.access_flags, *packet.info);
  }
  if (fault == RequestFault::kNone) [[likely]] {
    fault = Execute(host, packet);
  }
  if (fault != RequestFault::kNone) [[unlikely]] {
    return Fault(host, fault);
  }
  if (gap_reported_) [[unlikely]] {
    LeaveGap();
  }
  return DropReason::kNone;
}

// The packet that was missing is executed. A "not ready" that was not sent yet is void; a sequence
// NAK stays, for what followed the gap was dropped and nobody else would say so.
template <class Host>
void Responder<Host>::LeaveGap() {
  gap_reported_ = false;
  if (nak_pending_ && Aeth{nak_syndrome_, msn_}.kind() == AethKind::kRnrNak) nak_pending_ = false;
}

// IBTA vol 1, 9.7.5.1.2 (C9-110): one NAK per gap, everything else until the missing packet comes
// is dropped in silence.
template <class Host>
DropReason Responder<Host>::HandleGap(Host& host) {
  host.Count(QpCounter::kOutOfSequence);
  if (!gap_reported_) {
    SetNak(expected_, Aeth::Nak(msn_, NakCode::kPsnSequenceError).syndrome);
    gap_reported_ = true;
  }
  return DropReason::kOutOfSequence;
}

// IBTA vol 1, 9.7.4.1.2 and 9.7.5.1.3: SEND and WRITE are acknowledged again and not executed;
// READs run again; atomics answer what they answered.
template <class Host>
DropReason Responder<Host>::HandleDuplicate(Host& host, const Packet& packet) {
  host.Count(QpCounter::kDuplicateRequest);
  switch (packet.info->operation) {
    case Operation::kSend:
    case Operation::kWrite:
      ack_pending_ = true;
      return DropReason::kNone;
    case Operation::kReadRequest:
      return ReplayRead(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ReplayAtomic(packet);
    default:
      return DropReason::kStaleDuplicate;
  }
}

template <class Host>
bool Responder<Host>::FindResource(Psn psn, uint32_t& index) const {
  for (uint32_t i = end_; i != oldest_; --i) {
    const ResponderResource& resource = At(i - 1);
    if (InWindow(psn, resource.first_psn, resource.packets)) {
      index = i - 1;
      return true;
    }
  }
  return false;
}

// A retried READ may start anywhere in the original one (9.7.5.1.? "partial retry"); it must name
// the same memory, since only that was checked.
template <class Host>
DropReason Responder<Host>::ReplayRead(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index)) return DropReason::kStaleDuplicate;
  ResponderResource& resource = At(index);
  const uint32_t skip = StepsForward(resource.first_psn, packet.psn);
  const uint32_t offset = skip << context_.mtu_shift;
  const Reth& reth = packet.ext.reth;
  if (resource.is_atomic || reth.va != resource.va + offset || reth.rkey != resource.rkey ||
      reth.length != resource.length - offset) {
    return DropReason::kStaleDuplicate;
  }
  Rearm(resource, index, skip);
  return DropReason::kNone;
}

template <class Host>
DropReason Responder<Host>::ReplayAtomic(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index) || !At(index).is_atomic) return DropReason::kStaleDuplicate;
  Rearm(At(index), index, 0);
  return DropReason::kNone;
}

template <class Host>
void Responder<Host>::Rearm(ResponderResource& resource, uint32_t index, uint32_t next) {
  resource.next = next;
  resource.start = next;
  resource.pending = true;
  if (static_cast<int32_t>(index - emit_) < 0) emit_ = index;
}

template <class Host>
RequestFault Responder<Host>::Execute(Host& host, const Packet& packet) {
  RequestFault fault = RequestFault::kUnsupportedOpcode;
  switch (packet.info->operation) {
    case Operation::kSend:
      fault = ExecuteSend(host, packet);
      break;
    case Operation::kWrite:
      fault = ExecuteWrite(host, packet);
      break;
    case Operation::kReadRequest:
      return ExecuteRead(host, packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ExecuteAtomic(host, packet);
    default:
      return fault;
  }
  if (fault == RequestFault::kNone) [[likely]] {
    ++expected_;
    ack_pending_ |= packet.ack_request;
  }
  return fault;
}

// A receive is taken once per message, at the packet that needs it first, and kept if that packet
// has to come again.
template <class Host>
RequestFault Responder<Host>::TakeReceive(Host& host) {
  if (has_receive_) return RequestFault::kNone;
  CompletionStatus bad_status = CompletionStatus::kLocalQpOperationError;
  const FetchResult result = host.FetchRecv(receive_, bad_status);
  if (result == FetchResult::kEmpty) return RequestFault::kNoReceive;
  has_receive_ = true;
  if (result == FetchResult::kOk) [[likely]] {
    return RequestFault::kNone;
  }
  FailReceive(host, bad_status);
  return RequestFault::kReceiveBad;
}

template <class Host>
RequestFault Responder<Host>::ExecuteSend(Host& host, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (info.IsFirst()) {
    const RequestFault fault = TakeReceive(host);
    if (fault != RequestFault::kNone) return fault;
    message_.received = 0;
  }
  if (const RequestFault fault = CheckPayloadLength(info.position, bytes, context_.mtu_bytes());
      fault != RequestFault::kNone) [[unlikely]] {
    return fault;
  }
  const uint64_t total = uint64_t{message_.received} + bytes;
  if (total > receive_.capacity) return RequestFault::kReceiveTooLong;
  if (total > context_.config.limits.max_message_bytes) return RequestFault::kMessageLength;
  if (const RequestFault fault = PlaceReceived(host, packet); fault != RequestFault::kNone)
      [[unlikely]] {
    return fault;
  }
  message_.received = static_cast<uint32_t>(total);
  message_.kind = InMessage::kSend;
  return info.IsLast() ? FinishSend(host, packet) : RequestFault::kNone;
}

template <class Host>
RequestFault Responder<Host>::FinishSend(Host& host, const Packet& packet) {
  if (packet.info->Has(ExtHeader::kIeth) &&
      host.Invalidate(packet.ext.ieth.rkey) != memory::MemoryStatus::kOk) {
    return RequestFault::kInvalidate;
  }
  host.Count(QpCounter::kRxSendRequests);
  CompleteReceive(host, packet, CompletionOpcode::kRecv, message_.received);
  FinishMessage();
  return RequestFault::kNone;
}

template <class Host>
void Responder<Host>::FinishMessage() {
  message_.kind = InMessage::kNone;
  ++msn_;
}

template <class Host>
RequestFault Responder<Host>::PlaceReceived(Host& host, const Packet& packet) {
  if (packet.payload.empty()) return RequestFault::kNone;
  memory::SegmentList segments;
  memory::MemoryStatus status = host.ScatterRecv(
      receive_, message_.received, static_cast<uint32_t>(packet.payload.size()), segments);
  if (status == memory::MemoryStatus::kOk) [[likely]] {
    status = host.Place(segments, packet.payload);
  }
  return status == memory::MemoryStatus::kOk ? RequestFault::kNone : RequestFault::kReceiveMemory;
}

// The R_Key is checked for the whole message at its first packet (9.7.4.1.6), and again for every
// packet's part, since it may be revoked meanwhile.
template <class Host>
RequestFault Responder<Host>::ExecuteWrite(Host& host, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (info.Has(ExtHeader::kImmDt)) {
    const RequestFault fault = TakeReceive(host);
    if (fault != RequestFault::kNone) return fault;
  }
  if (info.IsFirst()) {
    const Reth& reth = packet.ext.reth;
    if (reth.length != bytes && reth.length != 0 &&
        host.CheckRemote(reth.rkey, reth.va, reth.length, memory::Access::kRemoteWrite) !=
            memory::MemoryStatus::kOk) {
      return RequestFault::kRemoteAccess;
    }
    message_.received = 0;
    message_.length = reth.length;
    message_.rkey = reth.rkey;
    message_.va = reth.va;
  }
  RequestFault fault = CheckPayloadLength(info.position, bytes, context_.mtu_bytes());
  if (fault == RequestFault::kNone) [[likely]] {
    fault = CheckWriteLength(info.IsLast(), message_.received, bytes, message_.length,
                             context_.config.limits.max_message_bytes);
  }
  if (fault == RequestFault::kNone) [[likely]] {
    fault = PlaceWritten(host, packet);
  }
  if (fault != RequestFault::kNone) [[unlikely]] {
    return fault;
  }
  message_.received += bytes;
  message_.kind = InMessage::kWrite;
  if (info.IsLast()) FinishWrite(host, packet);
  return RequestFault::kNone;
}

template <class Host>
void Responder<Host>::FinishWrite(Host& host, const Packet& packet) {
  host.Count(QpCounter::kRxWriteRequests);
  if (packet.info->Has(ExtHeader::kImmDt)) {
    CompleteReceive(host, packet, CompletionOpcode::kRecvRdmaWithImm, message_.length);
  }
  FinishMessage();
}

namespace responder_internal {
// A bad R_Key is the peer's fault, memory that went away is not.
inline RequestFault FaultOfRemote(memory::MemoryStatus status) {
  switch (status) {
    case memory::MemoryStatus::kOk:
      return RequestFault::kNone;
    case memory::MemoryStatus::kFault:
    case memory::MemoryStatus::kTooManySegments:
      return RequestFault::kRemoteMemory;
    case memory::MemoryStatus::kMisaligned:
      return RequestFault::kMisalignedAtomic;
    default:
      return RequestFault::kRemoteAccess;
  }
}
}  // namespace responder_internal

template <class Host>
RequestFault Responder<Host>::PlaceWritten(Host& host, const Packet& packet) {
  if (packet.payload.empty()) return RequestFault::kNone;
  memory::SegmentList segments;
  memory::MemoryStatus status = host.ResolveRemote(message_.rkey, message_.va + message_.received,
                                                   static_cast<uint32_t>(packet.payload.size()),
                                                   memory::Access::kRemoteWrite, segments);
  if (status == memory::MemoryStatus::kOk) [[likely]] {
    status = host.Place(segments, packet.payload);
  }
  return responder_internal::FaultOfRemote(status);
}

template <class Host>
RequestFault Responder<Host>::ExecuteRead(Host& host, const Packet& packet) {
  const Reth& reth = packet.ext.reth;
  if (!HasFreeResource()) return RequestFault::kTooManyReads;
  if (reth.length != 0 &&
      host.CheckRemote(reth.rkey, reth.va, reth.length, memory::Access::kRemoteRead) !=
          memory::MemoryStatus::kOk) {
    return RequestFault::kRemoteAccess;
  }
  if (reth.length > context_.config.limits.max_message_bytes) return RequestFault::kMessageLength;
  host.Count(QpCounter::kRxReadRequests);
  AddResource(packet, reth.length);
  return RequestFault::kNone;
}

template <class Host>
RequestFault Responder<Host>::ExecuteAtomic(Host& host, const Packet& packet) {
  const AtomicEth& eth = packet.ext.atomic;
  if (!HasFreeResource()) return RequestFault::kTooManyReads;
  if ((eth.va & 7) != 0) return RequestFault::kMisalignedAtomic;
  memory::SegmentList segments;
  memory::MemoryStatus status =
      host.ResolveRemote(eth.rkey, eth.va, 8, memory::Access::kRemoteAtomic, segments);
  uint64_t original = 0;
  if (status == memory::MemoryStatus::kOk) {
    if (segments.size() != 1) return RequestFault::kRemoteMemory;
    status = packet.info->operation == Operation::kCompareSwap
                 ? host.AtomicCompareSwap(segments[0], eth.compare, eth.swap_add, original)
                 : host.AtomicFetchAdd(segments[0], eth.swap_add, original);
  }
  if (status != memory::MemoryStatus::kOk) return responder_internal::FaultOfRemote(status);
  host.Count(QpCounter::kRxAtomicRequests);
  ResponderResource& resource = AddResource(packet, 0);
  resource.is_atomic = true;
  resource.original = original;
  return RequestFault::kNone;
}

// The ring keeps the last max_dest_rd_atomic requests for duplicates. The oldest makes room, unless
// it was never answered: then the peer has more outstanding than was agreed (9.7.4.1.4, C9-90).
template <class Host>
bool Responder<Host>::HasFreeResource() const {
  const uint32_t capacity = context_.attributes.max_dest_rd_atomic;
  if (capacity == 0) return false;
  if (end_ - oldest_ < capacity) return true;
  const ResponderResource& oldest = At(oldest_);
  return !oldest.pending || oldest.replayed;
}

template <class Host>
ResponderResource& Responder<Host>::AddResource(const Packet& packet, uint32_t length) {
  const uint32_t capacity = context_.attributes.max_dest_rd_atomic;
  assert(capacity != 0 && capacity <= mask_ + 1);
  if (end_ - oldest_ >= capacity) {
    if (emit_ == oldest_) emit_ = NextPending(emit_ + 1);
    ++oldest_;
  }
  ResponderResource& resource = At(end_);
  ++end_;
  ++msn_;
  resource.va = packet.ext.reth.va;
  resource.rkey = packet.ext.reth.rkey;
  resource.length = length;
  resource.first_psn = packet.psn;
  resource.packets = PacketsOf(length, context_.mtu_shift);
  resource.next = 0;
  resource.start = 0;
  resource.msn = msn_;
  resource.is_atomic = false;
  resource.pending = true;
  resource.replayed = false;
  expected_ += resource.packets;
  return resource;
}

template <class Host>
uint32_t Responder<Host>::NextPending(uint32_t index) const {
  while (index != end_ && !At(index).pending) ++index;
  return index;
}

template <class Host>
void Responder<Host>::CompleteReceive(Host& host, const Packet& packet, CompletionOpcode opcode,
                                      uint32_t byte_length) {
  assert(has_receive_);
  Completion completion{};
  completion.wr_id = receive_.wr_id;
  completion.slot = receive_.slot;
  completion.byte_length = byte_length;
  completion.source_qpn = context_.attributes.dest_qpn;
  if (packet.info->Has(ExtHeader::kDeth)) {
    completion.source_qpn = packet.ext.deth.src_qpn;
    completion.has_grh = true;
  }
  completion.status = CompletionStatus::kSuccess;
  completion.opcode = opcode;
  completion.solicited = packet.solicited;
  completion.signaled = true;
  if (packet.info->Has(ExtHeader::kImmDt)) {
    completion.has_immediate = true;
    completion.immediate = SwapNetworkOrder(packet.ext.imm.value);
  } else if (packet.info->Has(ExtHeader::kIeth)) {
    completion.has_invalidate = true;
    completion.immediate = packet.ext.ieth.rkey.value();
  }
  has_receive_ = false;
  host.CompleteRecv(completion);
}

template <class Host>
void Responder<Host>::FailReceive(Host& host, CompletionStatus status) {
  if (!has_receive_) return;
  has_receive_ = false;
  host.Count(status == CompletionStatus::kWorkRequestFlushed ? QpCounter::kRespCqeFlushErrors
                                                             : QpCounter::kRespCqeErrors);
  Completion completion{};
  completion.wr_id = receive_.wr_id;
  completion.slot = receive_.slot;
  completion.status = status;
  completion.opcode = CompletionOpcode::kRecv;
  completion.signaled = true;
  host.CompleteRecv(completion);
}

// IBTA vol 1, 9.9.3.1: RNR is answered and forgotten; any other fault ends the QP after its NAK.
template <class Host>
DropReason Responder<Host>::Fault(Host& host, RequestFault fault) {
  const FaultInfo& info = InfoOf(fault);
  host.Count(info.counter);
  if (fault == RequestFault::kNoReceive) {
    SetNak(expected_, Aeth::RnrNak(msn_, context_.attributes.min_rnr_timer).syndrome);
    gap_reported_ = true;
    return info.drop;
  }
  SetNak(expected_, Aeth::Nak(msn_, static_cast<NakCode>(info.nak_code)).syndrome);
  const bool had_receive = has_receive_ || fault == RequestFault::kReceiveBad;
  FailReceive(host, info.receive_status);
  if (info.raises_event_always || !had_receive) host.RaiseEvent(info.event);
  context_.error_pending = true;
  return info.drop;
}

template <class Host>
void Responder<Host>::SetNak(Psn psn, uint8_t syndrome) {
  nak_pending_ = true;
  nak_psn_ = psn;
  nak_syndrome_ = syndrome;
}

// Answers go out in PSN order: what READs and atomics wait for, then the NAK, then one ACK for
// everything executed. An ACK or NAK ahead of a READ response would tell the requester that the
// response is lost (9.7.5.1.? implied NAK).
template <class Host>
bool Responder<Host>::Poll(Host& host, TxPacket& out, memory::SegmentList& payload) {
  if (emit_ != end_ && !NakPrecedes(At(emit_)) && BuildResourceAnswer(host, out, payload)) {
    return true;
  }
  if (nak_pending_ && !AckPrecedesNak()) {
    nak_pending_ = false;
    if (nak_psn_ == expected_) ack_pending_ = false;  // the NAK says as much
    CountNak(host);
    BuildAcknowledge(out, nak_psn_, Aeth{nak_syndrome_, msn_});
    return true;
  }
  if (ack_pending_) {
    ack_pending_ = false;
    host.Count(QpCounter::kAcksSent);
    BuildAcknowledge(out, expected_ - 1, Aeth::Ack(msn_));
    return true;
  }
  return false;
}

template <class Host>
bool Responder<Host>::NakPrecedes(const ResponderResource& resource) const {
  return nak_pending_ && Distance(nak_psn_, resource.first_psn + resource.next) >= 0;
}

// A NAK acknowledges what was before it, but Linux does not take an RNR NAK so, and would send it
// all again.
template <class Host>
bool Responder<Host>::AckPrecedesNak() const {
  return ack_pending_ && nak_psn_ == expected_ &&
         Aeth{nak_syndrome_, msn_}.kind() == AethKind::kRnrNak;
}

template <class Host>
void Responder<Host>::CountNak(Host& host) {
  const Aeth aeth{nak_syndrome_, msn_};
  if (aeth.kind() == AethKind::kRnrNak) {
    host.Count(QpCounter::kRnrNaksSent);
  } else if (aeth.nak_code() == NakCode::kPsnSequenceError) {
    host.Count(QpCounter::kSequenceNaksSent);
  } else {
    host.Count(QpCounter::kErrorNaksSent);
  }
}

// False: the memory failed and a NAK is pending instead.
template <class Host>
bool Responder<Host>::BuildResourceAnswer(Host& host, TxPacket& out, memory::SegmentList& payload) {
  ResponderResource& resource = At(emit_);
  assert(resource.pending);
  if (resource.is_atomic) {
    host.Count(QpCounter::kAtomicResponsesSent);
    BuildAcknowledge(out, resource.first_psn, Aeth::Ack(resource.msn));
    out.opcode = WithTransport(Opcode::kRcAtomicAcknowledge, TransportOf(context_.config.type));
    out.ext.atomic_ack.original = resource.original;
    ++resource.next;
  } else if (!BuildReadResponse(host, resource, out, payload)) {
    return false;
  }
  if (resource.next == resource.packets) {
    resource.pending = false;
    resource.replayed = true;
    // The answer acknowledges everything before it as well.
    if (resource.first_psn + resource.packets == expected_) ack_pending_ = false;
    emit_ = NextPending(emit_ + 1);
  }
  return true;
}

template <class Host>
bool Responder<Host>::BuildReadResponse(Host& host, ResponderResource& resource, TxPacket& out,
                                        memory::SegmentList& payload) {
  static constexpr Opcode kOpcodes[] = {Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                                        Opcode::kRcReadResponseLast, Opcode::kRcReadResponseOnly};
  const uint32_t offset = resource.next << context_.mtu_shift;
  const uint32_t left = resource.length - offset;
  const uint32_t bytes = left < context_.mtu_bytes() ? left : context_.mtu_bytes();
  const Psn psn = resource.first_psn + resource.next;
  if (bytes != 0) {
    const memory::MemoryStatus status = host.ResolveRemote(
        resource.rkey, resource.va + offset, bytes, memory::Access::kRemoteRead, payload);
    if (status != memory::MemoryStatus::kOk) [[unlikely]] {
      FailAnswer(host, psn, responder_internal::FaultOfRemote(status));
      return false;
    }
  }
  const Position position =
      PositionOf(resource.next - resource.start, resource.packets - resource.start);
  BuildAcknowledge(out, psn, Aeth::Ack(resource.msn));
  out.opcode =
      WithTransport(kOpcodes[static_cast<size_t>(position)], TransportOf(context_.config.type));
  out.payload_length = bytes;
  ++resource.next;
  host.Count(QpCounter::kReadResponsesSent);
  return true;
}

template <class Host>
void Responder<Host>::BuildAcknowledge(TxPacket& out, Psn psn, Aeth aeth) const {
  out.opcode = WithTransport(Opcode::kRcAcknowledge, TransportOf(context_.config.type));
  out.solicited = false;
  out.ack_request = false;
  out.fecn = false;
  out.becn = false;
  out.psn = psn;
  out.dest_qpn = context_.attributes.dest_qpn;
  out.payload_length = 0;
  out.ext.aeth = aeth;
}

// The memory behind an answer is gone: nothing after `psn` can be answered either.
template <class Host>
void Responder<Host>::FailAnswer(Host& host, Psn psn, RequestFault fault) {
  DropAnswers();
  const FaultInfo& info = InfoOf(fault);
  host.Count(info.counter);
  SetNak(psn, Aeth::Nak(msn_, static_cast<NakCode>(info.nak_code)).syndrome);
  host.RaiseEvent(info.event);
  context_.error_pending = true;
}

template <class Host>
void Responder<Host>::HandleTransmitFault(Host& host, Psn psn) {
  uint32_t index = 0;
  if (!FindResource(psn, index)) return;
  FailAnswer(host, psn, RequestFault::kRemoteMemory);
}

template <class Host>
bool Responder<Host>::Flush(Host& host, uint32_t budget) {
  if (has_receive_) {
    FailReceive(host, CompletionStatus::kWorkRequestFlushed);
  }
  if (context_.config.uses_srq) return true;
  for (; budget != 0; --budget) {
    CompletionStatus ignored{};
    if (host.FetchRecv(receive_, ignored) == FetchResult::kEmpty) return true;
    has_receive_ = true;
    FailReceive(host, CompletionStatus::kWorkRequestFlushed);
  }
  return false;
}

template <class Host>
void Responder<Host>::Describe(ResponderDebug& out) const {
  out.expected_psn = expected_;
  out.msn = msn_;
  out.resources_pending = 0;
  for (uint32_t i = emit_; i != end_; ++i) out.resources_pending += At(i).pending ? 1u : 0u;
  out.ack_pending = ack_pending_;
  out.nak_pending = nak_pending_;
  out.gap_reported = gap_reported_;
  out.in_message = message_.kind != InMessage::kNone;
}

}  // namespace roci::roce
