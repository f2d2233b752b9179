#include "tools/decode/walk.h"

#include <algorithm>
#include <array>
#include <limits>

#include "roce/headers.h"
#include "roce/ipv6_extensions.h"
#include "tools/decode/capture_file.h"

namespace roci::tools {
namespace {

using roce::LoadBe;
using Bytes = std::span<const std::byte>;

// ---- Numbers of headers ----

struct NumberRow {
  uint32_t number;
  Header header;
};

constexpr NumberRow kLinkTypes[] = {
    {kLinkTypeNull, Header::kFamily},     {kLinkTypeEthernet, Header::kEthernet},
    {kLinkTypeOldRaw, Header::kIp},       {kLinkTypeOpenBsdRaw, Header::kIp},
    {kLinkTypeRaw, Header::kIp},          {kLinkTypeLoop, Header::kFamily},
    {kLinkTypeLinuxSll, Header::kCooked}, {kLinkTypeIpv4, Header::kIp},
    {kLinkTypeIpv6, Header::kIp},         {kLinkTypeLinuxSll2, Header::kCooked2},
};

// AF_INET and the AF_INET6 of Linux, NetBSD and OpenBSD, FreeBSD, macOS.
constexpr NumberRow kFamilies[] = {{2, Header::kIpv4},
                                   {10, Header::kIpv6},
                                   {24, Header::kIpv6},
                                   {28, Header::kIpv6},
                                   {30, Header::kIpv6}};

constexpr uint16_t kTypeErspan2 = 0x88BE;  // and its first version
constexpr NumberRow kEtherTypes[] = {
    {roce::kEtherTypeIpv4, Header::kIpv4},
    {roce::kEtherTypeIpv6, Header::kIpv6},
    {kEtherTypeRoceV1, Header::kRoceV1},
    {roce::kEtherTypeVlan, Header::kVlan},
    {roce::kEtherTypeProviderVlan, Header::kVlan},
    {roce::kEtherTypeOldVlanStack, Header::kVlan},
    {0x9200, Header::kVlan},  // old stacks as well
    {0x9300, Header::kVlan},
    {0x6558, Header::kEthernet},  // bridged, in GRE and GENEVE
    {0x8847, Header::kMpls},
    {0x8848, Header::kMpls},
    {0x8864, Header::kPppoe},
    {0x880B, Header::kPpp},
    {0x8870, Header::kLlc},
    {0x88E7, Header::kBackboneTag},
    {0x894F, Header::kNsh},
    {kTypeErspan2, Header::kErspan2},
    {0x22EB, Header::kErspan3},
    {0x22F3, Header::kTrill},
    {0x88E5, Header::kMacsec},
};

constexpr NumberRow kIpProtocols[] = {
    {4, Header::kIpv4},     {roce::kIpProtocolUdp, Header::kUdp},
    {41, Header::kIpv6},    {47, Header::kGre},
    {50, Header::kEsp},     {51, Header::kAuthentication},
    {97, Header::kEtherIp}, {108, Header::kIpComp},
    {115, Header::kL2tp},   {137, Header::kMpls},
};

constexpr NumberRow kUdpPorts[] = {
    {roce::kRoceUdpPort, Header::kRoceV2},
    {4789, Header::kVxlan},
    {4790, Header::kVxlan},  // VXLAN-GPE
    {8472, Header::kVxlan},  // Linux's default from before the IANA number
    {6081, Header::kGeneve},
    {6635, Header::kMpls},
    {4754, Header::kGre},
    {1701, Header::kL2tp},
    {2152, Header::kGtp},
    {4500, Header::kEsp},
};

constexpr NumberRow kPppProtocols[] = {
    {0x0021, Header::kIpv4}, {0x0057, Header::kIpv6}, {0x0281, Header::kMpls}};

// Next protocol of VXLAN-GPE (its draft, 3.2) and of NSH (RFC 8300, 2.2).
constexpr NumberRow kNextProtocols[] = {{1, Header::kIpv4},
                                        {2, Header::kIpv6},
                                        {3, Header::kEthernet},
                                        {4, Header::kNsh},
                                        {5, Header::kMpls}};

template <size_t N>
Header Find(const NumberRow (&table)[N], uint32_t number) {
  const auto* row = std::find_if(std::begin(table), std::end(table),
                                 [number](const NumberRow& r) { return r.number == number; });
  return row == std::end(table) ? Header::kOther : row->header;
}

// Smaller values are the length of a frame with an LLC header (IEEE 802.3, 3.2.6).
constexpr uint16_t kLeastEtherType = 0x600;
Header ByTypeOrLength(uint16_t type) {
  return type < kLeastEtherType ? Header::kLlc : Find(kEtherTypes, type);
}

// ---- The headers ----

// Fields of one header, read from the rest of the frame.
struct Found {
  size_t bytes = 0;  // of the header
  Header next{};
  uint16_t type = 0;             // as in PathHeader, of `next`
  std::optional<uint32_t> id{};  // as in PathHeader
  size_t whole = 0;              // length of header and payload as stated in it; 0: no such field
  bool is_fragment = false;      // the first of several fragments
};

uint8_t U8(Bytes rest, size_t at) { return std::to_integer<uint8_t>(rest[at]); }
uint16_t U16(Bytes rest, size_t at) { return LoadBe<uint16_t>(&rest[at]); }
uint32_t U24(Bytes rest, size_t at) { return LoadBe<uint32_t>(&rest[at]) >> 8; }
uint32_t U32(Bytes rest, size_t at) { return LoadBe<uint32_t>(&rest[at]); }

Found TakeEthernet(Bytes rest) {
  const uint16_t type = U16(rest, 12);
  Found found{.bytes = roce::EthernetHeader::kBytes, .next = ByTypeOrLength(type), .type = type};
  if (type < kLeastEtherType) found.whole = found.bytes + type;
  return found;
}

Found TakeVlan(Bytes rest) {
  const uint16_t type = U16(rest, 2);
  return {.bytes = 4, .next = ByTypeOrLength(type), .type = type, .id = U16(rest, 0)};
}

Found TakeCooked(Bytes rest) {
  const uint16_t type = U16(rest, 14);
  return {.bytes = 16, .next = ByTypeOrLength(type), .type = type};
}

Found TakeCooked2(Bytes rest) {
  const uint16_t type = U16(rest, 0);
  return {.bytes = 20, .next = ByTypeOrLength(type), .type = type};
}

// In the byte order of the capturing host; "loop" devices use network byte order.
Found TakeFamily(Bytes rest) {
  uint32_t family = U32(rest, 0);
  if (family > 0xFFFF) family = __builtin_bswap32(family);
  return {.bytes = 4, .next = Find(kFamilies, family)};
}

Found TakeIp(Bytes rest) {
  switch (U8(rest, 0) >> 4) {
    case 4:
      return {.next = Header::kIpv4};
    case 6:
      return {.next = Header::kIpv6};
    default:
      return {.next = Header::kNotUnderstood};
  }
}

// LLC with a SNAP header that has an EtherType (IEEE 802, 9.4); other LLC frames carry no RoCE.
Found TakeLlc(Bytes rest) {
  const bool is_snap = U24(rest, 0) == 0xAAAA03 && U24(rest, 3) == 0;
  const uint16_t type = U16(rest, 6);
  return {.bytes = 8, .next = is_snap ? Find(kEtherTypes, type) : Header::kOther, .type = type};
}

Found TakeBackboneTag(Bytes rest) {
  return {.bytes = 4, .next = Header::kEthernet, .id = U24(rest, 1)};
}

// The last label does not state the payload: IP, or a frame with a control word (RFC 4448, 4.6: its
// first four bits are zero) or without.
Found TakeMpls(Bytes rest) {
  Found found{.bytes = 4, .next = Header::kMpls, .id = U32(rest, 0) >> 12};
  if ((U8(rest, 2) & 1) == 0) return found;
  if (rest.size() < 6) return {.next = Header::kTooShort};
  switch (U8(rest, 4) >> 4) {
    case 4:
      found.next = Header::kIpv4;
      break;
    case 6:
      found.next = Header::kIpv6;
      break;
    case 1:
      found.next = Header::kOther;  // control channel of the pseudowire (RFC 4385, 5)
      break;
    default:
      if (U16(rest, 4) == 0) found.bytes += 4;
      found.next = Header::kEthernet;
  }
  return found;
}

Found TakePppoe(Bytes rest) {
  return {.bytes = 6,
          .next = U16(rest, 0) == 0x1100 ? Header::kPpp : Header::kOther,
          .id = U16(rest, 2),
          .whole = size_t{6} + U16(rest, 4)};
}

Found TakePpp(Bytes rest) {
  constexpr uint16_t kHdlcFraming = 0xFF03;  // RFC 1662, 3.1
  const size_t at = U16(rest, 0) == kHdlcFraming ? 2 : 0;
  if (rest.size() < at + 2) return {.next = Header::kTooShort};
  // Protocols may lack their first byte if it is 0 (RFC 1661, 6.5).
  const bool is_short = (U8(rest, at) & 1) != 0;
  const uint16_t type = is_short ? U8(rest, at) : U16(rest, at);
  return {.bytes = at + (is_short ? 1 : 2), .next = Find(kPppProtocols, type), .type = type};
}

Found TakeIpv4(Bytes rest) {
  // A header with a too small length field is read as one without options.
  const size_t bytes = std::max((U8(rest, 0) & 0xFu) * 4u, uint32_t{roce::Ipv4Header::kBytes});
  const uint8_t protocol = U8(rest, 9);
  const uint16_t fragment = U16(rest, 6);
  Header next = Find(kIpProtocols, protocol);
  if (next != Header::kOther && (fragment & roce::Ipv4Header::kOffsetMask) != 0) {
    next = Header::kLaterFragment;
  }
  return {.bytes = bytes,
          .next = next,
          .type = protocol,
          .whole = U16(rest, 2),
          .is_fragment = (fragment & roce::Ipv4Header::kMoreFragments) != 0};
}

Header ByIpv6Next(uint8_t kind) {
  if (kind == roce::kIpv6FragmentHeader) return Header::kIpv6Fragment;
  if (kind == roce::kIpv6AuthenticationHeader) return Header::kIpv6Authentication;
  return roce::IsIpv6Extension(kind) ? Header::kIpv6Extension : Find(kIpProtocols, kind);
}

Found TakeIpv6(Bytes rest) {
  const uint8_t kind = U8(rest, 6);
  return {.bytes = roce::Ipv6Header::kBytes,
          .next = ByIpv6Next(kind),
          .type = kind,
          .whole = size_t{roce::Ipv6Header::kBytes} + U16(rest, 4)};
}

Found TakeIpv6Extension(Bytes rest) {
  const uint8_t kind = U8(rest, 0);
  return {
      .bytes = roce::Ipv6ExtensionBytes(0, U8(rest, 1)), .next = ByIpv6Next(kind), .type = kind};
}

Found TakeIpv6Authentication(Bytes rest) {
  Found found = TakeIpv6Extension(rest);
  found.bytes = roce::Ipv6ExtensionBytes(roce::kIpv6AuthenticationHeader, U8(rest, 1));
  return found;
}

Found TakeIpv6Fragment(Bytes rest) {
  Found found = TakeIpv6Extension(rest);
  found.bytes = roce::Ipv6ExtensionBytes(roce::kIpv6FragmentHeader, 0);
  const uint16_t word = U16(rest, 2);
  if (found.next != Header::kOther && roce::IsLaterIpv6Fragment(word)) {
    found.next = Header::kLaterFragment;
  }
  found.is_fragment = (word & 1) != 0;
  return found;
}

// The port is enough to recognise RoCE, even if the rest of the header is truncated.
Found TakeUdp(Bytes rest) {
  const uint16_t port = U16(rest, 2);
  return {.bytes = roce::UdpHeader::kBytes, .next = Find(kUdpPorts, port), .type = port};
}

// RFC 2784 and 2890; with the key as NVGRE has it, RFC 7637.
Found TakeGre(Bytes rest) {
  constexpr uint16_t kChecksum = 0x8000, kRouting = 0x4000, kKey = 0x2000, kSequence = 0x1000;
  const uint16_t flags = U16(rest, 0);
  const uint16_t type = U16(rest, 2);
  if ((flags & 7) > 1 || (flags & kRouting) != 0) return {.next = Header::kNotUnderstood};
  constexpr uint16_t kAcknowledgement = 0x80;  // of version 1: RFC 2637, 4.1
  Found found{.bytes = 4, .next = Find(kEtherTypes, type), .type = type};
  if ((flags & kChecksum) != 0) found.bytes += 4;
  if ((flags & kKey) != 0) {
    if (rest.size() < found.bytes + 4) return {.next = Header::kTooShort};
    found.id = U32(rest, found.bytes);
    found.bytes += 4;
  }
  if ((flags & kSequence) != 0) found.bytes += 4;
  if ((flags & 7) == 1 && (flags & kAcknowledgement) != 0) found.bytes += 4;
  // ERSPAN type I has no header.
  if (type == kTypeErspan2 && (flags & kSequence) == 0) found.next = Header::kEthernet;
  return found;
}

Found TakeErspan2(Bytes rest) {
  return {.bytes = 8, .next = Header::kEthernet, .id = U16(rest, 2) & 0x3FFu};
}

Found TakeErspan3(Bytes rest) {
  const bool has_more = (U8(rest, 11) & 1) != 0;
  return {.bytes = has_more ? size_t{20} : size_t{12},
          .next = Header::kEthernet,
          .id = U16(rest, 2) & 0x3FFu};
}

Found TakeVxlan(Bytes rest) {
  const bool names_next = (U8(rest, 0) & 4) != 0;
  const uint8_t type = U8(rest, 3);
  return {.bytes = 8,
          .next = names_next ? Find(kNextProtocols, type) : Header::kEthernet,
          .type = type,
          .id = U24(rest, 4)};
}

// RFC 8926, 3.4.
Found TakeGeneve(Bytes rest) {
  if (U8(rest, 0) >> 6 != 0) return {.next = Header::kNotUnderstood};
  const uint16_t type = U16(rest, 2);
  return {.bytes = size_t{8} + (U8(rest, 0) & 0x3Fu) * 4u,
          .next = Find(kEtherTypes, type),
          .type = type,
          .id = U24(rest, 4)};
}

Found TakeNsh(Bytes rest) {
  const size_t bytes = (U16(rest, 0) & 0x3Fu) * 4u;
  if (U8(rest, 0) >> 6 != 0 || bytes < 8) return {.next = Header::kNotUnderstood};
  const uint8_t type = U8(rest, 3);
  return {.bytes = bytes, .next = Find(kNextProtocols, type), .type = type, .id = U24(rest, 4)};
}

Found TakeEtherIp(Bytes /*rest*/) { return {.bytes = 2, .next = Header::kEthernet}; }

// ---- The walk ----

struct HeaderRow {
  Header header;  // index of the row
  const char* name;
  const char* id_name;        // of PathHeader::id; null if it has none
  size_t least_bytes;         // bytes that `take` reads
  Found (*take)(Bytes rest);  // null: the walk ends here
};

constexpr HeaderRow kHeaders[] = {
    {Header::kEthernet, "eth", nullptr, roce::EthernetHeader::kBytes, TakeEthernet},
    {Header::kVlan, "vlan", "vid", roce::VlanTag::kBytes, TakeVlan},
    {Header::kCooked, "sll", nullptr, 16, TakeCooked},
    {Header::kCooked2, "sll2", nullptr, 20, TakeCooked2},
    {Header::kFamily, "null", nullptr, 4, TakeFamily},
    {Header::kIp, "ip", nullptr, 1, TakeIp},
    {Header::kLlc, "llc", nullptr, 8, TakeLlc},
    {Header::kBackboneTag, "pbb", "isid", 4, TakeBackboneTag},
    {Header::kMpls, "mpls", "label", 4, TakeMpls},
    {Header::kPppoe, "pppoe", "session", 6, TakePppoe},
    {Header::kPpp, "ppp", nullptr, 2, TakePpp},
    {Header::kIpv4, "ipv4", nullptr, roce::Ipv4Header::kBytes, TakeIpv4},
    {Header::kIpv6, "ipv6", nullptr, roce::Ipv6Header::kBytes, TakeIpv6},
    {Header::kIpv6Extension, "ipv6_extension", nullptr, roce::kLeastIpv6ExtensionBytes,
     TakeIpv6Extension},
    {Header::kIpv6Fragment, "ipv6_fragment", nullptr, roce::kLeastIpv6ExtensionBytes,
     TakeIpv6Fragment},
    {Header::kIpv6Authentication, "ah", nullptr, roce::kLeastIpv6ExtensionBytes,
     TakeIpv6Authentication},
    {Header::kUdp, "udp", nullptr, 4, TakeUdp},
    {Header::kGre, "gre", "key", 4, TakeGre},
    {Header::kErspan2, "erspan", "session", 8, TakeErspan2},
    {Header::kErspan3, "erspan3", "session", 12, TakeErspan3},
    {Header::kVxlan, "vxlan", "vni", 8, TakeVxlan},
    {Header::kGeneve, "geneve", "vni", 8, TakeGeneve},
    {Header::kNsh, "nsh", "path", 8, TakeNsh},
    {Header::kEtherIp, "etherip", nullptr, 2, TakeEtherIp},
    {Header::kRoceV1, "roce_v1", nullptr, 0, nullptr},
    {Header::kRoceV2, "roce_v2", nullptr, 0, nullptr},
    {Header::kOther, "other", nullptr, 0, nullptr},
    {Header::kTooShort, "too_short", nullptr, 0, nullptr},
    {Header::kNotUnderstood, "not_understood", nullptr, 0, nullptr},
    {Header::kLinkType, "link_type", nullptr, 0, nullptr},
    {Header::kLaterFragment, "later fragments", nullptr, 0, nullptr},
    {Header::kMacsec, "macsec", nullptr, 0, nullptr},
    {Header::kTrill, "trill", nullptr, 0, nullptr},
    {Header::kEsp, "esp", nullptr, 0, nullptr},
    {Header::kAuthentication, "ah", nullptr, 0, nullptr},
    {Header::kIpComp, "ipcomp", nullptr, 0, nullptr},
    {Header::kL2tp, "l2tp", nullptr, 0, nullptr},
    {Header::kGtp, "gtp", nullptr, 0, nullptr},
};
constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < std::size(kHeaders); ++i) {
    if (kHeaders[i].header != static_cast<Header>(i)) return false;
  }
  return std::size(kHeaders) == kHeaderCount;
}
static_assert(RowsAreInOrder());

