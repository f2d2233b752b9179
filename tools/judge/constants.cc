#include "tools/judge/constants.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace roci::tools::judge {
namespace {

using roce::DropReason;
using roce::ExtHeader;

bool IsUnreliable(roce::Transport transport) {
  return transport == roce::Transport::kUc || transport == roce::Transport::kUd;
}

void CheckIpHeader(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const roce::Packet& packet = frame.packet;
  if (packet.hop_limit == 0) {
    out.Sure(Rule::kHopLimit, flow, frame, [] { return std::string(); });
  }
  const auto ecn = packet.ecn();
  FlowConstants& constants = flow.constants;
  if (ecn == roce::kEcnCongestionExperienced && constants.known && !constants.has_ect) {
    out.Sure(Rule::kEcnBits, flow, frame, [] { return std::string("earlier packets had 0"); });
  }
  constants.has_ect |= ecn != 0;
  if (packet.is_ipv6) return;
  const auto fragment = roce::LoadBe<uint16_t>(packet.network_header + 6);
  if ((fragment & roce::Ipv4Header::kDontFragment) == 0) {
    out.Sure(Rule::kDontFragment, flow, frame, [] { return std::string("DF is 0"); });
  }
}

uint64_t SumOfWords(const std::byte* p, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < bytes; i += 2) sum += roce::LoadBe<uint16_t>(p + i);
  if (bytes % 2 != 0) sum += std::to_integer<uint64_t>(p[bytes - 1]) << 8;
  return sum;
}

// 0 is "not used"; others are right, or offloaded after the capture (RFC 768; RFC 8200, 8.1).
void CheckUdpChecksum(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const roce::Packet& packet = frame.packet;
  const size_t header = packet.is_ipv6 ? roce::Ipv6Header::kBytes : roce::Ipv4Header::kBytes;
  const std::byte* udp = packet.network_header + header;
  const auto stated = roce::LoadBe<uint16_t>(udp + 6);
  if (stated == 0 || !frame.payload_is_whole) return;
  const size_t addresses = packet.is_ipv6 ? 8 : 12;
  const size_t datagram = packet.network_bytes - header;
  const uint64_t sum = SumOfWords(packet.network_header + addresses, header - addresses) +
                       roce::kIpProtocolUdp + datagram + SumOfWords(udp, datagram);
  if (roce::FoldOnesComplement(sum) == 0xFFFF) return;
  out.Sure(Rule::kUdpChecksum, flow, frame, [stated] {
    return absl::StrFormat("0x%04x; a capture on the sender may precede offload", stated);
  });
}

void CheckSourcePort(const SeenFrame& frame, Flow& flow, Reporter& out) {
  constexpr uint16_t kLeast = 0xC000;
  const uint16_t port = frame.packet.udp_src_port;
  FlowConstants& constants = flow.constants;
  if (port < kLeast) {
    out.Sure(Rule::kSourcePortRange, flow, frame, [port] { return absl::StrCat(port); });
  }
  const bool is_connected = flow.transport != roce::Transport::kUd;
  if (constants.known && is_connected && port != constants.source_port) {
    out.Sure(Rule::kSourcePort, flow, frame,
             [&] { return absl::StrCat(port, " after ", constants.source_port); });
  }
  constants.source_port = port;
}

// Also those of a datagram or XRC header.
void CheckReservedBits(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const roce::OpcodeInfo& info = *frame.packet.info;
  const auto byte4 = std::to_integer<uint32_t>(frame.bth[4]) & 0x3F;
  const auto byte8 = std::to_integer<uint32_t>(frame.bth[8]) & 0x7F;
  uint32_t extension = 0;
  if (info.Has(ExtHeader::kDeth)) {
    extension = std::to_integer<uint32_t>(frame.bth[info.OffsetOf(ExtHeader::kDeth) + 4]);
  } else if (info.Has(ExtHeader::kXrcEth)) {
    extension = std::to_integer<uint32_t>(frame.bth[info.OffsetOf(ExtHeader::kXrcEth)]);
  }
  if ((byte4 | byte8 | extension) == 0) return;
  out.Sure(Rule::kReservedBits, flow, frame, [=] {
    return absl::StrFormat("0x%02x in byte 4 and 0x%02x in byte 8 of the BTH, 0x%02x after it",
                           byte4, byte8, extension);
  });
}

void CheckPkey(const SeenFrame& frame, Flow& flow, Reporter& out) {
  constexpr uint16_t kNumber = 0x7FFF;
  const uint16_t pkey = frame.packet.pkey;
  FlowConstants& constants = flow.constants;
  const bool is_connected = flow.transport != roce::Transport::kUd;
  if (constants.known && is_connected && pkey != constants.pkey) {
    out.Sure(Rule::kPkey, flow, frame,
             [&] { return absl::StrFormat("0x%04x after 0x%04x", pkey, constants.pkey); });
    return;
  }
  if (!constants.known && (pkey & kNumber) == 0) {
    out.Sure(Rule::kPkey, flow, frame, [pkey] { return absl::StrFormat("0x%04x", pkey); });
  }
  constants.pkey = pkey;
}

void CheckBth(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const roce::Packet& packet = frame.packet;
  if (!packet.mig_req && packet.info->operation != roce::Operation::kCnp) {
    out.Sure(Rule::kMigReq, flow, frame, [] { return std::string(); });
  }
  if (packet.ack_request && IsUnreliable(packet.info->transport)) {
    out.Sure(Rule::kAckReqUnreliable, flow, frame, [] { return std::string(); });
  }
  const bool takes_receive =
      packet.info->IsLast() &&
      (packet.info->operation == roce::Operation::kSend || packet.info->Has(ExtHeader::kImmDt));
  if (packet.solicited && !takes_receive && packet.info->operation != roce::Operation::kCnp) {
    out.Sure(Rule::kSolicited, flow, frame, [&] { return std::string(packet.info->name); });
  }
}

}  // namespace

Rule RuleOf(DropReason reason) {
  switch (reason) {
    case DropReason::kIpv4Options:
    case DropReason::kIpv6Extension:
      return Rule::kIpOptions;
    case DropReason::kIpv4Fragment:
    case DropReason::kIpv6Fragment:
      return Rule::kIpFragment;
    case DropReason::kUdpLength:
      return Rule::kUdpLength;
    case DropReason::kTransportVersion:
      return Rule::kTransportVersion;
    case DropReason::kReservedOpcode:
      return Rule::kOpcode;
    case DropReason::kHeadersTruncated:
      return Rule::kHeaders;
    case DropReason::kLengthNotMultipleOf4:
    case DropReason::kPadCount:
      return Rule::kPadCount;
    case DropReason::kPayloadLength:
      return Rule::kPayloadLength;
    default:
      return Rule::kIpHeader;
  }
}

void CheckConstants(const SeenFrame& frame, Flow& flow, Reporter& out) {
  CheckIpHeader(frame, flow, out);
  CheckUdpChecksum(frame, flow, out);
  CheckSourcePort(frame, flow, out);
  CheckReservedBits(frame, flow, out);
  CheckPkey(frame, flow, out);
  CheckBth(frame, flow, out);
  flow.constants.known = true;
}

}  // namespace roci::tools::judge
