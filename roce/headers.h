// The headers of a RoCEv2 frame as structs in host byte order. Load reads kBytes bytes at a pointer
// of any alignment, Store writes them. Reserved bits are ignored on load and stored as zero. No
// checks are made here.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "roce/opcode.h"
#include "roce/types.h"

namespace roci::roce {

// Big-endian loads and stores at any alignment.
template <class T>
inline T LoadBe(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  if constexpr (sizeof(T) == 1 || std::endian::native == std::endian::big) return v;
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(v));
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(v);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(v);
}
template <class T>
inline void StoreBe(std::byte* p, T v) {
  if constexpr (std::endian::native == std::endian::little) {
    if constexpr (sizeof(T) == 2) v = static_cast<T>(__builtin_bswap16(v));
    if constexpr (sizeof(T) == 4) v = __builtin_bswap32(v);
    if constexpr (sizeof(T) == 8) v = __builtin_bswap64(v);
  }
  std::memcpy(p, &v, sizeof(T));
}

inline constexpr uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr uint16_t kEtherTypeIpv6 = 0x86DD;
inline constexpr uint16_t kEtherTypeArp = 0x0806;
inline constexpr uint16_t kEtherTypeVlan = 0x8100;
inline constexpr uint16_t kEtherTypeProviderVlan = 0x88A8;  // outer tag of two (802.1ad)
inline constexpr uint16_t kEtherTypeOldVlanStack = 0x9100;  // the same before 802.1ad
inline constexpr uint8_t kIpProtocolUdp = 17;
inline constexpr uint8_t kIpProtocolIcmpv6 = 58;
// Types of ICMPv6 (RFC 4861, 4.3, 4.4).
inline constexpr uint8_t kNdSolicitation = 135;
inline constexpr uint8_t kNdAdvertisement = 136;
inline constexpr uint8_t kDefaultHopLimit =
    64;  // of IPv4 (as TTL) and IPv6 (RFC 1700, IP Parameters)
inline constexpr uint16_t kRoceUdpPort = 4791;  // IBTA vol 1, A17.4.3
inline constexpr uint32_t kIcrcBytes = 4;

struct EthernetHeader {
  static constexpr uint32_t kBytes = 14;
  Mac dst;
  Mac src;
  uint16_t ether_type = 0;

  static EthernetHeader Load(const std::byte* p) {
    EthernetHeader h;
    std::memcpy(h.dst.bytes.data(), p, 6);
    std::memcpy(h.src.bytes.data(), p + 6, 6);
    h.ether_type = LoadBe<uint16_t>(p + 12);
    return h;
  }
  void Store(std::byte* p) const {
    std::memcpy(p, dst.bytes.data(), 6);
    std::memcpy(p + 6, src.bytes.data(), 6);
    StoreBe<uint16_t>(p + 12, ether_type);
  }
};

constexpr bool IsVlanType(uint16_t ether_type) {
  return ether_type == kEtherTypeVlan || ether_type == kEtherTypeProviderVlan ||
         ether_type == kEtherTypeOldVlanStack;
}

// The bytes after the EtherType 0x8100: tag and inner type (IEEE 802.1Q, 9.6).
struct VlanTag {
  static constexpr uint32_t kBytes = 4;
  static constexpr uint16_t kIdMask = 0xFFF;
  static constexpr uint16_t kMaxId = 4094;  // of a network; IEEE 802.1Q, table 9-2
  static constexpr uint32_t kPriorityShift = 13;
  uint16_t tci = 0;  // priority 3 bits, drop eligible 1, VLAN id 12
  uint16_t ether_type = 0;

  static VlanTag Load(const std::byte* p) { return {LoadBe<uint16_t>(p), LoadBe<uint16_t>(p + 2)}; }
  void Store(std::byte* p) const {
    StoreBe<uint16_t>(p, tci);
    StoreBe<uint16_t>(p + 2, ether_type);
  }
};

inline constexpr uint32_t kMaxLinkHeaderBytes = EthernetHeader::kBytes + VlanTag::kBytes;
inline constexpr uint32_t kFcsBytes = 4;
// Without FCS (IEEE 802.3, 4.4.2: 64 bytes with it).
inline constexpr uint32_t kMinFrameBytes = 60;

