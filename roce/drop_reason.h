// Reasons to drop a received frame. One counter per reason, indexed by the enumerator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace roci::roce {

// X(enumerator, counter name). The first group comes from ParsePacket, the second from the lookup
// and validation of the destination QP (IBTA vol 1, 9.6.1), the third from the sequence checks of a
// QP.
#define ROCI_DROP_REASONS(X)                                       \
  X(kNone, "none")                                                 \
  /* Not ours: for the control plane (ARP, ICMP, ...) */           \
  X(kNotRoce, "not_roce")                                          \
  X(kFrameTruncated, "frame_truncated")                            \
  /* More than one VLAN tag */                                     \
  X(kVlanStack, "vlan_stack")                                      \
  X(kIpv4Header, "ipv4_header")                                    \
  X(kIpv4Options, "ipv4_options")                                  \
  X(kIpv4Fragment, "ipv4_fragment")                                \
  X(kIpv4Checksum, "ipv4_checksum")                                \
  X(kIpv6Header, "ipv6_header")                                    \
  X(kIpv6Fragment, "ipv6_fragment")                                \
  /* Extension headers in front of UDP to RoCEv2's port */         \
  X(kIpv6Extension, "ipv6_extension")                              \
  X(kIpv6MappedAddress, "ipv6_mapped_address")                     \
  X(kIpLength, "ip_length")                                        \
  X(kUdpLength, "udp_length")                                      \
  X(kTransportVersion, "transport_version")                        \
  X(kReservedOpcode, "reserved_opcode")                            \
  X(kHeadersTruncated, "headers_truncated")                        \
  X(kLengthNotMultipleOf4, "length_not_multiple_of_4")             \
  X(kPadCount, "pad_count")                                        \
  X(kPayloadLength, "payload_length")                              \
  X(kIcrc, "icrc")                                                 \
  X(kUnknownQp, "unknown_qp")                                      \
  X(kQpState, "qp_state")                                          \
  X(kWrongTransport, "wrong_transport")                            \
  X(kPkey, "pkey")                                                 \
  X(kQkey, "qkey")                                                 \
  X(kAddress, "address")                                           \
  X(kVlan, "vlan")                                                 \
  X(kUnknownMulticast, "unknown_multicast")                        \
  X(kNoReceiveBuffer, "no_receive_buffer")                         \
  X(kReceiveTooLong, "receive_too_long")                           \
  X(kUnexpectedOpcode, "unexpected_opcode")                        \
  X(kOutOfSequence, "out_of_sequence")                             \
  /* Its turn is after a FLUSH that still waits for a disk */      \
  X(kBehindFlush, "behind_flush")                                  \
  X(kStaleDuplicate, "stale_duplicate")                            \
  /* An early packet with this PSN is kept already */              \
  X(kKeptDuplicate, "kept_duplicate")                              \
  X(kStaleAcknowledge, "stale_acknowledge")                        \
  X(kGhostAcknowledge, "ghost_acknowledge")                        \
  X(kInvalidAcknowledge, "invalid_acknowledge")                    \
  X(kMemoryAccess, "memory_access")                                \
  /* XRC: the domain has no shared receive queue of that number */ \
  X(kReceiveQueue, "receive_queue")

enum class DropReason : uint8_t {
#define ROCI_DROP_REASON_ENUMERATOR(id, name) id,
  ROCI_DROP_REASONS(ROCI_DROP_REASON_ENUMERATOR)
#undef ROCI_DROP_REASON_ENUMERATOR
};

inline constexpr std::array kDropReasonNames = {
#define ROCI_DROP_REASON_NAME(id, name) std::string_view(name),
    ROCI_DROP_REASONS(ROCI_DROP_REASON_NAME)
#undef ROCI_DROP_REASON_NAME
};

inline constexpr size_t kDropReasonCount = kDropReasonNames.size();

// Lower case with underscores: the name of the counter.
constexpr std::string_view DropReasonName(DropReason reason) {
  return kDropReasonNames[static_cast<size_t>(reason)];
}

}  // namespace roci::roce
