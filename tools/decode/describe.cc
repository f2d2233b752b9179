#include "tools/decode/describe.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "control/net/ip_text.h"

namespace roci::tools {
namespace {

using Json = nlohmann::ordered_json;
using roce::ExtHeader;

// Fields that the text prints in hexadecimal.
constexpr std::array<std::string_view, 20> kInHex = {
    "type", "checksum", "id",       "pkey",     "dest_qpn", "src_qpn",   "qkey",
    "va",   "rkey",     "swap_add", "compare",  "original", "imm",       "srqn",
    "tos",  "computed", "found",    "syndrome", "protocol", "ee_context"};

const char* DirectionName(Direction direction) {
  switch (direction) {
    case Direction::kIn:
      return "in";
    case Direction::kOut:
      return "out";
    case Direction::kUnknown:
      break;
  }
  return nullptr;
}

std::string HexText(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) absl::StrAppendFormat(&out, "%02x", std::to_integer<int>(b));
  return out;
}

// For negative seconds, the nanoseconds still count forwards.
std::string TimeText(int64_t seconds, uint32_t nanoseconds) {
  if (seconds >= 0 || nanoseconds == 0) return absl::StrFormat("%d.%09d", seconds, nanoseconds);
  return absl::StrFormat("-%d.%09d", -(seconds + 1), 1'000'000'000 - nanoseconds);
}

Json DescribeOuter(const OuterHeader& outer) {
  Json out = {{"header", HeaderName(outer.header)}};
  if (outer.src) out["src"] = control::IpText(*outer.src);
  if (outer.dst) out["dst"] = control::IpText(*outer.dst);
  if (outer.id) {
    const uint32_t mask = outer.header == Header::kVlan ? roce::VlanTag::kIdMask : ~uint32_t{0};
    out[HeaderIdName(outer.header)] = *outer.id & mask;
  }
  return out;
}

Json DescribeUdp(const DecodedFrame& frame) {
  Json out = {{"src_port", frame.udp->src_port},
              {"dst_port", frame.udp->dst_port},
              {"length", frame.udp->length},
              {"checksum", frame.udp->checksum}};
  if (frame.udp_checksum_computed) out["computed"] = *frame.udp_checksum_computed;
  return out;
}

Json DescribeIpv4(const DecodedFrame& frame) {
  const roce::Ipv4Header& ip = *frame.ipv4;
  return {{"version", ip.version_ihl >> 4},
          {"ihl", ip.version_ihl & 0xF},
          {"tos", ip.tos},
          {"dscp", ip.tos >> 2},
          {"ecn", ip.tos & 3},
          {"total_length", ip.total_length},
          {"id", ip.id},
          {"df", (ip.fragment & roce::Ipv4Header::kDontFragment) != 0},
          {"mf", (ip.fragment & roce::Ipv4Header::kMoreFragments) != 0},
          {"offset", (ip.fragment & roce::Ipv4Header::kOffsetMask) * 8},
          {"ttl", ip.ttl},
          {"protocol", ip.protocol},
          {"checksum", ip.checksum},
          {"src", control::IpText(roce::Gid::FromIpv4(ip.src))},
          {"dst", control::IpText(roce::Gid::FromIpv4(ip.dst))},
          {"option_bytes", frame.ipv4_option_bytes}};
}

Json DescribeIpv6(const DecodedFrame& frame) {
  const roce::Ipv6Header& ip = *frame.ipv6;
  return {{"version", ip.version},
          {"tos", ip.traffic_class},
          {"dscp", ip.traffic_class >> 2},
          {"ecn", ip.traffic_class & 3},
          {"flow_label", ip.flow_label},
          {"payload_length", ip.payload_length},
          {"next_header", ip.next_header},
          {"hop_limit", ip.hop_limit},
          {"src", control::IpText(roce::Gid::FromIpv6(ip.src))},
          {"dst", control::IpText(roce::Gid::FromIpv6(ip.dst))},
          {"extension_bytes", frame.ipv6_extension_bytes}};
}

Json DescribeGrh(const roce::Ipv6Header& grh) {
  return {{"version", grh.version},
          {"tclass", grh.traffic_class},
          {"flow_label", grh.flow_label},
          {"payload_length", grh.payload_length},
          {"next_header", grh.next_header},
          {"hop_limit", grh.hop_limit},
          {"src", control::IpText(roce::Gid::FromIpv6(grh.src))},
          {"dst", control::IpText(roce::Gid::FromIpv6(grh.dst))}};
}

Json DescribeBth(const DecodedFrame& frame) {
  const roce::Bth& bth = *frame.bth;
  return {{"opcode", static_cast<uint8_t>(bth.opcode)},
          {"name", LayoutOf(bth.opcode).name},
          {"solicited", bth.solicited},
          {"mig_req", bth.mig_req},
          {"pad", bth.pad_count},
          {"tver", bth.transport_version},
          {"pkey", bth.pkey},
          {"fecn", bth.fecn},
          {"becn", bth.becn},
          {"resv6", frame.bth_reserved6},
          {"dest_qpn", bth.dest_qpn.value()},
          {"ack_request", bth.ack_request},
          {"resv7", frame.bth_reserved7},
          {"psn", bth.psn.value()}};
}

Json DescribeAeth(const roce::Aeth& aeth) {
  constexpr std::array kKinds = {"ack", "rnr_nak", "reserved", "nak"};
  constexpr std::array kNaks = {"psn_sequence_error", "invalid_request", "remote_access_error",
                                "remote_operational_error", "invalid_rd_request"};
  Json out = {{"syndrome", aeth.syndrome}, {"kind", kKinds[static_cast<size_t>(aeth.kind())]}};
  switch (aeth.kind()) {
    case roce::AethKind::kAck:
      // The number of receives, null if the responder gives none.
      out["credits"] =
          aeth.value() == roce::kNoCredits ? Json() : Json(roce::CreditsOf(aeth.value()));
      break;
    case roce::AethKind::kRnrNak:
      out["timer"] = aeth.value();
      break;
    case roce::AethKind::kNak:
      out["code"] = aeth.value() < kNaks.size() ? kNaks[aeth.value()] : "reserved";
      break;
    case roce::AethKind::kReserved:
      break;
  }
  out["msn"] = aeth.msn.value();
  return out;
}

// The PSNs that a selective NAK asks for, as ranges [first, last].
Json DescribeMissing(const roce::MissingEth& missing, roce::Psn psn) {
  Json out = Json::array();
  for (uint32_t i = 0; i < roce::MissingEth::kPsns; ++i) {
    if (!missing.Has(i)) continue;
    const uint32_t first = i;
    while (i + 1 < roce::MissingEth::kPsns && missing.Has(i + 1)) ++i;
    out.push_back({(psn + first).value(), (psn + i).value()});
  }
  return out;
}

void AddExtHeaders(const DecodedFrame& frame, Json& out) {
  const roce::ExtHeaders& ext = frame.ext;
  const auto has = [&](ExtHeader kind) {
    return (frame.ext_present & roce::OpcodeInfo::Bit(kind)) != 0;
  };
  if (frame.rdeth) {
    out["rdeth"] = {{"resv8", frame.rdeth->reserved8}, {"ee_context", frame.rdeth->ee_context}};
  }
  if (has(ExtHeader::kDeth)) {
    out["deth"] = {{"qkey", ext.deth.qkey},
                   {"resv8", frame.ext_reserved8},
                   {"src_qpn", ext.deth.src_qpn.value()}};
  }
  if (has(ExtHeader::kXrcEth)) {
    out["xrceth"] = {{"resv8", frame.ext_reserved8}, {"srqn", ext.xrc.srq_number}};
  }
  if (has(ExtHeader::kFeth)) {
    out["feth"] = {{"placement_type", ext.feth.placement_type},
                   {"selectivity_level", ext.feth.selectivity_level},
                   {"resv26", frame.feth_reserved}};
  }
  if (has(ExtHeader::kCnpReserved)) out["cnp"] = {{"resv128", HexText(frame.cnp_reserved)}};
  if (has(ExtHeader::kReth)) {
    out["reth"] = {
        {"va", ext.reth.va}, {"rkey", ext.reth.rkey.value()}, {"length", ext.reth.length}};
  }
  if (has(ExtHeader::kAtomicEth)) {
    out["atomiceth"] = {{"va", ext.atomic.va},
                        {"rkey", ext.atomic.rkey.value()},
                        {"swap_add", ext.atomic.swap_add},
                        {"compare", ext.atomic.compare}};
  }
  if (has(ExtHeader::kAeth)) out["aeth"] = DescribeAeth(ext.aeth);
  if (has(ExtHeader::kAtomicAckEth)) out["atomicacketh"] = {{"original", ext.atomic_ack.original}};
  if (has(ExtHeader::kImmDt)) out["immdt"] = {{"imm", ext.imm.value}};
  if (has(ExtHeader::kIeth)) out["ieth"] = {{"rkey", ext.ieth.rkey.value()}};
  if (has(ExtHeader::kMissing)) out["missing"] = DescribeMissing(ext.missing, frame.bth->psn);
}

void AddVerdicts(const DecodedFrame& frame, Json& out) {
  switch (frame.icrc) {
    case IcrcVerdict::kGood:
      out["icrc"] = {{"verdict", "good"}, {"found", frame.icrc_found}};
      break;
    case IcrcVerdict::kBad:
      out["icrc"] = {
          {"verdict", "bad"}, {"found", frame.icrc_found}, {"computed", frame.icrc_computed}};
      break;
    case IcrcVerdict::kUnchecked:
      out["icrc"] = {{"verdict", "unchecked"}};
      break;
  }
  switch (frame.reencoded) {
    case ReencodeVerdict::kSame:
      out["reencoded"] = "same";
      break;
    case ReencodeVerdict::kDiffers:
      out["reencoded"] = absl::StrCat("differs at byte ", frame.differs_at);
      break;
    case ReencodeVerdict::kUnchecked:
      out["reencoded"] = "unchecked";
      break;
  }
  if (frame.malformed != roce::DropReason::kNone) {
    out["malformed"] = std::string(roce::DropReasonName(frame.malformed));
  }
  if (frame.cut) out["cut"] = true;
  out["verdict"] = frame.failed() ? "failed" : frame.cut ? "cut" : "ok";
}

std::string ValueInText(std::string_view name, const Json& value) {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    return text.find(' ') == std::string::npos ? text : absl::StrCat("\"", text, "\"");
  }
  if (value.is_number_unsigned() || value.is_number_integer()) {
    const bool hex = std::find(kInHex.begin(), kInHex.end(), name) != kInHex.end();
    if (hex) return absl::StrFormat("0x%x", value.get<uint64_t>());
  }
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.dump();
}

std::string GroupInText(const Json& group) {
  std::string out = "{";
  for (const auto& [name, value] : group.items()) {
    absl::StrAppend(&out, out.size() == 1 ? "" : " ", name, "=", ValueInText(name, value));
  }
  return out + "}";
}

}  // namespace