// Without options.
struct Ipv4Header {
  static constexpr uint32_t kBytes = 20;
  static constexpr uint16_t kDontFragment = 0x4000;
  static constexpr uint16_t kMoreFragments = 0x2000;
  static constexpr uint16_t kOffsetMask = 0x1FFF;
  static constexpr uint32_t kChecksumOffset = 10;

  uint8_t version_ihl = 0x45;
  uint8_t tos = 0;  // DSCP 6 bits, ECN 2 bits
  uint16_t total_length = 0;
  uint16_t id = 0;
  uint16_t fragment = 0;  // flags and offset
  uint8_t ttl = 0;
  uint8_t protocol = 0;
  uint16_t checksum = 0;
  Ipv4 src;
  Ipv4 dst;

  static Ipv4Header Load(const std::byte* p) {
    Ipv4Header h;
    h.version_ihl = LoadBe<uint8_t>(p);
    h.tos = LoadBe<uint8_t>(p + 1);
    h.total_length = LoadBe<uint16_t>(p + 2);
    h.id = LoadBe<uint16_t>(p + 4);
    h.fragment = LoadBe<uint16_t>(p + 6);
    h.ttl = LoadBe<uint8_t>(p + 8);
    h.protocol = LoadBe<uint8_t>(p + 9);
    h.checksum = LoadBe<uint16_t>(p + 10);
    std::memcpy(h.src.bytes.data(), p + 12, 4);
    std::memcpy(h.dst.bytes.data(), p + 16, 4);
    return h;
  }
  // Writes `checksum` as it is; see Ipv4HeaderSum.
  void Store(std::byte* p) const {
    StoreBe<uint8_t>(p, version_ihl);
    StoreBe<uint8_t>(p + 1, tos);
    StoreBe<uint16_t>(p + 2, total_length);
    StoreBe<uint16_t>(p + 4, id);
    StoreBe<uint16_t>(p + 6, fragment);
    StoreBe<uint8_t>(p + 8, ttl);
    StoreBe<uint8_t>(p + 9, protocol);
    StoreBe<uint16_t>(p + 10, checksum);
    std::memcpy(p + 12, src.bytes.data(), 4);
    std::memcpy(p + 16, dst.bytes.data(), 4);
  }
};

