// A captured frame, header by header, and what our own code says of it: whether it passes gate 1,
// whether its ICRC is right, and whether encoding what was read gives the same bytes again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "roce/drop_reason.h"
#include "roce/headers.h"
#include "roce/opcode.h"
#include "roce/packet.h"

namespace roci::tools {

enum class IcrcVerdict : uint8_t { kGood, kBad, kUnchecked };
enum class ReencodeVerdict : uint8_t { kSame, kDiffers, kUnchecked };

// The tags of a VLAN stack are all shown; more than these are taken for something else.
inline constexpr size_t kMaxVlanTags = 8;

// What a frame was taken for. All but kRoce are counted and not shown.
enum class FrameKind : uint8_t {
  kRoce,      // v2: UDP to port 4791; of fragments, the first
  kOther,     // something else for certain
  kRoceV1,    // EtherType 0x8915
  kCut,       // the capture has too little of it to tell
  kHeaders,   // its headers end too early or go on for too long to tell
  kLinkType,  // of a link type that is not understood
};

struct VlanLayer {
  uint16_t protocol = 0;  // 0x8100, 0x88A8, 0x9100
  uint16_t tci = 0;
};

// What a frame's headers say, as far as it has them: a header that is cut is not there.
struct DecodedFrame {
  std::optional<roce::EthernetHeader> ethernet;  // not for other link types
  std::vector<VlanLayer> vlans;                  // outermost first
  std::optional<roce::Ipv4Header> ipv4;
  std::optional<roce::Ipv6Header> ipv6;
  uint32_t ipv4_option_bytes = 0;
  uint32_t ipv6_extension_bytes = 0;  // between the header and UDP
  std::optional<roce::UdpHeader> udp;
  std::optional<roce::Bth> bth;
  uint8_t bth_reserved6 = 0;   // of byte 4
  uint8_t bth_reserved7 = 0;   // of byte 8
  uint8_t ext_reserved8 = 0;   // of DETH or XRCETH; no opcode has both
  uint32_t feth_reserved = 0;  // the 26 bits above the others
  std::array<std::byte, 16> cnp_reserved{};
  uint16_t ext_present = 0;  // bit i: ExtHeader i was read into `ext`
  roce::ExtHeaders ext;
  // Behind the headers, without pad and ICRC; only if the lengths let one tell.
  std::optional<uint32_t> payload_bytes;
  std::array<std::byte, 3> pad{};  // the first bth->pad_count; zero if gate 1 has not passed it
  uint32_t trailer_bytes = 0;      // behind the IP packet: Ethernet padding, frame check sequence

  // The capture holds less of the IP packet than was on the wire: nothing can be verified.
  bool cut = false;
  // Gate 1's word on the frame; kNone for one that is cut.
  roce::DropReason malformed = roce::DropReason::kNone;
  IcrcVerdict icrc = IcrcVerdict::kUnchecked;
  // Both with kGood and kBad only, and as on the wire, the first byte highest: the CRC itself
  // stands there with its least significant byte first.
  uint32_t icrc_found = 0;
  uint32_t icrc_computed = 0;
  ReencodeVerdict reencoded = ReencodeVerdict::kUnchecked;
  uint32_t differs_at = 0;  // with kDiffers: offset in the captured frame

  // What the UDP checksum should be, if it is there (not 0) and wrong. Nothing fails for it: a
  // device looks at the ICRC only, and captures on a sender may come before the NIC has filled it
  // in.
  std::optional<uint16_t> udp_checksum_computed;

  bool has_pad_bits() const { return pad != std::array<std::byte, 3>{}; }
  bool failed() const {
    return malformed != roce::DropReason::kNone || icrc == IcrcVerdict::kBad ||
           reencoded == ReencodeVerdict::kDiffers;
  }
};

struct Dissection {
  FrameKind kind = FrameKind::kOther;
  std::optional<DecodedFrame> roce;  // with kRoce
};

// `original_length` is the frame's length on the wire, bytes.
Dissection Dissect(std::span<const std::byte> frame, uint32_t original_length, uint32_t link_type);

}  // namespace roci::tools
