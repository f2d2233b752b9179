#include "control/manage/fault_injections.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "control/cm/mad.h"
#include "control/config/nearest_name.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"
#include "roce/headers.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using cm::MessageType;
using dataplane::FaultActions;
using dataplane::Injection;
using Kind = Injection::Kind;

constexpr uint8_t Nak(roce::NakCode code) { return roce::Aeth::Nak(roce::Msn(0), code).syndrome; }

struct KindName {
  std::string_view name;
  Kind kind;
  uint8_t syndrome = 0;
};
constexpr auto kKinds = std::to_array<KindName>({
    {"cnp", Kind::kCnp},
    {"nak_psn", Kind::kNak, Nak(roce::NakCode::kPsnSequenceError)},
    {"nak_invalid", Kind::kNak, Nak(roce::NakCode::kInvalidRequest)},
    {"nak_access", Kind::kNak, Nak(roce::NakCode::kRemoteAccessError)},
    {"nak_operational", Kind::kNak, Nak(roce::NakCode::kRemoteOperationalError)},
    {"rnr_nak", Kind::kNak, roce::Aeth::RnrNak(roce::Msn(0), 0).syndrome},
    {"stale", Kind::kStale},
    {"dreq", Kind::kMad},
});
constexpr std::string_view kRejectName = "reject";
constexpr std::string_view kFrameName = "frame";

// IBTA vol 1, 12.6.7.2, and SIDR_REP's status 12.11.1 by number only. As in Linux (enum
// ib_cm_rej_reason).
struct ReasonName {
  std::string_view name;
  uint16_t reason;
};
constexpr auto kReasons = std::to_array<ReasonName>({{"no_qp", 1},
                                                     {"no_eec", 2},
                                                     {"no_resources", 3},
                                                     {"timeout", 4},
                                                     {"unsupported", 5},
                                                     {"invalid_comm_id", 6},
                                                     {"invalid_comm_instance", 7},
                                                     {"invalid_service_id", 8},
                                                     {"invalid_transport_type", 9},
                                                     {"stale_conn", 10},
                                                     {"rdc_not_exist", 11},
                                                     {"invalid_gid", 12},
                                                     {"invalid_lid", 13},
                                                     {"invalid_sl", 14},
                                                     {"invalid_traffic_class", 15},
                                                     {"invalid_hop_limit", 16},
                                                     {"invalid_packet_rate", 17},
                                                     {"port_cm_redirect", 24},
                                                     {"port_redirect", 25},
                                                     {"invalid_mtu", 26},
                                                     {"insufficient_resp_resources", 27},
                                                     {"consumer_defined", 28},
                                                     {"invalid_rnr_retry", 29},
                                                     {"duplicate_local_comm_id", 30},
                                                     {"invalid_class_version", 31},
                                                     {"invalid_flow_label", 32},
                                                     {"invalid_alt_flow_label", 33},
                                                     {"vendor_option_not_supported", 35}});

