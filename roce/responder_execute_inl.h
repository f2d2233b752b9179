// Definitions of Responder: execution of requests and faults in them. Included by qp_inl.h only.
#pragma once

#include <cassert>

#include "roce/responder.h"

namespace roci::roce {

// A message takes its receive once, with the first packet that needs it, and keeps it if that
// packet must be retransmitted.
template <class Host>
RequestFault Responder<Host>::TakeReceive(Host& host, const Packet* packet) {
  if (has_receive_) return RequestFault::kNone;
  CompletionStatus bad_status = CompletionStatus::kLocalQpOperationError;
  const FetchResult result = host.FetchRecv(receive_, bad_status, packet);
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
    const RequestFault fault = TakeReceive(host, &packet);
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

// The R_Key is checked for the whole message at its first packet (9.7.4.1), and again for each
// packet, since it may be invalidated in between.
template <class Host>
RequestFault Responder<Host>::ExecuteWrite(Host& host, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (info.Has(ExtHeader::kImmDt)) {
    const RequestFault fault = TakeReceive(host, &packet);
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
  return status == memory::MemoryStatus::kOk ? RequestFault::kNone : FaultOfRemote(status);
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
  if (eth.va % sizeof(uint64_t) != 0) return RequestFault::kMisalignedAtomic;
  memory::SegmentList segments;
  memory::MemoryStatus status = host.ResolveRemote(eth.rkey, eth.va, sizeof(uint64_t),
                                                   memory::Access::kRemoteAtomic, segments);
  uint64_t original = 0;
  if (status == memory::MemoryStatus::kOk) {
    if (segments.size() != 1) return RequestFault::kRemoteMemory;
    status = packet.info->operation == Operation::kCompareSwap
                 ? host.AtomicCompareSwap(segments[0], eth.compare, eth.swap_add, original)
                 : host.AtomicFetchAdd(segments[0], eth.swap_add, original);
  }
  if (status == memory::MemoryStatus::kNotYet) return RequestFault::kNotYet;
  if (status != memory::MemoryStatus::kOk) return FaultOfRemote(status);
  host.Count(QpCounter::kRxAtomicRequests);
  ResponderResource& resource = AddResource(packet, 0);
  resource.kind = AnswerKind::kAtomic;
  resource.original = original;
  return RequestFault::kNone;
}

// IBTA vol 1, A19.4.4: one atomic store of eight aligned bytes.
template <class Host>
RequestFault Responder<Host>::ExecuteAtomicWrite(Host& host, const Packet& packet) {
  const Reth& reth = packet.ext.reth;
  if (!HasFreeResource()) return RequestFault::kTooManyReads;
  if (reth.length != sizeof(uint64_t)) return RequestFault::kMessageLength;
  if (reth.va % sizeof(uint64_t) != 0) return RequestFault::kMisalignedAtomic;
  memory::SegmentList segments;
  memory::MemoryStatus status = host.ResolveRemote(reth.rkey, reth.va, sizeof(uint64_t),
                                                   memory::Access::kRemoteWrite, segments);
  if (status == memory::MemoryStatus::kOk) {
    if (segments.size() != 1) return RequestFault::kRemoteMemory;
    status = host.AtomicWrite(segments[0], packet.payload.template first<sizeof(uint64_t)>());
  }
  if (status == memory::MemoryStatus::kNotYet) return RequestFault::kNotYet;
  if (status != memory::MemoryStatus::kOk) return FaultOfRemote(status);
  host.Count(QpCounter::kRxAtomicRequests);
  AddResource(packet, 0).kind = AnswerKind::kConfirmation;
  return RequestFault::kNone;
}

// Global visibility needs no work: the host offers a FLUSH only when all earlier payloads are
// placed. For persistence, the write-back starts when this answer is the oldest (MakeDurable).
template <class Host>
RequestFault Responder<Host>::ExecuteFlush(Host& host, const Packet& packet) {
  if (!HasFreeResource()) return RequestFault::kTooManyReads;
  const RequestFault fault = CheckFlush(host, packet);
  if (fault != RequestFault::kNone) return fault;
  host.Count(QpCounter::kRxFlushRequests);
  const Feth& feth = packet.ext.feth;
  const bool whole_region = feth.selectivity_level == Feth::kWholeRegion;
  ResponderResource& resource = AddResource(packet, 0);
  resource.kind = AnswerKind::kConfirmation;
  if ((feth.placement_type & Feth::kPersistence) == 0 ||
      (packet.ext.reth.length == 0 && !whole_region)) {
    return RequestFault::kNone;
  }
  resource.kind = AnswerKind::kDurable;
  resource.length = packet.ext.reth.length;
  resource.whole_region = whole_region;
  return RequestFault::kNone;
}

// IBTA vol 1, A19.4.3.1 and A19.4.4: placement type and selectivity level must be valid; queue pair
// and region must allow the type. The key of an empty range is not checked (9.7.4.1.6).
template <class Host>
RequestFault Responder<Host>::CheckFlush(Host& host, const Packet& packet) const {
  const Feth& feth = packet.ext.feth;
  const uint32_t rights = FlushRights(feth.placement_type);
  if (rights == 0 || feth.selectivity_level > Feth::kWholeRegion ||
      (context_.attributes.access_flags & rights) != rights) {
    return RequestFault::kUnsupportedOpcode;
  }
  const Reth& reth = packet.ext.reth;
  const auto need = static_cast<memory::Access>(rights);
  memory::MemoryStatus status = memory::MemoryStatus::kOk;
  if (feth.selectivity_level == Feth::kWholeRegion) {
    status = host.CheckRemoteKey(reth.rkey, need);
  } else if (reth.length != 0) {
    status = host.CheckRemote(reth.rkey, reth.va, reth.length, need);
  }
  return FaultOfRemote(status);
}

// The ring keeps the last max_dest_rd_atomic requests for duplicates; a new one replaces the
// oldest. If the oldest was never answered, the peer exceeds the agreed number of outstanding
// requests (9.7.4.1).
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
  resource.srq_number = srq_number_;
  resource.va = packet.ext.reth.va;
  resource.rkey = packet.ext.reth.rkey;
  resource.length = length;
  resource.first_psn = packet.psn;
  resource.packets = PacketsOf(length, context_.mtu_shift);
  resource.next = 0;
  resource.start = 0;
  resource.msn = msn_;
  resource.kind = AnswerKind::kRead;
  resource.whole_region = false;
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
    completion.datagram = {
        .header = packet.is_ipv6 ? DatagramNetwork::kIpv6 : DatagramNetwork::kIpv4,
        .vlan_tci = packet.vlan_tci};
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
    completion.invalidated_key = packet.ext.ieth.rkey.value();
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
  // An answer built in between may have selected another shared receive queue.
  if (context_.config.type == QpType::kXrcRecv) host.SelectReceiveQueue(srq_number_);
  completion.signaled = true;
  host.CompleteRecv(completion);
}

// IBTA vol 1, 9.9.3: after an RNR NAK the QP continues; any other fault moves it to ERR after its
// NAK.
template <class Host>
DropReason Responder<Host>::Fault(Host& host, RequestFault fault) {
  const FaultInfo& info = InfoOf(fault);
  host.Count(info.counter);
  if (fault == RequestFault::kNoReceive) {
    SetNak(expected_, Aeth::RnrNak(msn_, context_.attributes.min_rnr_timer).syndrome);
    ForgetKept();
    gap_reported_ = true;
    return info.drop;
  }
  if (info.nak_code != kNoNak) {
    SetNak(expected_, Aeth::Nak(msn_, static_cast<NakCode>(info.nak_code)).syndrome);
  }
  const bool had_receive = has_receive_ || fault == RequestFault::kReceiveBad;
  FailReceive(host, info.receive_status);
  if (info.raises_event_always || !had_receive) host.RaiseEvent(info.event);
  context_.error_pending = true;
  return info.drop;
}

}  // namespace roci::roce
