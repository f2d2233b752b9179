#include "tests/unit/roce/qp_host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "roce/qp_inl.h"

namespace roci::roce {

ScriptedHost::ScriptedHost(size_t memory_bytes) : bytes(memory_bytes) {
  using memory::Access;
  grants[kLkey.value()] = {kMemoryVa, memory_bytes, Access::kLocalWrite};
  grants[kRkey.value()] = {
      kMemoryVa, memory_bytes,
      Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic};
}

uint64_t ScriptedHost::Word(uint64_t va) {
  uint64_t value = 0;
  std::memcpy(&value, At(va), sizeof(value));
  return value;
}

void ScriptedHost::SetWord(uint64_t va, uint64_t value) {
  std::memcpy(At(va), &value, sizeof(value));
}

SendWqe& ScriptedHost::PostSend(WorkOpcode opcode, uint32_t length, uint64_t offset,
                                uint64_t remote_offset) {
  SendWqe wqe{};
  wqe.slot = next_send_slot_++;
  wqe.wr_id = 1000 + wqe.slot;
  wqe.opcode = opcode;
  wqe.length = length;
  wqe.num_sge = 1;
  wqe.first_sge = {kMemoryVa + offset, length, kLkey};
  wqe.remote_va = kMemoryVa + remote_offset;
  wqe.rkey = kRkey;
  wqe.signaled = true;
  sends.push_back(wqe);
  return sends.back();
}

RecvWqe& ScriptedHost::PostRecv(uint32_t capacity, uint64_t offset) {
  RecvWqe wqe{};
  wqe.slot = next_recv_slot_++;
  wqe.wr_id = 2000 + wqe.slot;
  wqe.capacity = capacity;
  wqe.num_sge = 1;
  wqe.first_sge = {kMemoryVa + offset, capacity, kLkey};
  receives.push_back(wqe);
  return receives.back();
}

FetchResult ScriptedHost::FetchSend(SendWqe& out, CompletionStatus& bad_status) {
  ++fetches;
  if (sends.empty()) return FetchResult::kEmpty;
  out = sends.front();
  sends.pop_front();
  if (!bad_send) return FetchResult::kOk;
  bad_status = *bad_send;
  bad_send.reset();
  return FetchResult::kBad;
}

FetchResult ScriptedHost::FetchRecv(RecvWqe& out, CompletionStatus& bad_status, const Packet*) {
  std::deque<RecvWqe>& queue = shared_queues.empty() ? receives : shared_queues[selected_queue];
  if (queue.empty()) return FetchResult::kEmpty;
  out = queue.front();
  queue.pop_front();
  if (!bad_receive) return FetchResult::kOk;
  bad_status = *bad_receive;
  bad_receive.reset();
  return FetchResult::kBad;
}

memory::MemoryStatus ScriptedHost::Resolve(Key key, uint64_t va, uint32_t length,
                                           memory::Access access, memory::SegmentList* out) {
  const auto it = grants.find(key.value());
  if (it == grants.end()) return memory::MemoryStatus::kBadKey;
  const Grant& grant = it->second;
  if (!Includes(grant.access, access)) return memory::MemoryStatus::kNoPermission;
  const uint64_t offset = va - grant.va;
  if (offset > grant.length || length > grant.length - offset) {
    return memory::MemoryStatus::kOutOfBounds;
  }
  if (out == nullptr) return memory::MemoryStatus::kOk;
  uint64_t start = grant.backing + offset;
  if (start + length > bytes.size()) start %= bytes.size() - kMaxPathMtuBytes;
  out->Append(memory::Segment::Direct(bytes.data() + start, length, nullptr));
  return memory::MemoryStatus::kOk;
}

memory::MemoryStatus ScriptedHost::GatherSend(const SendWqe& wqe, uint32_t offset, uint32_t length,
                                              memory::SegmentList& out) {
  const memory::MemoryStatus status =
      Resolve(wqe.first_sge.lkey, wqe.first_sge.va + offset, length, memory::Access::kNone, &out);
  return gather_fails_late ? memory::MemoryStatus::kBadKey : status;
}

memory::MemoryStatus ScriptedHost::ScatterSend(const SendWqe& wqe, uint32_t offset, uint32_t length,
                                               memory::SegmentList& out) {
  return Resolve(wqe.first_sge.lkey, wqe.first_sge.va + offset, length, memory::Access::kLocalWrite,
                 &out);
}

memory::MemoryStatus ScriptedHost::ScatterRecv(const RecvWqe& wqe, uint32_t offset, uint32_t length,
                                               memory::SegmentList& out) {
  return Resolve(wqe.first_sge.lkey, wqe.first_sge.va + offset, length, memory::Access::kLocalWrite,
                 &out);
}

memory::MemoryStatus ScriptedHost::ResolveRemote(Key rkey, uint64_t va, uint32_t length,
                                                 memory::Access access, memory::SegmentList& out) {
  return Resolve(rkey, va, length, access, &out);
}

memory::MemoryStatus ScriptedHost::CheckRemote(Key rkey, uint64_t va, uint32_t length,
                                               memory::Access access) {
  return Resolve(rkey, va, length, access, nullptr);
}

memory::MemoryStatus ScriptedHost::Invalidate(Key rkey) {
  invalidated.push_back(rkey);
  grants.erase(rkey.value());
  return invalidate_fails ? memory::MemoryStatus::kBadKey : memory::MemoryStatus::kOk;
}

memory::MemoryStatus ScriptedHost::CheckRemoteKey(Key rkey, memory::Access access) {
  const auto it = grants.find(rkey.value());
  if (it == grants.end()) return memory::MemoryStatus::kBadKey;
  return Includes(it->second.access, access) ? memory::MemoryStatus::kOk
                                             : memory::MemoryStatus::kNoPermission;
}

memory::MemoryStatus ScriptedHost::BindWindow(const SendWqe& wqe) {
  bound.push_back(wqe.wr_id);
  return bind_fails ? memory::MemoryStatus::kNoPermission : memory::MemoryStatus::kOk;
}

memory::MemoryStatus ScriptedHost::AtomicWrite(const memory::Segment& segment,
                                               std::span<const std::byte, 8> from) {
  if (atomic_faults) return memory::MemoryStatus::kFault;
  if (atomics_wait) return memory::MemoryStatus::kNotYet;
  std::memcpy(segment.direct, from.data(), from.size());
  return memory::MemoryStatus::kOk;
}

memory::MemoryStatus ScriptedHost::Place(const memory::SegmentList& segments,
                                         std::span<const std::byte> from) {
  if (place_faults) return memory::MemoryStatus::kFault;
  size_t done = 0;
  for (const memory::Segment& segment : segments) {
    const size_t n = std::min<size_t>(segment.length, from.size() - done);
    std::memcpy(segment.direct, from.data() + done, n);
    done += n;
  }
  return memory::MemoryStatus::kOk;
}

memory::MemoryStatus ScriptedHost::AtomicCompareSwap(const memory::Segment& segment,
                                                     uint64_t compare, uint64_t swap,
                                                     uint64_t& original) {
  if (atomic_faults) return memory::MemoryStatus::kFault;
  if (atomics_wait) return memory::MemoryStatus::kNotYet;
  std::memcpy(&original, segment.direct, sizeof(original));
  if (original == compare) std::memcpy(segment.direct, &swap, sizeof(swap));
  return memory::MemoryStatus::kOk;
}

memory::MemoryStatus ScriptedHost::AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                                  uint64_t& original) {
  if (atomic_faults) return memory::MemoryStatus::kFault;
  if (atomics_wait) return memory::MemoryStatus::kNotYet;
  std::memcpy(&original, segment.direct, sizeof(original));
  const uint64_t sum = original + add;
  std::memcpy(segment.direct, &sum, sizeof(sum));
  return memory::MemoryStatus::kOk;
}