// Folds a sum of 16-bit words to 16 bits with end-around carry (RFC 1071).
constexpr uint16_t FoldOnesComplement(uint64_t sum) {
  sum = (sum & 0xFFFFFFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// One's complement sum of the ten words of a 20-byte header, in memory order of the words: 0xFFFF
// for a correct checksum. With a zero checksum field, the complement is the checksum, to be stored
// in memory order.
inline uint16_t Ipv4HeaderSum(const std::byte* p) {
  uint32_t w[5];
  std::memcpy(w, p, sizeof(w));
  return FoldOnesComplement(uint64_t{w[0]} + w[1] + w[2] + w[3] + w[4]);
}

struct Ipv6Header {
  static constexpr uint32_t kBytes = 40;
  uint8_t version = 6;
  uint8_t traffic_class = 0;
  uint32_t flow_label = 0;  // 20 bits
  uint16_t payload_length = 0;
  uint8_t next_header = 0;
  uint8_t hop_limit = 0;
  Ipv6 src;
  Ipv6 dst;

  static Ipv6Header Load(const std::byte* p) {
    Ipv6Header h;
    const uint32_t word = LoadBe<uint32_t>(p);
    h.version = static_cast<uint8_t>(word >> 28);
    h.traffic_class = static_cast<uint8_t>(word >> 20);
    h.flow_label = word & 0xFFFFF;
    h.payload_length = LoadBe<uint16_t>(p + 4);
    h.next_header = LoadBe<uint8_t>(p + 6);
    h.hop_limit = LoadBe<uint8_t>(p + 7);
    std::memcpy(h.src.bytes.data(), p + 8, 16);
    std::memcpy(h.dst.bytes.data(), p + 24, 16);
    return h;
  }
  void Store(std::byte* p) const {
    StoreBe<uint32_t>(
        p, (uint32_t{version} << 28) | (uint32_t{traffic_class} << 20) | (flow_label & 0xFFFFF));
    StoreBe<uint16_t>(p + 4, payload_length);
    StoreBe<uint8_t>(p + 6, next_header);
    StoreBe<uint8_t>(p + 7, hop_limit);
    std::memcpy(p + 8, src.bytes.data(), 16);
    std::memcpy(p + 24, dst.bytes.data(), 16);
  }
};

struct UdpHeader {
  static constexpr uint32_t kBytes = 8;
  static constexpr uint32_t kDstPortAt = 2;
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  uint16_t length = 0;  // with this header
  uint16_t checksum = 0;

  static UdpHeader Load(const std::byte* p) {
    return {LoadBe<uint16_t>(p), LoadBe<uint16_t>(p + 2), LoadBe<uint16_t>(p + 4),
            LoadBe<uint16_t>(p + 6)};
  }
  void Store(std::byte* p) const {
    StoreBe<uint16_t>(p, src_port);
    StoreBe<uint16_t>(p + 2, dst_port);
    StoreBe<uint16_t>(p + 4, length);
    StoreBe<uint16_t>(p + 6, checksum);
  }
};

// Base transport header, IBTA vol 1, 9.2; FECN and BECN from A17.9.
struct Bth {
  static constexpr uint32_t kBytes = kBthBytes;
  Opcode opcode{};
  bool solicited = false;
  bool mig_req = false;
  uint8_t pad_count = 0;          // 0..3
  uint8_t transport_version = 0;  // 4 bits
  uint16_t pkey = 0;
  bool fecn = false;
  bool becn = false;
  Qpn dest_qpn;
  bool ack_request = false;
  Psn psn;

  static Bth Load(const std::byte* p) {
    const uint32_t w0 = LoadBe<uint32_t>(p);
    const uint32_t w1 = LoadBe<uint32_t>(p + 4);
    const uint32_t w2 = LoadBe<uint32_t>(p + 8);
    Bth h;
    h.opcode = static_cast<Opcode>(w0 >> 24);
    h.solicited = (w0 >> 23) & 1;
    h.mig_req = (w0 >> 22) & 1;
    h.pad_count = (w0 >> 20) & 3;
    h.transport_version = (w0 >> 16) & 0xF;
    h.pkey = static_cast<uint16_t>(w0);
    h.fecn = w1 >> 31;
    h.becn = (w1 >> 30) & 1;
    h.dest_qpn = Qpn(w1);
    h.ack_request = w2 >> 31;
    h.psn = Psn(w2);
    return h;
  }
  void Store(std::byte* p) const {
    StoreBe<uint32_t>(p, (uint32_t{static_cast<uint8_t>(opcode)} << 24) |
                             (uint32_t{solicited} << 23) | (uint32_t{mig_req} << 22) |
                             (uint32_t{pad_count} << 20) | (uint32_t{transport_version} << 16) |
                             pkey);
    StoreBe<uint32_t>(p + 4, (uint32_t{fecn} << 31) | (uint32_t{becn} << 30) | dest_qpn.value());
    StoreBe<uint32_t>(p + 8, (uint32_t{ack_request} << 31) | psn.value());
  }
};

// Datagram header, IBTA vol 1, 9.3.1.
struct Deth {
  static constexpr uint32_t kBytes = 8;
  uint32_t qkey = 0;
  Qpn src_qpn;

  static Deth Load(const std::byte* p) {
    return {LoadBe<uint32_t>(p), Qpn(LoadBe<uint32_t>(p + 4))};
  }
  void Store(std::byte* p) const {
    StoreBe<uint32_t>(p, qkey);
    StoreBe<uint32_t>(p + 4, src_qpn.value());
  }
};

// XRC header, IBTA vol 1, A14.
struct XrcEth {
  static constexpr uint32_t kBytes = 4;
  uint32_t srq_number = 0;  // 24 bits

  static XrcEth Load(const std::byte* p) { return {LoadBe<uint32_t>(p) & kMask24}; }
  void Store(std::byte* p) const { StoreBe<uint32_t>(p, srq_number & kMask24); }
};

// Flush header, IBTA vol 1, A19.4.3.1.
struct Feth {
  static constexpr uint32_t kBytes = 4;
  static constexpr uint8_t kGlobalVisibility = 1;
  static constexpr uint8_t kPersistence = 2;
  static constexpr uint8_t kWholeRegion = 1;
  uint8_t placement_type = 0;     // bit set of the two above
  uint8_t selectivity_level = 0;  // 0 memory region range, 1 whole memory region

  static Feth Load(const std::byte* p) {
    const uint32_t word = LoadBe<uint32_t>(p);
    return {static_cast<uint8_t>(word & 0xF), static_cast<uint8_t>((word >> 4) & 3)};
  }
  void Store(std::byte* p) const {
    StoreBe<uint32_t>(p, (placement_type & 0xFu) | ((selectivity_level & 3u) << 4));
  }
};

// RDMA header, IBTA vol 1, 9.3.2.
struct Reth {
  static constexpr uint32_t kBytes = 16;
  uint64_t va = 0;
  Key rkey;
  uint32_t length = 0;  // bytes, of the whole message

  static Reth Load(const std::byte* p) {
    return {LoadBe<uint64_t>(p), Key(LoadBe<uint32_t>(p + 8)), LoadBe<uint32_t>(p + 12)};
  }
  void Store(std::byte* p) const {
    StoreBe<uint64_t>(p, va);
    StoreBe<uint32_t>(p + 8, rkey.value());
    StoreBe<uint32_t>(p + 12, length);
  }
};

// Atomic request header, IBTA vol 1, 9.3.3.
struct AtomicEth {
  static constexpr uint32_t kBytes = 28;
  uint64_t va = 0;
  Key rkey;
  uint64_t swap_add = 0;
  uint64_t compare = 0;

  static AtomicEth Load(const std::byte* p) {
    return {LoadBe<uint64_t>(p), Key(LoadBe<uint32_t>(p + 8)), LoadBe<uint64_t>(p + 12),
            LoadBe<uint64_t>(p + 20)};
  }
  void Store(std::byte* p) const {
    StoreBe<uint64_t>(p, va);
    StoreBe<uint32_t>(p + 8, rkey.value());
    StoreBe<uint64_t>(p + 12, swap_add);
    StoreBe<uint64_t>(p + 20, compare);
  }
};

// Acknowledge syndrome, IBTA vol 1, 9.7.5.1.3 (ACK), .4 (NAK), .5 (RNR NAK) and table 44.
enum class AethKind : uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };

enum class NakCode : uint8_t {
  kPsnSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidRdRequest = 4,
};

// Credits of an ACK: how many receives the responder has for later requests, as a code of 5 bits
// (IBTA vol 1, 9.7.5.1.3 and its table of credit counts).
inline constexpr uint8_t kNoCredits = 0x1F;  // "no end-to-end flow control information"
inline constexpr uint32_t kMostCredits = 32768;

// The code of the greatest number in the table that is at most `receives`.
constexpr uint8_t CreditCode(uint32_t receives) {
  if (receives < 2) return static_cast<uint8_t>(receives);
  if (receives >= kMostCredits) return kNoCredits - 1;
  // Two codes for each power of two: itself and one and a half times it.
  const auto power = static_cast<uint32_t>(std::bit_width(receives)) - 1;
  return static_cast<uint8_t>(2 * power + ((receives >> (power - 1)) & 1));
}

// The number of receives for `code`, which is not kNoCredits.
constexpr uint32_t CreditsOf(uint8_t code) {
  return code < 2 ? code : (2u + (code & 1)) << (code / 2 - 1);
}

struct Aeth {
  static constexpr uint32_t kBytes = 4;
  uint8_t syndrome = 0;
  Msn msn;

  static constexpr Aeth Ack(Msn msn, uint8_t credits = kNoCredits) {
    return {static_cast<uint8_t>(credits & 0x1F), msn};
  }
  // `timer` is the 5-bit code, see kRnrTimerNs.
  static constexpr Aeth RnrNak(Msn msn, uint8_t timer) {
    return {static_cast<uint8_t>(0x20 | (timer & 0x1F)), msn};
  }
  static constexpr Aeth Nak(Msn msn, NakCode code) {
    return {static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code)), msn};
  }

  // Bit 7 set is reserved for every kind.
  constexpr AethKind kind() const {
    return (syndrome & 0x80) != 0 ? AethKind::kReserved
                                  : static_cast<AethKind>((syndrome >> 5) & 3);
  }
  // The 5 bits below: credits code, RNR timer code or NAK code. NAK codes above 4 are reserved.
  constexpr uint8_t value() const { return syndrome & 0x1F; }
  constexpr NakCode nak_code() const { return static_cast<NakCode>(value()); }

  static Aeth Load(const std::byte* p) {
    const uint32_t word = LoadBe<uint32_t>(p);
    return {static_cast<uint8_t>(word >> 24), Msn(word)};
  }
  void Store(std::byte* p) const { StoreBe<uint32_t>(p, (uint32_t{syndrome} << 24) | msn.value()); }
};