const HeaderRow& RowOf(Header header) { return kHeaders[static_cast<size_t>(header)]; }

// Limits the end of `place` by its own length field, which cannot extend it. A length without room
// for a payload is ignored.
void Narrow(PathHeader& place, const Found& found) {
  constexpr size_t kLeastRoom = roce::UdpHeader::kBytes;
  if (found.whole >= found.bytes + kLeastRoom) {
    place.wire_end = std::min(place.wire_end, place.at + found.whole);
    place.end = std::min(place.end, place.wire_end);
  }
  if (found.is_fragment) place.wire_end = std::numeric_limits<size_t>::max();
}

}  // namespace

const char* HeaderName(Header header) { return RowOf(header).name; }
const char* HeaderIdName(Header header) { return RowOf(header).id_name; }

Walk WalkFrame(Bytes frame, size_t original_length, uint32_t link_type) {
  Walk walk;
  const Header link = Find(kLinkTypes, link_type);
  if (link == Header::kOther) return {Header::kLinkType, {}};
  // A capture may state a smaller length than it has bytes.
  PathHeader place{
      .header = link, .end = frame.size(), .wire_end = std::max(original_length, frame.size())};
  while (true) {
    walk.end = place.header;
    const HeaderRow& row = RowOf(place.header);
    if (row.take == nullptr && place.header != Header::kRoceV1) return walk;
    if (walk.path.size() == kMaxHeaders) break;
    walk.path.push_back(place);
    if (row.take == nullptr) return walk;
    const Bytes rest = frame.subspan(place.at, place.end - place.at);
    Found found{.next = Header::kTooShort};
    if (rest.size() >= row.least_bytes) found = row.take(rest);
    const bool ends = RowOf(found.next).take == nullptr && found.next != Header::kRoceV1;
    if (!ends && found.bytes > rest.size()) found.next = Header::kTooShort;
    walk.path.back().id = found.id;
    if (found.next != Header::kTooShort) Narrow(place, found);
    place.header = found.next;
    place.type = found.type;
    place.at += std::min(found.bytes, rest.size());
  }
  walk.end = Header::kNotUnderstood;
  return walk;
}

}  // namespace roci::tools