template <class Rows>
std::vector<std::string_view> NamesOf(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

// Positions in a MAD: of the transaction ID (IBTA vol 1, 13.4.3) and of the messages' first fields
// (12.6.5 to 12.6.12, 12.11).
constexpr uint16_t kTransaction = 8;
constexpr uint16_t kLocalId = 24;  // or SIDR's request ID
constexpr uint16_t kRemoteId = 28;
constexpr uint16_t kSidrReqService = 32;
constexpr uint16_t kSidrRepService = 36;
constexpr uint16_t kDreqRemoteQpn = 32;
constexpr uint16_t kRepLocalQpn = 36;

void UseMad(const cm::Message& message, Injection& out) {
  const cm::MadBytes mad = cm::BuildMad(message);
  out.kind = Kind::kMad;
  out.bytes.assign(mad.begin(), mad.end());
}

// The answer that refuses a REQ, REP or SIDR_REQ.
absl::Status UseReject(uint16_t reason, MessageType about, Injection& out) {
  constexpr uint16_t kMostStatus = 255;  // of SIDR_REP
  switch (about) {
    case MessageType::kReq:
    case MessageType::kRep: {
      cm::Rej rej;
      const bool is_rep = about == MessageType::kRep;
      rej.about = static_cast<uint8_t>(is_rep ? cm::AboutMessage::kRep : cm::AboutMessage::kReq);
      rej.reason = reason;
      UseMad({.transaction = 0, .body = rej}, out);
      out.copies = {{{kTransaction, kTransaction, 8}, {kLocalId, kRemoteId, 4}}};
      if (is_rep) out.copies[2] = {kRemoteId, kLocalId, 4};
      return absl::OkStatus();
    }
    case MessageType::kSidrReq: {
      if (reason > kMostStatus) return WrongValue("reject", "a status up to 255 for sidr_req");
      cm::SidrRep rep;
      rep.status = static_cast<uint8_t>(reason);
      UseMad({.transaction = 0, .body = rep}, out);
      out.copies = {{{kTransaction, kTransaction, 8},
                     {kLocalId, kLocalId, 4},
                     {kSidrReqService, kSidrRepService, 8}}};
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError("\"reject\" needs \"cm\": req, rep or sidr_req");
  }
}

// The DREQ of the side that a REP answers, as if its program disconnected.
absl::Status UseDreq(MessageType about, Injection& out) {
  if (about != MessageType::kRep) {
    return absl::InvalidArgumentError("\"inject\": \"dreq\" needs \"cm\": rep");
  }
  UseMad({.transaction = 0, .body = cm::Dreq{}}, out);
  out.copies = {{{kTransaction, kTransaction, 8},
                 {kRemoteId, kLocalId, 4},
                 {kLocalId, kRemoteId, 4},
                 {kRepLocalQpn, kDreqRemoteQpn, 3}}};
  return absl::OkStatus();
}

absl::Status TakeKind(const Json& request, uint16_t cm_message, Injection& out) {
  const absl::StatusOr<std::string> name = RequestText(request, "inject");
  if (!name.ok()) return name.status();
  const auto found = std::ranges::find(kKinds, std::string_view(*name), &KindName::name);
  if (found == kKinds.end()) {
    const std::vector<std::string_view> names = NamesOf(kKinds);
    return absl::InvalidArgumentError(absl::StrCat("there is no frame ", *name,
                                                   " to inject; the nearest is ",
                                                   std::string(NearestName(*name, names))));
  }
  out.name = found->name;
  out.kind = found->kind;
  out.syndrome = found->syndrome;
  return found->kind == Kind::kMad ? UseDreq(static_cast<MessageType>(cm_message), out)
                                   : absl::OkStatus();
}

absl::Status TakeReject(const Json& request, uint16_t cm_message, FaultActions& out) {
  uint64_t reason = 0;
  if (request["reject"].is_string()) {
    const auto name = request["reject"].get<std::string>();
    const auto found = std::ranges::find(kReasons, std::string_view(name), &ReasonName::name);
    if (found == kReasons.end()) {
      const std::vector<std::string_view> names = NamesOf(kReasons);
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no reason ", name, "; the nearest is ", std::string(NearestName(name, names))));
    }
    reason = found->reason;
  } else {
    const absl::Status status = TakeNumber(request, "reject", UINT16_MAX, reason);
    if (!status.ok()) return status;
  }
  out.drops = true;
  out.injection.name = kRejectName;
  out.injection.reason = static_cast<uint16_t>(reason);
  return UseReject(out.injection.reason, static_cast<MessageType>(cm_message), out.injection);
}

absl::Status TakeFrame(const Json& request, Injection& out) {
  const absl::StatusOr<std::string> digits = RequestText(request, "frame");
  if (!digits.ok()) return digits.status();
  const bool are_hex = std::ranges::all_of(
      *digits, [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
  const size_t bytes = digits->size() / 2;
  if (!are_hex || digits->size() % 2 != 0 || bytes < roce::EthernetHeader::kBytes ||
      bytes > Injection::kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"frame\" must be an Ethernet frame of at most ", Injection::kMostBytes,
                     " bytes in hexadecimal digits"));
  }
  const std::string raw = absl::HexStringToBytes(*digits);
  out.name = kFrameName;
  out.kind = Kind::kFrame;
  const auto* const first = reinterpret_cast<const std::byte*>(raw.data());
  out.bytes.assign(first, first + raw.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status TakeInjection(const Json& request, uint16_t cm_message, FaultActions& out) {
  const auto asked = std::ranges::count_if(std::array{"inject", "reject", "frame"},
                                           [&](const char* key) { return request.contains(key); });
  if (asked > 1) {
    return absl::InvalidArgumentError(
        "a fault injects one frame: \"inject\", \"reject\" or \"frame\"");
  }
  if (request.contains("inject")) return TakeKind(request, cm_message, out.injection);
  if (request.contains("reject")) return TakeReject(request, cm_message, out);
  if (request.contains("frame")) return TakeFrame(request, out.injection);
  return absl::OkStatus();
}

void DescribeInjection(const FaultActions& actions, Json& out) {
  const Injection& injection = actions.injection;
  if (injection.kind == Kind::kNone) return;
  if (injection.name == kRejectName) {
    out.erase("drop");
    out["reject"] = injection.reason;
  } else if (injection.name == kFrameName) {
    const auto* const raw = reinterpret_cast<const char*>(injection.bytes.data());
    out["frame"] = absl::BytesToHexString(absl::string_view(raw, injection.bytes.size()));
  } else {
    out["inject"] = injection.name;
  }
}

}  // namespace roci::control