Packet WirePacket::View() const {
  Packet packet;
  packet.info = &info();
  packet.opcode = tx.opcode;
  packet.solicited = tx.solicited;
  packet.ack_request = tx.ack_request;
  packet.becn = tx.becn;
  packet.pkey = 0xFFFF;
  packet.psn = tx.psn;
  packet.dest_qpn = tx.dest_qpn;
  packet.payload = payload;
  packet.ext = tx.ext;
  return packet;
}

namespace {

QpConfig ConfigOf(const NodeOptions& options) {
  QpConfig config;
  config.type = options.type;
  config.qpn = options.qpn;
  config.sq_sig_all = options.sq_sig_all;
  config.uses_srq = options.uses_srq;
  config.limits = options.limits;
  return config;
}

QpAttributes AttributesOf(const NodeOptions& options) {
  QpAttributes a;
  a.path_mtu = options.path_mtu;
  a.sq_psn = options.sq_psn;
  a.rq_psn = options.rq_psn;
  a.dest_qpn = options.dest_qpn;
  a.access_flags = options.access_flags;
  a.port = 1;
  a.qkey = options.qkey;
  a.timeout = options.timeout;
  a.retry_count = options.retry_count;
  a.rnr_retry = options.rnr_retry;
  a.min_rnr_timer = options.min_rnr_timer;
  a.max_rd_atomic = options.max_rd_atomic;
  a.max_dest_rd_atomic = options.max_dest_rd_atomic;
  return a;
}

constexpr uint32_t kResources = 16;

}  // namespace

