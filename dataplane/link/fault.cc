#include "dataplane/link/fault.h"

#include <algorithm>

#include "dataplane/link/frame_filter.h"
#include "dataplane/link/impairment.h"
#include "roce/headers.h"
#include "roce/icrc.h"
#include "roce/opcode.h"

namespace roci::dataplane {
namespace {

bool FlipBit(std::span<std::byte> part, uint32_t bit) {
  if (bit / 8 >= part.size()) return false;
  part[bit / 8] ^= static_cast<std::byte>(0x80u >> (bit % 8));
  return true;
}

// From the BTH to the end of the ICRC, by the length in the IP header; empty: cut off.
std::span<std::byte> WithoutPadding(std::span<std::byte> frame, std::span<std::byte> transport) {
  const NetworkHeader network = FindNetworkHeader(frame);
  const std::byte* ip = frame.data() + network.offset;
  const size_t ip_bytes =
      network.version == 4
          ? roce::Ipv4Header::Load(ip).total_length
          : roce::Ipv6Header::kBytes + size_t{roce::Ipv6Header::Load(ip).payload_length};
  const auto before = static_cast<size_t>(transport.data() - ip);
  if (ip_bytes < before + roce::Bth::kBytes + roce::kIcrcBytes) return {};
  const size_t bytes = ip_bytes - before;
  return bytes <= transport.size() ? transport.first(bytes) : std::span<std::byte>();
}

// `packet`: WithoutPadding. A UDP checksum, which covers the ICRC, is removed.
void FixIcrc(std::span<std::byte> frame, std::span<std::byte> packet) {
  const NetworkHeader network = FindNetworkHeader(frame);
  std::byte* ip = frame.data() + network.offset;
  std::byte* icrc = packet.data() + packet.size() - roce::kIcrcBytes;
  roce::StoreBe<uint16_t>(packet.data() - sizeof(uint16_t), 0);
  roce::StoreIcrc(icrc, roce::ActiveCrcKernel().masked(ip, static_cast<size_t>(icrc - ip),
                                                       network.version == 6));
}

std::span<std::byte> PartOf(std::span<std::byte> packet, PacketPart part) {
  const std::span<std::byte> before_icrc = packet.first(packet.size() - roce::kIcrcBytes);
  const roce::OpcodeInfo& info = roce::kOpcodeTable[std::to_integer<uint8_t>(packet[0])];
  const size_t headers = info.known ? info.header_bytes : roce::Bth::kBytes;
  switch (part) {
    case PacketPart::kHeaders:
      return headers <= before_icrc.size() ? before_icrc.first(headers) : before_icrc;
    case PacketPart::kPayload:
      return headers <= before_icrc.size() ? before_icrc.subspan(headers) : std::span<std::byte>();
    case PacketPart::kIcrc:
      return packet.last(roce::kIcrcBytes);
  }
  return {};
}

// The attribute ID of a message of the communication manager (IBTA vol 1, 13.4.3 and 16.7.1); 0:
// another packet.
uint16_t CmMessageOf(std::span<const std::byte> transport) {
  constexpr size_t kMad = roce::Bth::kBytes + roce::Deth::kBytes;
  constexpr size_t kClass = kMad + 1;
  constexpr size_t kAttribute = kMad + 16;
  constexpr std::byte kCommunicationManagement{7};
  if (transport.size() < kAttribute + sizeof(uint16_t)) return 0;
  const roce::Bth bth = roce::Bth::Load(transport.data());
  if (bth.opcode != roce::Opcode::kUdSendOnly || bth.dest_qpn != roce::kGsiQpn ||
      transport[kClass] != kCommunicationManagement) {
    return 0;
  }
  return roce::LoadBe<uint16_t>(transport.data() + kAttribute);
}

}  // namespace

FaultSnapshot Fault::Snapshot() const {
  FaultSnapshot out;
#define ROCI_FAULT_READ(member, name) out.member = member.load(std::memory_order_relaxed);
  ROCI_FAULT_COUNTERS(ROCI_FAULT_READ)
#undef ROCI_FAULT_READ
  return out;
}

FaultLane::FaultLane(Fault& fault)
    : fault_(fault),
      injects_(fault.settings.actions.injection.kind != Injection::Kind::kNone),
      changes_packets_(!injects_ && (!fault.settings.actions.changes.empty() ||
                                     !fault.settings.actions.flips.empty())) {
  if (fault.settings.actions.injection.kind == Injection::Kind::kStale) {
    first_.resize(kMostInjectedBytes);
  }
}

void FaultLane::Apply(const FaultFrame& frame, FaultFate& fate) {
  if (!Hits(frame)) return;
  fate.is_hit = true;
  const FaultActions& actions = fault_.settings.actions;
  if (injects_) fate.injects = this;
  if (actions.drops) {
    fate.is_dropped = true;
    return;
  }
  if (!injects_ && actions.marks_ecn && !MarkCongestion(frame.bytes)) Add(fault_.not_there);
  if (changes_packets_) Change(frame.bytes, frame.transport());
  fate.copies += actions.copies;
  fate.delay_ns += actions.delay_ns;
  fate.overtaken_by += actions.overtaken_by;
  fate.cut_bytes += actions.cut_bytes;
  if (actions.copies != 0 || actions.delay_ns != 0 || actions.overtaken_by != 0) fate.by = this;
}

std::optional<InjectedFrame> FaultLane::Inject(const FaultFrame& hit, roce::Qpn answered,
                                               std::span<std::byte> out) {
  const FaultActions& actions = fault_.settings.actions;
  const std::span<const std::byte> first(first_.data(), first_bytes_);
  const auto made = MakeInjected(actions.injection, hit, answered, first, out);
  if (!made.has_value()) {
    Add(fault_.not_there);
    return made;
  }
  const std::span<std::byte> frame = out.first(made->bytes);
  if (actions.marks_ecn && !MarkCongestion(frame)) Add(fault_.not_there);
  if (actions.changes.empty() && actions.flips.empty()) return made;
  const size_t transport = FromBth(frame).size();
  if (transport != 0) {
    Change(frame, frame.last(transport));
  } else {
    Add(fault_.not_there);  // of a capture, and no RoCE packet
  }
  return made;
}

// A queue pair that is named, besides what MatchesPacket knows: the one that sends the packet.
bool FaultLane::Matches(const FaultFrame& frame) {
  const FaultMatch& match = fault_.settings.match;
  const FrameFilter& filter = match.filter;
  if (filter.MatchesAll() || MatchesPacket(filter, frame.transport())) return true;
  if (filter.opcodes.any() && !filter.opcodes.test(static_cast<uint8_t>(frame.bth().opcode))) {
    return false;
  }
  return frame.direction == LinkDirection::kOut &&
         std::ranges::find(filter.qpns, frame.own) != filter.qpns.end();
}

bool FaultLane::Hits(const FaultFrame& frame) {
  const FaultMatch& match = fault_.settings.match;
  const std::span<const std::byte> transport = frame.transport();
  const uint64_t age_ns = frame.now_ns > fault_.began_ns ? frame.now_ns - fault_.began_ns : 0;
  if (fault_.is_over.load(std::memory_order_relaxed)) return false;
  if (!match.when.IsInTime(age_ns) || !Matches(frame)) return false;
  if (match.cm_message != 0 && CmMessageOf(transport) != match.cm_message) return false;
  if (match.peer.has_value() && PeerOf(frame) != *match.peer) return false;
  if (!fault_.choice.Takes(frame.origin)) {
    if (frame.is_of_other_lcore) Add(fault_.untracked);
    return false;
  }
  if (match.psn.has_value() && !HasPsn(transport)) return false;
  if (!first_.empty() && first_bytes_ == 0) KeepFirst(frame);
  return match.when.Count(fault_.matched, fault_.hit);
}

void FaultLane::KeepFirst(const FaultFrame& frame) {
  if (frame.bytes.size() > first_.size()) return;
  std::ranges::copy(frame.bytes, first_.begin());
  first_bytes_ = frame.bytes.size();
}

// Whether the packet has the PSN of the match, and passes for the right time.
bool FaultLane::HasPsn(std::span<const std::byte> transport) {
  const FaultMatch& match = fault_.settings.match;
  const roce::Bth bth = roce::Bth::Load(transport.data());
  roce::Psn wanted(*match.psn);
  if (!match.psn_from_first && match.pass == 0) return bth.psn == wanted;
  const roce::OpcodeInfo& info = roce::InfoOf(bth.opcode);
  Flow* const flow = FlowOf(bth.dest_qpn, info.known && !info.is_request, bth.psn);
  if (flow == nullptr) {
    Add(fault_.untracked);
    return false;
  }
  if (match.psn_from_first) wanted = flow->first + *match.psn;
  if (bth.psn != wanted) return false;
  ++flow->passes;
  return match.pass == 0 || flow->passes == match.pass;
}

FaultLane::Flow* FaultLane::FlowOf(roce::Qpn qpn, bool is_response, roce::Psn psn) {
  for (size_t i = 0; i < flow_count_; ++i) {
    if (flows_[i].qpn == qpn && flows_[i].is_response == is_response) return &flows_[i];
  }
  if (flow_count_ == flows_.size()) return nullptr;
  Flow& flow = flows_[flow_count_++];
  flow = {.qpn = qpn, .is_response = is_response, .first = psn};
  return &flow;
}

void FaultLane::Change(std::span<std::byte> frame, std::span<std::byte> transport) {
  const FaultActions& actions = fault_.settings.actions;
  const std::span<std::byte> packet = WithoutPadding(frame, transport);
  if (packet.empty()) return Add(fault_.not_there);
  // Which fields there are is decided by the opcode, so it is changed last.
  for (const bool is_opcode : {false, true}) {
    for (const FieldChange& change : actions.changes) {
      if (roce::IsOpcode(*change.field) != is_opcode) continue;
      const std::optional<uint64_t> old = roce::ReadField(packet, *change.field);
      const uint64_t value = change.value + (change.adds ? old.value_or(0) : 0);
      if (!old.has_value() || !roce::WriteField(packet, *change.field, value)) {
        Add(fault_.not_there);
      }
    }
  }
  for (const BitFlip& flip : actions.flips) {
    if (flip.part != PacketPart::kIcrc && !FlipBit(PartOf(packet, flip.part), flip.bit)) {
      Add(fault_.not_there);
    }
  }
  if (actions.fixes_icrc) FixIcrc(frame, packet);
  for (const BitFlip& flip : actions.flips) {
    if (flip.part == PacketPart::kIcrc && !FlipBit(PartOf(packet, flip.part), flip.bit)) {
      Add(fault_.not_there);
    }
  }
}

}  // namespace roci::dataplane
