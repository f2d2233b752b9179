// Finds the RoCE packet in a captured frame, through link layers, VLAN tags, labels and tunnels.
// dissect.h decodes the headers of RoCE itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace roci::tools {

// Headers of a frame. After a header of the first group another follows; the others end the walk.
enum class Header : uint8_t {
  kEthernet,
  kVlan,
  kCooked,   // Linux captures of "any" (SLL)
  kCooked2,  // SLL2
  kFamily,   // BSD loopback devices
  kIp,       // no header: IPv4 or IPv6, by the version field
  kLlc,
  kBackboneTag,
  kMpls,
  kPppoe,
  kPpp,
  kIpv4,
  kIpv6,
  kIpv6Extension,
  kIpv6Fragment,
  kIpv6Authentication,
  kUdp,
  kGre,
  kErspan2,
  kErspan3,
  kVxlan,
  kGeneve,
  kNsh,
  kEtherIp,

  kRoceV1,
  kRoceV2,
  kOther,          // certainly not RoCE
  kTooShort,       // the frame ends within the last header
  kNotUnderstood,  // there are too many headers, or one of an unknown version
  kLinkType,       // of the capture: unknown

  // These may contain RoCE and are not decoded.
  kLaterFragment,
  kMacsec,
  kTrill,
  kEsp,
  kAuthentication,
  kIpComp,
  kL2tp,
  kGtp,
};
inline constexpr size_t kHeaderCount = static_cast<size_t>(Header::kGtp) + 1;

// Name in texts and JSON: "vxlan".
const char* HeaderName(Header header);
// Name of its PathHeader::id: "vni"; null: it has none.
const char* HeaderIdName(Header header);
constexpr bool MayHideRoce(Header header) { return header >= Header::kLaterFragment; }

inline constexpr uint16_t kEtherTypeRoceV1 = 0x8915;

// Most headers that are followed.
inline constexpr size_t kMaxHeaders = 32;

struct PathHeader {
  Header header{};
  uint16_t type = 0;  // its type in the header before it: EtherType, protocol, ...
  // VXLAN or GENEVE network, label, session, key; of a VLAN tag its TCI.
  std::optional<uint32_t> id{};
  size_t at = 0;  // offset in the frame
  // End of the enclosing header's payload, of the captured bytes and on the wire; limited by the
  // length fields of all earlier headers.
  size_t end = 0;
  size_t wire_end = 0;
};

struct Walk {
  Header end{};                  // the header that ended the walk
  std::vector<PathHeader> path;  // outermost first. Last: UDP for kRoceV2, GRH for kRoceV1
};

// `original_length` is the frame's length on the wire, bytes; `link_type` a LINKTYPE_.
Walk WalkFrame(std::span<const std::byte> frame, size_t original_length, uint32_t link_type);

}  // namespace roci::tools