// RNR NAK timer codes in nanoseconds, IBTA vol 1, 9.7.5.2.8, table 45.
inline constexpr std::array<uint64_t, 32> kRnrTimerNs = {
    655'360'000, 10'000,      20'000,      30'000,      40'000,     60'000,     80'000,
    120'000,     160'000,     240'000,     320'000,     480'000,    640'000,    960'000,
    1'280'000,   1'920'000,   2'560'000,   3'840'000,   5'120'000,  7'680'000,  10'240'000,
    15'360'000,  20'480'000,  30'720'000,  40'960'000,  61'440'000, 81'920'000, 122'880'000,
    163'840'000, 245'760'000, 327'680'000, 491'520'000,
};

// Atomic response header, IBTA vol 1, 9.5.3.
struct AtomicAckEth {
  static constexpr uint32_t kBytes = 8;
  uint64_t original = 0;

  static AtomicAckEth Load(const std::byte* p) { return {LoadBe<uint64_t>(p)}; }
  void Store(std::byte* p) const { StoreBe<uint64_t>(p, original); }
};

// Immediate data, IBTA vol 1, 9.3.5. The value is in host order: verbs' imm_data is htobe32(value).
struct ImmDt {
  static constexpr uint32_t kBytes = 4;
  uint32_t value = 0;

