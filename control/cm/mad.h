// The messages of the communication manager (IBTA vol 1, 12.6), and the gate that parses them from
// the 256 bytes of a MAD. The tables in mad.cc have the positions of the fields. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "roce/types.h"

namespace roci::control::cm {

using roce::kGsiQkey;
using roce::kMadBytes;
using MadBytes = std::array<std::byte, kMadBytes>;

// Result of handling a datagram to QP 1. Indexes counters.
#define ROCI_MAD_REASONS(X)                   \
  X(kNone, "taken")                           \
  X(kOpcode, "opcode")                        \
  X(kQkey, "qkey")                            \
  X(kLength, "length")                        \
  X(kBaseVersion, "base_version")             \
  X(kManagementClass, "management_class")     \
  X(kClassVersion, "class_version")           \
  X(kMethod, "method")                        \
  X(kAttribute, "attribute")                  \
  X(kSource, "source_address")                \
  X(kUnknownConnection, "unknown_connection") \
  X(kUnexpected, "unexpected_in_this_state")  \
  X(kNoListener, "no_listener")               \
  X(kBacklog, "backlog_full")                 \
  X(kNoRoom, "no_room")

enum class MadReason : uint8_t {
#define ROCI_MAD_ENUMERATOR(id, name) id,
  ROCI_MAD_REASONS(ROCI_MAD_ENUMERATOR)
#undef ROCI_MAD_ENUMERATOR
};
inline constexpr std::array kMadReasonNames = {
#define ROCI_MAD_NAME(id, name) std::string_view(name),
    ROCI_MAD_REASONS(ROCI_MAD_NAME)
#undef ROCI_MAD_NAME
};

// Attribute IDs (IBTA vol 1, 16.7.3).
enum class MessageType : uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
  kLap = 0x19,
  kApr = 0x1A,
};
inline constexpr uint16_t kFirstMessage = 0x10;
inline constexpr uint16_t kLastMessage = 0x1A;
// Of the messages from kFirstMessage on.
inline constexpr auto kMessageNames = std::to_array<std::string_view>(
    {"req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep", "lap", "apr"});
static_assert(kMessageNames.size() == kLastMessage - kFirstMessage + 1);

// Which message an MRA or REJ is about (IBTA vol 1, 12.6.6 and 12.6.7).
enum class AboutMessage : uint8_t { kReq = 0, kRep = 1, kOther = 2, kLap = 2 };

// IBTA vol 1, 12.6.7.2.
enum class RejectReason : uint16_t {
  kNoQp = 1,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupportedRequest = 5,
  kInvalidCommunicationId = 6,
  kInvalidCommunicationInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransportServiceType = 9,
  kStaleConnection = 10,
  kPrimaryRemoteGid = 12,
  kInvalidPathMtu = 26,
  kConsumer = 28,
  kDuplicateLocalCommunicationId = 30,
  kInvalidClassVersion = 31,
  kVendorOption = 35,
};

// IBTA vol 1, 12.11.1 (SIDR_REP status) and 12.6.12 (APR status).
enum class SidrStatus : uint8_t { kValid = 0, kNotSupported = 1, kRejected = 2, kNoQp = 3 };
enum class AprStatus : uint8_t { kLoaded = 0, kInvalidCommunicationId = 1, kNotSupported = 2 };

// Values of REQ's transport service type.
enum class TransportService : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
inline constexpr uint8_t kExtendedXrc = 1;

template <size_t kSize>
using Data = std::array<std::byte, kSize>;

struct PathFields {
  uint16_t local_lid = 0;
  uint16_t remote_lid = 0;
  roce::Gid local_gid;
  roce::Gid remote_gid;
  uint32_t flow_label = 0;
  uint8_t packet_rate = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t sl = 0;
  uint8_t subnet_local = 0;
  uint8_t local_ack_timeout = 0;  // 4.096 us * 2^n
  friend bool operator==(const PathFields&, const PathFields&) = default;
};

// Enhanced connection establishment: vendor options that a side offers or accepts.
struct Ece {
  uint32_t vendor_id = 0;  // 24 bits
  uint32_t options = 0;    // the attribute modifier of the MAD's header
  friend bool operator==(const Ece&, const Ece&) = default;
};

