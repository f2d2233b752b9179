#include "control/net/group_reports.h"

#include <algorithm>
#include <cstring>

#include "control/net/vlan_frames.h"
#include "roce/headers.h"

namespace roci::control {
namespace {

using roce::EthernetHeader;
using roce::Gid;
using roce::LoadBe;
using roce::NetAddress;
using roce::StoreBe;
using roce::TimeNs;

constexpr uint8_t kIpProtocolIgmp = 2;
constexpr uint8_t kIpProtocolHopByHop = 0;
constexpr uint8_t kIgmpQuery = 0x11;
constexpr uint8_t kIgmpReport1 = 0x12;
constexpr uint8_t kIgmpReport2 = 0x16;
constexpr uint8_t kIgmpLeave = 0x17;
constexpr uint8_t kMldQuery = 130;
constexpr uint8_t kMldReport = 131;
constexpr uint8_t kMldDone = 132;

constexpr size_t kRouterAlertBytes = 4;  // IPv4's option (RFC 2113)
constexpr uint32_t kRouterAlert = 0x94040000;
constexpr size_t kHopByHopBytes = 8;  // with IPv6's (RFC 2711)
// Both messages have the type at offset 0 and the checksum at offset 2.
constexpr size_t kChecksumOffset = 2;
constexpr size_t kIgmpBytes = 8;  // RFC 2236, 2
constexpr size_t kIgmpTimeOffset = 1, kIgmpGroupOffset = 4;
constexpr size_t kMldBytes = 24;  // RFC 2710, 3
constexpr size_t kMldTimeOffset = 4, kMldGroupOffset = 8;
// Bits of the mantissa of a long time: in 8 bits (RFC 3376, 4.1.1), in 16 bits (RFC 3810, 5.1.3).
constexpr int kIgmpMantissaBits = 4, kMldMantissaBits = 12;
constexpr TimeNs kOldQueryNs = 10'000'000'000;  // response time of a version 1 query (RFC 2236, 4)

Gid GroupOf(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return Gid::FromIpv4(roce::Ipv4{{a, b, c, d}});
}
const Gid& AllHosts(bool ipv4) {
  static const Gid v4 = GroupOf(224, 0, 0, 1);
  static const Gid v6{{0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return ipv4 ? v4 : v6;
}
const Gid& AllRouters(bool ipv4) {
  static const Gid v4 = GroupOf(224, 0, 0, 2);
  static const Gid v6{{0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  return ipv4 ? v4 : v6;
}

// Not reported: the all-hosts group, which every host joins, and IPv6 groups of node-local scope
// (RFC 2710, 5).
bool IsReported(const Gid& group) {
  const bool ipv4 = group.IsIpv4();
  return group != AllHosts(ipv4) && (ipv4 || (group.bytes[1] & 0xF) > 1);
}

// RFC 1071; `bytes` of even length.
uint16_t Checksum(std::span<const std::byte> bytes, uint64_t sum = 0) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += LoadBe<uint16_t>(bytes.data() + i);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

uint64_t PseudoHeader(const Gid& source, const Gid& destination, size_t bytes) {
  uint64_t sum = bytes + roce::kIpProtocolIcmpv6;
  for (size_t i = 0; i < 16; i += 2) {
    sum += static_cast<uint64_t>(source.bytes[i] << 8 | source.bytes[i + 1]);
    sum += static_cast<uint64_t>(destination.bytes[i] << 8 | destination.bytes[i + 1]);
  }
  return sum;
}

Frame BuildIgmp(const roce::Mac& source_mac, const Gid& source, const Gid& destination,
                uint8_t type, const Gid& group) {
  constexpr size_t kHeader = roce::Ipv4Header::kBytes + kRouterAlertBytes;
  Frame frame(roce::kMinFrameBytes);
  EthernetHeader{MulticastMac(destination), source_mac, roce::kEtherTypeIpv4}.Store(frame.data());
  std::byte* ip = frame.data() + EthernetHeader::kBytes;
  roce::Ipv4Header header;
  header.total_length = kHeader + kIgmpBytes;
  header.ttl = 1;
  header.protocol = kIpProtocolIgmp;
  header.src = source.ToIpv4();
  header.dst = destination.ToIpv4();
  header.Store(ip);
  ip[0] = std::byte{0x40 | kHeader / 4};
  StoreBe<uint32_t>(ip + roce::Ipv4Header::kBytes, kRouterAlert);
  StoreBe<uint16_t>(ip + roce::Ipv4Header::kChecksumOffset, 0);
  StoreBe<uint16_t>(ip + roce::Ipv4Header::kChecksumOffset, Checksum({ip, kHeader}));
  std::byte* igmp = ip + kHeader;
  igmp[0] = std::byte{type};
  std::memcpy(igmp + kIgmpGroupOffset, group.ToIpv4().bytes.data(), sizeof(roce::Ipv4));
  StoreBe<uint16_t>(igmp + kChecksumOffset, Checksum({igmp, kIgmpBytes}));
  return frame;
}

Frame BuildMld(const roce::Mac& source_mac, const Gid& source, const Gid& destination, uint8_t type,
               const Gid& group) {
  Frame frame(EthernetHeader::kBytes + roce::Ipv6Header::kBytes + kHopByHopBytes + kMldBytes);
  EthernetHeader{MulticastMac(destination), source_mac, roce::kEtherTypeIpv6}.Store(frame.data());
  std::byte* ip = frame.data() + EthernetHeader::kBytes;
  roce::Ipv6Header header;
  header.payload_length = kHopByHopBytes + kMldBytes;
  header.next_header = kIpProtocolHopByHop;
  header.hop_limit = 1;
  header.src = source.ToIpv6();
  header.dst = destination.ToIpv6();
  header.Store(ip);
  std::byte* options = ip + roce::Ipv6Header::kBytes;
  // Router alert for MLD, and two bytes of padding.
  constexpr uint8_t kOptions[kHopByHopBytes] = {roce::kIpProtocolIcmpv6, 0, 5, 2, 0, 0, 1, 0};
  std::memcpy(options, kOptions, sizeof(kOptions));
  std::byte* mld = options + kHopByHopBytes;
  mld[0] = std::byte{type};
  std::memcpy(mld + kMldGroupOffset, group.bytes.data(), group.bytes.size());
  StoreBe<uint16_t>(mld + kChecksumOffset,
                    Checksum({mld, kMldBytes}, PseudoHeader(source, destination, kMldBytes)));
  return frame;
}

// Newer versions encode long times as floating point (RFC 3376, 4.1.1; RFC 3810, 5.1.3).
uint64_t FloatTime(uint32_t code, int mantissa_bits) {
  if (code >> (mantissa_bits + 3) == 0) return code;
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = code >> mantissa_bits & 7;
  return uint64_t{mantissa | 1u << mantissa_bits} << (exponent + 3);
}

}  // namespace

struct GroupReports::Message {
  bool is_query = false;
  Gid group;  // all zero: a query about every group
  uint16_t vlan = 0;
  bool ipv4 = false;
  TimeNs longest = 0;  // queries: longest response time
};

namespace {

constexpr auto kIsOther = std::nullopt;

// `out`: the IGMP message of an IPv4 packet. Nothing: not IGMP.
std::optional<SlowPathReason> FindIgmp(std::span<const std::byte> ip,
                                       std::span<const std::byte>& out) {
  if (ip.size() < roce::Ipv4Header::kBytes) return kIsOther;
  const roce::Ipv4Header fields = roce::Ipv4Header::Load(ip.data());
  const size_t header = (fields.version_ihl & 0xFu) * 4;
  if (fields.protocol != kIpProtocolIgmp) return kIsOther;
  const size_t total = fields.total_length;
  if (header < roce::Ipv4Header::kBytes || total < header + kIgmpBytes || total > ip.size()) {
    return SlowPathReason::kIpv4Malformed;
  }
  constexpr uint16_t kFragment = roce::Ipv4Header::kMoreFragments | roce::Ipv4Header::kOffsetMask;
  if ((fields.fragment & kFragment) != 0) return SlowPathReason::kIpv4Fragment;
  if (Checksum(ip.first(header)) != 0) return SlowPathReason::kIpv4Malformed;
  out = ip.subspan(header, total - header);
  // TTL 1: sent on this link (RFC 2236, 2).
  if (fields.ttl != 1) return SlowPathReason::kGroupMalformed;
  return SlowPathReason::kHandled;
}

// `out`: the MLD message behind a hop-by-hop header (RFC 2710, 3). Nothing: not MLD.
std::optional<SlowPathReason> FindMld(std::span<const std::byte> ip,
                                      std::span<const std::byte>& out) {
  constexpr size_t kLeast = roce::Ipv6Header::kBytes + kHopByHopBytes + kMldBytes;
  if (ip.size() < kLeast) return kIsOther;
  const roce::Ipv6Header header = roce::Ipv6Header::Load(ip.data());
  if (header.next_header != kIpProtocolHopByHop) return kIsOther;
  const std::byte* options = ip.data() + roce::Ipv6Header::kBytes;
  if (options[0] != std::byte{roce::kIpProtocolIcmpv6}) return kIsOther;
  const size_t skip = (std::to_integer<size_t>(options[1]) + 1) * 8;
  if (header.payload_length > ip.size() - roce::Ipv6Header::kBytes ||
      skip + kMldBytes > header.payload_length) {
    return SlowPathReason::kIpv6Malformed;
  }
  out = ip.subspan(roce::Ipv6Header::kBytes + skip, header.payload_length - skip);
  const uint8_t type = std::to_integer<uint8_t>(out[0]);
  if (type < kMldQuery || type > kMldDone) return kIsOther;
  const auto source = Gid::FromIpv6(header.src);
  const uint64_t pseudo = PseudoHeader(source, Gid::FromIpv6(header.dst), out.size());
  // RFC 1071: a last odd byte is padded with a zero byte.
  const uint64_t odd = out.size() % 2 != 0 ? std::to_integer<uint64_t>(out.back()) << 8 : 0;
  if (Checksum(out, pseudo + odd) != 0) return SlowPathReason::kIcmpChecksum;
  const bool is_link_local = source.bytes[0] == 0xFE && (source.bytes[1] & 0xC0) == 0x80;
  if (header.hop_limit != 1 || !is_link_local) return SlowPathReason::kGroupMalformed;
  return SlowPathReason::kHandled;
}

}  // namespace

std::optional<SlowPathReason> GroupReports::Parse(std::span<const std::byte> frame, Message& out) {
  LinkHeader link;
  if (!ParseLinkHeader(frame, link)) return kIsOther;
  const uint16_t type = link.ethernet.ether_type;
  const std::span<const std::byte> ip = link.payload;
  out.vlan = link.vlan;
  std::span<const std::byte> body;
  out.ipv4 = type == roce::kEtherTypeIpv4;
  if (!out.ipv4 && type != roce::kEtherTypeIpv6) return kIsOther;
  const std::optional<SlowPathReason> reason = out.ipv4 ? FindIgmp(ip, body) : FindMld(ip, body);
  if (!reason || *reason != SlowPathReason::kHandled) return reason;
  const uint8_t what = std::to_integer<uint8_t>(body[0]);
  if (!out.ipv4) {
    out.is_query = what == kMldQuery;
    if (what == kMldDone) return SlowPathReason::kGroupNotForUs;
    out.longest = FloatTime(LoadBe<uint16_t>(body.data() + kMldTimeOffset), kMldMantissaBits) *
                  roce::kNsPerMs;
    std::memcpy(out.group.bytes.data(), body.data() + kMldGroupOffset, sizeof(out.group.bytes));
  } else {
    const uint64_t odd = body.size() % 2 != 0 ? std::to_integer<uint64_t>(body.back()) << 8 : 0;
    if (Checksum(body, odd) != 0) return SlowPathReason::kIcmpChecksum;
    out.is_query = what == kIgmpQuery;
    if (!out.is_query && what != kIgmpReport1 && what != kIgmpReport2) {
      return SlowPathReason::kGroupNotForUs;
    }
    const uint64_t tenths =
        FloatTime(std::to_integer<uint8_t>(body[kIgmpTimeOffset]), kIgmpMantissaBits);
    out.longest = tenths == 0 ? kOldQueryNs : tenths * 100 * roce::kNsPerMs;
    roce::Ipv4 group;
    std::memcpy(group.bytes.data(), body.data() + kIgmpGroupOffset, sizeof(group.bytes));
    if (group != roce::Ipv4{}) out.group = Gid::FromIpv4(group);
  }
  const bool names_group = out.group.IsMulticast() && out.group.IsIpv4() == out.ipv4;
  const bool is_general = out.is_query && out.group.IsZero();
  return names_group || is_general ? SlowPathReason::kHandled : SlowPathReason::kGroupMalformed;
}

void GroupReports::SetDue(const NetAddress& address, Group& group, TimeNs due) {
  if (group.due != roce::kNever) timers_.erase({group.due, address});
  group.due = due;
  if (due != roce::kNever) timers_.insert({due, address});
}

void GroupReports::Tell(const NetAddress& group, bool is_member, Send send) const {
  const bool ipv4 = group.gid.IsIpv4();
  const Gid& to = is_member ? group.gid : AllRouters(ipv4);
  if (!ipv4) {
    const Frame frame = BuildMld(addresses_.mac(), addresses_.At(0)->gid, to,
                                 is_member ? kMldReport : kMldDone, group.gid);
    return send(InVlan(frame, addresses_, group.vlan));
  }
  Gid source = Gid::FromIpv4({});
  for (const InterfaceAddress& entry : addresses_.entries()) {
    if (!entry.gid.IsIpv4() || entry.vlan != group.vlan) continue;
    source = entry.gid;
    break;
  }
  const Frame frame =
      BuildIgmp(addresses_.mac(), source, to, is_member ? kIgmpReport2 : kIgmpLeave, group.gid);
  send(InVlan(frame, addresses_, group.vlan));
}

GroupReports::Reference GroupReports::Join(TimeNs now, const NetAddress& address, Send send) {
  auto it = groups_.find(address);
  if (it == groups_.end()) {
    if (groups_.size() >= most_) return Reference();
    it = groups_.emplace(address, Group{}).first;
  }
  Group& group = it->second;
  if (++group.references > 1 || !IsReported(address.gid)) return Reference(address);
  Tell(address, true, send);
  group.reports_left = kUnsolicitedReports - 1;
  AnswerWithin(now, address, group, kRepeatNs);
  return Reference(address);
}

void GroupReports::Leave(Reference reference, Send send) {
  if (!reference.ok()) return;
  const NetAddress address = *reference.group_;
  const auto it = groups_.find(address);
  if (--it->second.references > 0) return;
  SetDue(address, it->second, roce::kNever);
  groups_.erase(it);
  if (IsReported(address.gid)) Tell(address, false, send);
}

void GroupReports::AnswerWithin(TimeNs now, const NetAddress& address, Group& group,
                                TimeNs longest) {
  if (!IsReported(address.gid)) return;
  const TimeNs due = now + random_.Next() % std::max<TimeNs>(longest, 1);
  if (due < group.due) SetDue(address, group, due);
}

void GroupReports::HandleQuery(TimeNs now, const Message& query) {
  for (auto& [address, group] : groups_) {
    if (address.vlan != query.vlan) continue;
    const bool is_asked =
        query.group.IsZero() ? address.gid.IsIpv4() == query.ipv4 : address.gid == query.group;
    if (is_asked) AnswerWithin(now, address, group, query.longest);
  }
}

std::optional<SlowPathReason> GroupReports::HandleFrame(TimeNs now,
                                                        std::span<const std::byte> frame) {
  Message message;
  const std::optional<SlowPathReason> reason = Parse(frame, message);
  if (!reason || *reason != SlowPathReason::kHandled) return reason;
  if (message.is_query) {
    HandleQuery(now, message);
    return SlowPathReason::kHandled;
  }
  // A report of another member suppresses ours (RFC 2236, 3; RFC 2710, 4).
  const auto it = groups_.find({message.group, message.vlan});
  if (it == groups_.end()) return SlowPathReason::kGroupNotForUs;
  it->second.reports_left = 0;
  SetDue(it->first, it->second, roce::kNever);
  return SlowPathReason::kHandled;
}

void GroupReports::HandleTimeout(TimeNs now, Send send) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const NetAddress address = timers_.begin()->second;
    Group& group = groups_.find(address)->second;
    SetDue(address, group, roce::kNever);
    Tell(address, true, send);
    if (group.reports_left > 0 && --group.reports_left > 0) {
      AnswerWithin(now, address, group, kRepeatNs);
    }
  }
}

}  // namespace roci::control
