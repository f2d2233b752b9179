// A captured frame, header by header, with the verdicts of verify.h.
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
#include "tools/decode/rd_opcodes.h"
#include "tools/decode/walk.h"

namespace roci::tools {

enum class IcrcVerdict : uint8_t { kGood, kBad, kUnchecked };
enum class ReencodeVerdict : uint8_t { kSame, kDiffers, kUnchecked };

// Kind of a frame. All but kRoce are counted and not printed.
enum class FrameKind : uint8_t {
  kRoce,      // v2: UDP to port 4791; of fragments, the first. v1: EtherType 0x8915
  kOther,     // certainly not RoCE
  kCut,       // truncated by the capture before the UDP port
  kHeaders,   // its headers are incomplete, too many, or of unknown versions
  kLinkType,  // of an unsupported link type
  kHidden,    // may be RoCE inside of a header that is not decoded, Dissection::hidden_by
};

struct VlanLayer {
  uint16_t protocol = 0;  // 0x8100, 0x88A8, 0x9100, ...
  uint16_t tci = 0;
};

// An outer header: of a tunnel, a label, an outer VLAN.
struct OuterHeader {
  Header header{};
  std::optional<uint32_t> id{};           // see PathHeader
  std::optional<roce::Gid> src{}, dst{};  // of IP headers
};

// The headers of a frame. A truncated header is absent.
struct DecodedFrame {
  std::vector<OuterHeader> outer;                // outermost first
  std::optional<roce::EthernetHeader> ethernet;  // the innermost; absent for other link types
  std::vector<VlanLayer> vlans;                  // after it, outermost first
  std::optional<roce::Ipv4Header> ipv4;
  std::optional<roce::Ipv6Header> ipv6;
  uint32_t ipv4_option_bytes = 0;
  uint32_t ipv6_extension_bytes = 0;  // between the header and UDP
  std::optional<roce::UdpHeader> udp;
  std::optional<roce::Ipv6Header> grh;  // of RoCEv1: the same fields (IBTA vol 1, 8.3)
  bool is_v1 = false;
  std::optional<roce::Bth> bth;
  std::optional<Rdeth> rdeth;
  uint8_t bth_reserved6 = 0;   // of byte 4
  uint8_t bth_reserved7 = 0;   // of byte 8
  uint8_t ext_reserved8 = 0;   // of DETH or XRCETH; no opcode has both
  uint32_t feth_reserved = 0;  // the 26 bits above the others
  std::array<std::byte, 16> cnp_reserved{};
  uint16_t ext_present = 0;  // bit i: `ext` has ExtHeader i
  roce::ExtHeaders ext;
  // Bytes after the headers, without pad and ICRC; absent if the lengths are inconsistent.
  std::optional<uint32_t> payload_bytes;
  std::array<std::byte, 3> pad{};  // the first bth->pad_count; zero if gate 1 refuses the packet
  uint32_t trailer_bytes = 0;      // after the packet: Ethernet padding, frame check sequence

  // The capture has less of the packet than was on the wire: it cannot be verified.
  bool cut = false;
  // Result of gate 1; kNone if `cut`.
  roce::DropReason malformed = roce::DropReason::kNone;
  IcrcVerdict icrc = IcrcVerdict::kUnchecked;
  // Both only with kGood and kBad. In wire order, the first byte highest; the wire has the CRC with
  // its least significant byte first.
  uint32_t icrc_found = 0;
  uint32_t icrc_computed = 0;
  ReencodeVerdict reencoded = ReencodeVerdict::kUnchecked;
  uint32_t differs_at = 0;  // with kDiffers: offset in the captured frame

  // The correct UDP checksum, if the frame has a wrong one (other than 0). Not a failure: a device
  // checks only the ICRC, and a capture on the sender may precede checksum offload.
  std::optional<uint16_t> udp_checksum_computed;

  bool has_pad_bits() const { return pad != std::array<std::byte, 3>{}; }
  bool failed() const {
    return malformed != roce::DropReason::kNone || icrc == IcrcVerdict::kBad ||
           reencoded == ReencodeVerdict::kDiffers;
  }
};

struct Dissection {
  FrameKind kind = FrameKind::kOther;
  std::optional<DecodedFrame> roce{};  // with kRoce
  Header hidden_by = Header::kOther;   // with kHidden
};

// `original_length` is the frame's length on the wire, bytes.
Dissection Dissect(std::span<const std::byte> frame, uint32_t original_length, uint32_t link_type);

}  // namespace roci::tools