struct Req {
  static constexpr MessageType kType = MessageType::kReq;
  uint32_t ece_options = 0;
  uint32_t local_id = 0;
  uint32_t vendor_id = 0;
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;
  uint8_t responder_resources = 0;
  uint32_t local_eecn = 0;
  uint8_t initiator_depth = 0;
  uint32_t remote_eecn = 0;
  uint8_t remote_response_timeout = 0;  // 4.096 us * 2^n
  uint8_t transport_service = 0;
  uint8_t flow_control = 0;
  uint32_t starting_psn = 0;  // with which the receiver of this begins to send
  uint8_t local_response_timeout = 0;
  uint8_t retry_count = 0;
  uint16_t pkey = 0;
  uint8_t path_mtu = 0;
  uint8_t rdc_exists = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t max_cm_retries = 0;
  uint8_t srq = 0;
  uint8_t extended_transport = 0;
  PathFields primary;
  PathFields alternate;  // all zero: none
  Data<92> private_data{};
  Ece ece() const { return {vendor_id, ece_options}; }
  friend bool operator==(const Req&, const Req&) = default;
};

struct Mra {
  static constexpr MessageType kType = MessageType::kMra;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint8_t about = 0;
  uint8_t service_timeout = 0;
  Data<222> private_data{};
  friend bool operator==(const Mra&, const Mra&) = default;
};

struct Rej {
  static constexpr MessageType kType = MessageType::kRej;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint8_t about = 0;
  uint8_t info_length = 0;  // of `info`
  uint16_t reason = 0;
  Data<72> info{};
  Data<148> private_data{};
  friend bool operator==(const Rej&, const Rej&) = default;
};

struct Rep {
  static constexpr MessageType kType = MessageType::kRep;
  uint32_t ece_options = 0;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;
  uint8_t vendor_high = 0;
  uint32_t local_eecn = 0;
  uint8_t vendor_middle = 0;
  uint32_t starting_psn = 0;  // with which the receiver of this begins to send
  uint8_t vendor_low = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;
  uint8_t failover_accepted = 0;
  uint8_t flow_control = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t srq = 0;
  uint64_t local_ca_guid = 0;
  Data<196> private_data{};
  Ece ece() const {
    return {uint32_t{vendor_high} << 16 | uint32_t{vendor_middle} << 8 | vendor_low, ece_options};
  }
  friend bool operator==(const Rep&, const Rep&) = default;
};

struct Rtu {
  static constexpr MessageType kType = MessageType::kRtu;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  Data<224> private_data{};
  friend bool operator==(const Rtu&, const Rtu&) = default;
};

struct Dreq {
  static constexpr MessageType kType = MessageType::kDreq;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t remote_qpn = 0;
  Data<220> private_data{};
  friend bool operator==(const Dreq&, const Dreq&) = default;
};

struct Drep {
  static constexpr MessageType kType = MessageType::kDrep;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  Data<224> private_data{};
  friend bool operator==(const Drep&, const Drep&) = default;
};

struct SidrReq {
  static constexpr MessageType kType = MessageType::kSidrReq;
  uint32_t request_id = 0;
  uint16_t pkey = 0;
  uint64_t service_id = 0;
  Data<216> private_data{};
  friend bool operator==(const SidrReq&, const SidrReq&) = default;
};

struct SidrRep {
  static constexpr MessageType kType = MessageType::kSidrRep;
  uint32_t ece_options = 0;
  uint32_t request_id = 0;
  uint8_t status = 0;
  uint8_t info_length = 0;
  uint16_t vendor_high = 0;
  uint32_t qpn = 0;
  uint8_t vendor_low = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  Data<72> info{};
  Data<136> private_data{};
  Ece ece() const { return {uint32_t{vendor_high} << 8 | vendor_low, ece_options}; }
  friend bool operator==(const SidrRep&, const SidrRep&) = default;
};

struct Lap {
  static constexpr MessageType kType = MessageType::kLap;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t remote_qpn = 0;
  uint8_t remote_response_timeout = 0;
  PathFields alternate;
  Data<168> private_data{};
  friend bool operator==(const Lap&, const Lap&) = default;
};

struct Apr {
  static constexpr MessageType kType = MessageType::kApr;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint8_t info_length = 0;
  uint8_t status = 0;
  Data<72> info{};
  Data<148> private_data{};
  friend bool operator==(const Apr&, const Apr&) = default;
};

using Body = std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr>;

struct Message {
  uint64_t transaction = 0;
  Body body;
  MessageType type() const {
    return std::visit([](const auto& b) { return b.kType; }, body);
  }
  friend bool operator==(const Message&, const Message&) = default;
};

// Gate 1 for MADs. kNone: `out` is filled in; otherwise why the payload of a datagram to QP 1 is
// not a message of the communication manager. Accepts every value of every field.
MadReason ParseMad(std::span<const std::byte> payload, Message& out);
// Values are truncated to the width of their fields.
MadBytes BuildMad(const Message& message);

}  // namespace roci::control::cm