Json Describe(const CaptureRecord& record, const DecodedFrame& frame) {
  Json out = {{"frame", record.number}};
  if (record.has_time) {
    out["time"] = TimeText(record.seconds, record.nanoseconds);
  }
  out["interface"] = record.interface;
  if (const char* name = DirectionName(record.direction)) out["direction"] = name;
  out["length"] = record.original_length;
  out["captured"] = record.bytes.size();
  for (const OuterHeader& outer : frame.outer) out["in"].push_back(DescribeOuter(outer));
  if (frame.ethernet) {
    out["eth"] = {{"dst", control::MacText(frame.ethernet->dst)},
                  {"src", control::MacText(frame.ethernet->src)},
                  {"type", frame.ethernet->ether_type}};
  }
  for (const VlanLayer& tag : frame.vlans) {
    out["vlan"].push_back({{"protocol", tag.protocol},
                           {"priority", tag.tci >> 13},
                           {"dei", (tag.tci >> 12) & 1},
                           {"vid", tag.tci & 0xFFF}});
  }
  if (frame.ipv4) out["ipv4"] = DescribeIpv4(frame);
  if (frame.ipv6) out["ipv6"] = DescribeIpv6(frame);
  if (frame.udp) out["udp"] = DescribeUdp(frame);
  if (frame.grh) out["grh"] = DescribeGrh(*frame.grh);
  if (frame.bth) out["bth"] = DescribeBth(frame);
  AddExtHeaders(frame, out);
  if (frame.payload_bytes) out["payload"] = *frame.payload_bytes;
  if (frame.has_pad_bits()) {
    out["pad"] = HexText(std::span(frame.pad).first(frame.bth->pad_count));
  }
  if (frame.trailer_bytes != 0) out["trailer"] = frame.trailer_bytes;
  AddVerdicts(frame, out);
  return out;
}

std::string DescribeInText(const Json& description) {
  std::string out;
  for (const auto& [name, value] : description.items()) {
    if (name == "frame") {
      absl::StrAppend(&out, value.dump());
    } else if (name == "time") {
      absl::StrAppend(&out, " ", value.get<std::string>());
    } else if (value.is_array()) {
      for (const Json& group : value) absl::StrAppend(&out, " ", name, GroupInText(group));
    } else if (value.is_object()) {
      absl::StrAppend(&out, " ", name, GroupInText(value));
    } else {
      absl::StrAppend(&out, " ", name, "=", ValueInText(name, value));
    }
  }
  return out;
}

}  // namespace roci::tools