Node::Node(const NodeOptions& o, QpState target)
    : options(o),
      attributes(AttributesOf(o)),
      host(o.memory_bytes),
      records_(o.records),
      resources_(kResources),
      qp(ConfigOf(o), records_, resources_, o.congestion,
         o.limits.reorder_wait_ns != 0 ? &reorder_ : nullptr) {
  BringTo(target);
}

ModifyResult Node::Modify(QpState to, uint32_t more_mask) {
  attributes.state = to;
  return qp.Modify(host, attributes, kAttrState | more_mask);
}

void Node::BringTo(QpState target) {
  // XRC: each side needs only the attributes of the requester or of the responder.
  const bool rc = options.type == QpType::kRc;
  const bool sends_reliably = rc || options.type == QpType::kXrcSend;
  const bool responds_reliably = rc || options.type == QpType::kXrcRecv;
  const bool ud = options.type == QpType::kUd;
  const bool raw = options.type == QpType::kRawPacket;
  const auto must = [](ModifyResult result) {
    if (result != ModifyResult::kOk) std::abort();
  };
  if (qp.state() == QpState::kReset && target >= QpState::kInit) {
    const uint32_t transport = kAttrPkeyIndex | (ud ? kAttrQkey : kAttrAccessFlags);
    must(Modify(QpState::kInit, kAttrPort | (raw ? 0 : transport)));
  }
  if (qp.state() == QpState::kInit && target >= QpState::kRtr) {
    const uint32_t connected = kAttrAddressVector | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
    must(Modify(QpState::kRtr,
                (ud || raw ? 0 : connected) |
                    (responds_reliably ? kAttrMaxDestRdAtomic | kAttrMinRnrTimer : 0)));
  }
  if (qp.state() == QpState::kRtr && target >= QpState::kRts) {
    const uint32_t reliable = kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic;
    const uint32_t target_only = options.type == QpType::kXrcRecv ? kAttrTimeout : 0;
    must(Modify(QpState::kRts, (raw ? 0 : kAttrSqPsn) | (sends_reliably ? reliable : target_only)));
  }
}

std::optional<WirePacket> Node::Poll() {
  WirePacket packet;
  memory::SegmentList segments;
  // HasTransmit must not be false while a packet can be sent.
  const bool hint = qp.HasTransmit();
  packet.polled = qp.PollTransmit(host, now, packet.tx, segments);
  if (qp.HasTransmit() && !packet.polled.has_more) std::abort();
  if (!packet.polled) return std::nullopt;
  if (!hint) std::abort();
  for (const memory::Segment& segment : segments) {
    packet.payload.insert(packet.payload.end(), segment.direct, segment.direct + segment.length);
  }
  if (packet.payload.size() != packet.tx.payload_length) std::abort();
  return packet;
}

std::vector<WirePacket> Node::PollAll() {
  std::vector<WirePacket> all;
  while (auto packet = Poll()) all.push_back(std::move(*packet));
  return all;
}

