// The way from a captured frame's first byte to the RoCE packet in it: link layers, VLAN tags,
// labels and tunnels. It finds only; what RoCE's own headers say is dissect.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace roci::tools {

// What stands in a frame. The first group has something behind it, the others end the walk.
enum class Header : uint8_t {
  kEthernet,
  kVlan,
  kCooked,   // Linux' captures of any device
  kCooked2,  // the same, newer
  kFamily,   // BSD loopback devices
  kIp,       // no header: IPv4 or IPv6, as its version says
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
  kOther,          // something else for certain
  kTooShort,       // the frame ends within the last header
  kNotUnderstood,  // there are too many headers, or one of an unknown version
  kLinkType,       // of the capture: unknown

  // Those may hide RoCE and are not looked into.
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

// As texts name it: "vxlan".
const char* HeaderName(Header header);
// As they name its PathHeader::id: "vni"; null if it has none.
const char* HeaderIdName(Header header);
constexpr bool MayHideRoce(Header header) { return header >= Header::kLaterFragment; }

inline constexpr uint16_t kEtherTypeRoceV1 = 0x8915;

// No frame that makes sense has more; what is behind so many is not looked for.
inline constexpr size_t kMaxHeaders = 32;

struct PathHeader {
  Header header{};
  uint16_t type = 0;  // by which what is in front of it names it: EtherType, protocol, ...
  // VXLAN or GENEVE network, label, session, key; of a VLAN tag its TCI.
  std::optional<uint32_t> id{};
  size_t at = 0;  // offset in the frame
  // Where what is around it ends, as far as it was captured and as it was on the wire: not behind
  // what the headers in front of it say of their lengths.
  size_t end = 0;
  size_t wire_end = 0;
};

struct Walk {
  Header end{};                  // what ended it
  std::vector<PathHeader> path;  // outermost first. kRoceV2: with UDP last; kRoceV1: with its GRH
};

// `original_length` is the frame's length on the wire, bytes; `link_type` a LINKTYPE_.
Walk WalkFrame(std::span<const std::byte> frame, size_t original_length, uint32_t link_type);

}  // namespace roci::tools