  static ImmDt Load(const std::byte* p) { return {LoadBe<uint32_t>(p)}; }
  void Store(std::byte* p) const { StoreBe<uint32_t>(p, value); }
};

// Invalidate header, IBTA vol 1, 9.3.6.
struct Ieth {
  static constexpr uint32_t kBytes = 4;
  Key rkey;

  static Ieth Load(const std::byte* p) { return {Key(LoadBe<uint32_t>(p))}; }
  void Store(std::byte* p) const { StoreBe<uint32_t>(p, rkey.value()); }
};

// The packets that a selective NAK asks for, by their distance from its PSN (not part of the IBTA's
// text, see deviations.md). Distance 0 is the most significant bit of the first byte.
struct MissingEth {
  static constexpr uint32_t kBytes = 32;
  static constexpr uint32_t kPsns = kBytes * 8;
  std::array<uint64_t, kBytes / 8> words{};

  // `distance` < kPsns.
  constexpr bool Has(uint32_t distance) const {
    return (words[distance / 64] >> (63 - distance % 64) & 1) != 0;
  }
  constexpr void Add(uint32_t distance) {
    words[distance / 64] |= uint64_t{1} << (63 - distance % 64);
  }
  friend constexpr bool operator==(const MissingEth&, const MissingEth&) = default;

  static MissingEth Load(const std::byte* p) {
    MissingEth h;
    for (size_t i = 0; i < h.words.size(); ++i) h.words[i] = LoadBe<uint64_t>(p + 8 * i);
    return h;
  }
  void Store(std::byte* p) const {
    for (size_t i = 0; i < words.size(); ++i) StoreBe<uint64_t>(p + 8 * i, words[i]);
  }
};

}  // namespace roci::roce