DropReason Node::Receive(const Packet& packet) {
  effects = qp.HandlePacket(host, now, packet);
  return effects.reason;
}

DropReason Node::Receive(const WirePacket& packet) { return Receive(packet.View()); }

std::vector<WirePacket> Node::Run() {
  Work();
  return PollAll();
}

bool Node::PassTimeout() {
  const TimeNs timeout = qp.NextTimeout();
  if (timeout == kNever) return false;
  now = std::max(now, timeout);
  qp.HandleTimeout(host, now);
  return true;
}

WirePacket MakeRequest(Opcode opcode, Psn psn, uint32_t payload_bytes, bool ack_request) {
  WirePacket packet;
  packet.tx.opcode = opcode;
  packet.tx.psn = psn;
  packet.tx.dest_qpn = kLocalQpn;
  packet.tx.ack_request = ack_request;
  packet.tx.payload_length = payload_bytes;
  for (uint32_t i = 0; i < payload_bytes; ++i) packet.payload.push_back(PayloadByte(i));
  return packet;
}

WirePacket MakeWrite(Opcode opcode, Psn psn, uint32_t payload_bytes, uint32_t length,
                     uint64_t offset) {
  WirePacket packet = MakeRequest(opcode, psn, payload_bytes);
  packet.tx.ext.reth = {ScriptedHost::kMemoryVa + offset, ScriptedHost::kRkey, length};
  return packet;
}

WirePacket MakeReadRequest(Psn psn, uint32_t length, uint64_t offset) {
  return MakeWrite(Opcode::kRcReadRequest, psn, 0, length, offset);
}

WirePacket MakeFlush(Psn psn, uint8_t type, uint8_t level, uint32_t length, uint64_t offset) {
  WirePacket packet = MakeWrite(Opcode::kRcFlush, psn, 0, length, offset);
  packet.tx.ext.feth = {type, level};
  return packet;
}

WirePacket MakeCompareSwap(Psn psn, uint64_t compare, uint64_t swap, uint64_t offset) {
  WirePacket packet = MakeRequest(Opcode::kRcCompareSwap, psn);
  packet.tx.ext.atomic = {ScriptedHost::kMemoryVa + offset, ScriptedHost::kRkey, swap, compare};
  return packet;
}

WirePacket MakeFetchAdd(Psn psn, uint64_t add, uint64_t offset) {
  WirePacket packet = MakeRequest(Opcode::kRcFetchAdd, psn);
  packet.tx.ext.atomic = {ScriptedHost::kMemoryVa + offset, ScriptedHost::kRkey, add, 0};
  return packet;
}

WirePacket MakeAck(Psn psn) {
  WirePacket packet = MakeRequest(Opcode::kRcAcknowledge, psn, 0, false);
  packet.tx.ext.aeth = Aeth::Ack(Msn(1));
  return packet;
}

WirePacket MakeNak(Psn psn, NakCode code) {
  WirePacket packet = MakeAck(psn);
  packet.tx.ext.aeth = Aeth::Nak(Msn(1), code);
  return packet;
}

WirePacket MakeRnrNak(Psn psn, uint8_t timer) {
  WirePacket packet = MakeAck(psn);
  packet.tx.ext.aeth = Aeth::RnrNak(Msn(1), timer);
  return packet;
}

WirePacket MakeReadResponse(Opcode opcode, Psn psn, uint32_t payload_bytes, uint8_t seed) {
  WirePacket packet = MakeAck(psn);
  packet.tx.opcode = opcode;
  packet.tx.payload_length = payload_bytes;
  for (uint32_t i = 0; i < payload_bytes; ++i) packet.payload.push_back(PayloadByte(i, seed));
  return packet;
}

WirePacket MakeAtomicAck(Psn psn, uint64_t original) {
  WirePacket packet = MakeAck(psn);
  packet.tx.opcode = Opcode::kRcAtomicAcknowledge;
  packet.tx.ext.atomic_ack.original = original;
  return packet;
}

template class Qp<ScriptedHost>;

}  // namespace roci::roce
