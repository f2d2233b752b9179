#include "control/manage/fault_requests.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "control/cm/mad.h"
#include "control/config/nearest_name.h"
#include "control/manage/call_fault_requests.h"
#include "control/manage/completion_fault_requests.h"
#include "control/manage/fault_injections.h"
#include "control/manage/fault_occasions.h"
#include "control/manage/fault_program.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"
#include "control/net/ip_text.h"
#include "dataplane/shard/device_client.h"
#include "roce/packet_fields.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using dataplane::BitFlip;
using dataplane::FaultActions;
using dataplane::FaultMatch;
using dataplane::FaultSettings;
using dataplane::FieldChange;
using dataplane::LinkDirection;
using dataplane::PacketPart;

struct PartName {
  std::string_view name;
  PacketPart part;
};
constexpr auto kParts = std::to_array<PartName>({{"headers", PacketPart::kHeaders},
                                                 {"payload", PacketPart::kPayload},
                                                 {"icrc", PacketPart::kIcrc}});

// Every key of a fault of packets, besides those of occasions.
constexpr auto kKeys =
    std::to_array<std::string_view>({"direction", "qps",      "peers",          "opcodes",
                                     "program",   "pid",      "created",        "peer",
                                     "cm",        "psn",      "psn_from_first", "pass",
                                     "drop",      "delay_ns", "duplicate",      "truncate",
                                     "ecn",       "set",      "flip",           "icrc",
                                     "reorder",   "inject",   "reject",         "frame"});

bool ParseValue(const std::string& text, uint64_t& out) {
  return absl::StartsWith(text, "0x") ? absl::SimpleHexAtoi(text, &out)
                                      : absl::SimpleAtoi(text, &out);
}

// "bth.psn+=1"
absl::StatusOr<FieldChange> ParseChange(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" must be FIELD=VALUE, FIELD+=VALUE or FIELD-=VALUE"));
  }
  FieldChange change;
  const char before = text[equals - 1];
  change.adds = before == '+' || before == '-';
  const std::string name = text.substr(0, change.adds ? equals - 1 : equals);
  const std::string value = text.substr(equals + 1);
  change.field = roce::FindPacketField(name);
  if (change.field == nullptr) {
    std::vector<std::string_view> names;
    for (const roce::PacketField& field : roce::PacketFields()) names.push_back(field.name);
    return absl::InvalidArgumentError(absl::StrCat("there is no field ", name, "; the nearest is ",
                                                   std::string(NearestName(name, names))));
  }
  const std::optional<uint64_t> named = roce::FindFieldValue(*change.field, value);
  if (named.has_value()) {
    change.value = *named;
  } else if (!ParseValue(value, change.value) || change.value > roce::MostOf(*change.field)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\" is not a value of ", name, ": a number up to ",
                     roce::MostOf(*change.field),
                     name == "aeth.syndrome"
                         ? ", or ack, rnr_nak, nak_psn, nak_invalid, nak_access, nak_operational"
                         : ""));
  }
  if (before == '-') change.value = 0 - change.value;
  return change;
}

// "payload:3"
absl::StatusOr<BitFlip> ParseFlip(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  BitFlip flip;
  const auto part =
      std::ranges::find(kParts, std::string_view(name), [](const PartName& p) { return p.name; });
  if (part == kParts.end() || colon == std::string::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &flip.bit)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" must be headers:BIT, payload:BIT or icrc:BIT; bit 0 is the first sent"));
  }
  flip.part = part->part;
  return flip;
}

// Calls parse(text) for each text of the list, and appends the results to `out`.
template <class T, class Parse>
absl::Status TakeTexts(const Json& request, const char* key, Parse&& parse, std::vector<T>& out) {
  const auto it = request.find(key);
  if (it == request.end()) return absl::OkStatus();
  const std::string expected =
      absl::StrCat("a list of at most ", FaultActions::kMostChanges, " texts");
  if (!it->is_array() || it->size() > FaultActions::kMostChanges) {
    return WrongValue(key, expected.c_str());
  }
  for (const Json& entry : *it) {
    if (!entry.is_string()) return WrongValue(key, expected.c_str());
    auto parsed = parse(entry.get<std::string>());
    if (!parsed.ok()) return parsed.status();
    out.push_back(*std::move(parsed));
  }
  return absl::OkStatus();
}

absl::Status TakeIcrc(const Json& request, FaultActions& out) {
  out.fixes_icrc = !out.changes.empty();
  const auto it = request.find("icrc");
  if (it == request.end()) return absl::OkStatus();
  if (*it != "fix" && *it != "keep") return WrongValue("icrc", "fix or keep");
  if (out.changes.empty() && out.flips.empty()) {
    return absl::InvalidArgumentError("\"icrc\" needs \"set\" or \"flip\"");
  }
  out.fixes_icrc = *it == "fix";
  return absl::OkStatus();
}

absl::Status TakePsn(const Json& request, FaultMatch& out) {
  uint64_t psn = 0;
  absl::Status status = TakeNumber(request, "psn", roce::kMask24, psn);
  if (!status.ok()) return status;
  if (request.contains("psn")) out.psn = static_cast<uint32_t>(psn);
  for (const char* key : {"psn_from_first", "pass"}) {
    if (request.contains(key) && !out.psn.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" needs \"psn\""));
    }
  }
  status = TakeFlag(request, "psn_from_first", out.psn_from_first);
  return status.ok() ? TakeNumber(request, "pass", UINT32_MAX, out.pass) : status;
}

absl::Status TakeCmMessage(const Json& request, uint16_t& out) {
  if (!request.contains("cm")) return absl::OkStatus();
  const absl::StatusOr<std::string> name = RequestText(request, "cm");
  if (!name.ok()) return name.status();
  const auto found = std::ranges::find(cm::kMessageNames, std::string_view(*name));
  if (found == cm::kMessageNames.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the connection manager has no message ", *name, "; the nearest is ",
                     std::string(NearestName(*name, cm::kMessageNames))));
  }
  out = static_cast<uint16_t>(cm::kFirstMessage + (found - cm::kMessageNames.begin()));
  return absl::OkStatus();
}

absl::Status TakePeer(const Json& request, std::optional<roce::Gid>& out) {
  if (!request.contains("peer")) return absl::OkStatus();
  const absl::StatusOr<std::string> text = RequestText(request, "peer");
  if (!text.ok()) return text.status();
  out = ParseIp(*text);
  return out.has_value() ? absl::OkStatus()
                         : WrongValue("peer", "an IPv4 or IPv6 address (10.99.0.2, fd00::2)");
}

absl::Status TakeMatch(const Json& request, FaultMatch& out) {
  absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(request);
  if (!filter.ok()) return filter.status();
  out.filter = *std::move(filter);
  std::optional<LinkDirection> direction = out.direction;
  for (const absl::Status& status :
       {TakeDirection(request, direction), TakeCmMessage(request, out.cm_message),
        TakePsn(request, out), TakeQueuePairMatch(request, out.queue_pair),
        TakePeer(request, out.peer), TakeOccasions(request, out.when)}) {
    if (!status.ok()) return status;
  }
  if (!direction.has_value()) return WrongValue("direction", "in or out");
  out.direction = *direction;
  return absl::OkStatus();
}

absl::Status CheckActions(const FaultActions& out) {
  if (!out.DoSomething()) return absl::InvalidArgumentError("the fault does nothing");
  if (out.overtaken_by != 0 && out.delay_ns != 0) {
    return absl::InvalidArgumentError(
        "a packet waits either for a time (\"delay_ns\") or for others (\"reorder\")");
  }
  FaultActions rest = out;
  rest.drops = false;
  if (rest.injection.kind != dataplane::Injection::Kind::kNone) {
    // These concern the frame that is injected.
    rest.injection = {};
    rest.marks_ecn = false;
    rest.changes.clear();
    rest.flips.clear();
  }
  if (out.drops && rest.DoSomething()) {
    return absl::InvalidArgumentError(
        "nothing else can be done to a packet that is lost (\"drop\")");
  }
  return absl::OkStatus();
}

absl::Status TakeActions(const Json& request, uint16_t cm_message, FaultActions& out) {
  uint64_t overtaken_by = 0;
  uint64_t copies = 0;
  uint64_t cut_bytes = 0;
  for (const absl::Status& status :
       {TakeFlag(request, "drop", out.drops), TakeFlag(request, "ecn", out.marks_ecn),
        TakeNumber(request, "delay_ns", dataplane::ImpairmentSettings::kMaxDelayNs, out.delay_ns),
        TakeNumber(request, "reorder", FaultActions::kMostOvertaking, overtaken_by),
        TakeNumber(request, "duplicate", FaultActions::kMostCopies, copies),
        TakeNumber(request, "truncate", FaultActions::kMostCutBytes, cut_bytes),
        TakeTexts(request, "set", ParseChange, out.changes),
        TakeTexts(request, "flip", ParseFlip, out.flips), TakeIcrc(request, out),
        TakeInjection(request, cm_message, out)}) {
    if (!status.ok()) return status;
  }
  out.overtaken_by = static_cast<uint32_t>(overtaken_by);
  out.copies = static_cast<uint32_t>(copies);
  out.cut_bytes = static_cast<uint32_t>(cut_bytes);
  return CheckActions(out);
}

std::string ChangeText(const FieldChange& change) {
  const std::string name(change.field->name);
  if (!change.adds) return absl::StrCat(name, "=", change.value);
  return static_cast<int64_t>(change.value) < 0 ? absl::StrCat(name, "-=", 0 - change.value)
                                                : absl::StrCat(name, "+=", change.value);
}

std::string FlipText(const BitFlip& flip) {
  const auto part = std::ranges::find(kParts, flip.part, [](const PartName& p) { return p.part; });
  return absl::StrCat(std::string(part->name), ":", flip.bit);
}

void DescribeMatch(const FaultMatch& match, Json& out) {
  out["direction"] = match.direction == LinkDirection::kIn ? "in" : "out";
  for (const roce::Qpn qpn : match.filter.qpns) out["qps"].push_back(qpn.value());
  for (const roce::Qpn qpn : match.filter.peers) out["peers"].push_back(qpn.value());
  for (uint32_t opcode = 0; opcode < match.filter.opcodes.size(); ++opcode) {
    if (match.filter.opcodes.test(opcode)) out["opcodes"].push_back(opcode);
  }
  if (match.cm_message != 0) out["cm"] = cm::kMessageNames[match.cm_message - cm::kFirstMessage];
  DescribeQueuePairMatch(match.queue_pair, out);
  if (match.peer.has_value()) out["peer"] = IpText(*match.peer);
  if (match.psn.has_value()) out["psn"] = *match.psn;
  if (match.psn_from_first) out["psn_from_first"] = true;
  if (match.pass != 0) out["pass"] = match.pass;
  DescribeOccasions(match.when, out);
}

void DescribeActions(const FaultActions& actions, Json& out) {
  if (actions.drops) out["drop"] = true;
  if (actions.marks_ecn) out["ecn"] = true;
  if (actions.delay_ns != 0) out["delay_ns"] = actions.delay_ns;
  if (actions.overtaken_by != 0) out["reorder"] = actions.overtaken_by;
  if (actions.copies != 0) out["duplicate"] = actions.copies;
  if (actions.cut_bytes != 0) out["truncate"] = actions.cut_bytes;
  for (const FieldChange& change : actions.changes) out["set"].push_back(ChangeText(change));
  for (const BitFlip& flip : actions.flips) out["flip"].push_back(FlipText(flip));
  if (!actions.changes.empty() || !actions.flips.empty()) {
    out["icrc"] = actions.fixes_icrc ? "fix" : "keep";
  }
  DescribeInjection(actions, out);
}

using AnyFault = std::variant<FaultSettings, dataplane::CompletionFaultSettings, CallFaultSettings>;

absl::StatusOr<AnyFault> DecodeAny(const Json& fault) {
  if (IsCallFault(fault)) return DecodeCallFault(fault);
  if (IsCompletionFault(fault)) return DecodeCompletionFault(fault);
  return DecodeFault(fault);
}

struct Adder {
  absl::Status operator()(const FaultSettings& settings) const {
    return device.dataplane().Do(dataplane::AddFault{settings}).status();
  }
  absl::Status operator()(const dataplane::CompletionFaultSettings& settings) const {
    return device.dataplane().Do(dataplane::AddCompletionFault{settings}).status();
  }
  absl::Status operator()(const CallFaultSettings& settings) const {
    return device.call_faults().Add(device.dataplane().TakeFaultId(), settings, MonotonicNow());
  }

  Device& device;
};

absl::Status Remove(Device& device, const Json& number) {
  if (!number.is_number_unsigned()) return WrongValue("remove", "a fault's number");
  if (number.get<uint64_t>() <= UINT32_MAX) {
    const auto id = number.get<uint32_t>();
    dataplane::DeviceClient& client = device.dataplane();
    if (client.Do(dataplane::RemoveFault{id}) || client.Do(dataplane::RemoveCompletionFault{id}) ||
        device.call_faults().Remove(id)) {
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(absl::StrCat(device.name(), " has no fault ", number.dump()));
}

void Clear(Device& device) {
  device.dataplane().Do(dataplane::ClearFaults{});
  for (const auto& state : device.dataplane().Do(dataplane::ListCompletionFaults{})) {
    device.dataplane().Do(dataplane::RemoveCompletionFault{state.id});
  }
  device.call_faults().Clear();
}

// In the order of their numbers.
Json DescribeFaults(Device& device) {
  std::map<uint32_t, Json> faults;
  for (const auto& [id, settings, counters] : device.dataplane().Do(dataplane::ListFaults{})) {
    faults[id] = DescribeFault(id, settings, counters);
  }
  for (const auto& state : device.dataplane().Do(dataplane::ListCompletionFaults{})) {
    faults[state.id] = DescribeCompletionFault(state);
  }
  for (const CallFault& fault : device.call_faults().all()) {
    faults[fault.id] = DescribeCallFault(fault);
  }
  Json out = Json::array();
  for (auto& [id, fault] : faults) out.push_back(std::move(fault));
  return out;
}

}  // namespace

absl::StatusOr<FaultSettings> DecodeFault(const Json& request) {
  FaultSettings out;
  for (const absl::Status& status : {CheckFaultKeys(request, kKeys), TakeMatch(request, out.match),
                                     TakeActions(request, out.match.cm_message, out.actions)}) {
    if (!status.ok()) return status;
  }
  return out;
}

Json DescribeFault(uint32_t id, const FaultSettings& settings,
                   const dataplane::FaultSnapshot& counters) {
  Json out = {{"fault", id}};
  DescribeMatch(settings.match, out);
  DescribeActions(settings.actions, out);
#define ROCI_DESCRIBE_COUNTER(member, name) out["counters"][name] = counters.member;
  ROCI_FAULT_COUNTERS(ROCI_DESCRIBE_COUNTER)
#undef ROCI_DESCRIBE_COUNTER
  return out;
}

absl::Status CheckFault(const Json& fault) { return DecodeAny(fault).status(); }

absl::Status AddFault(Device& device, const Json& fault) {
  const absl::StatusOr<AnyFault> settings = DecodeAny(fault);
  return settings.ok() ? std::visit(Adder{device}, *settings) : settings.status();
}

absl::StatusOr<Json> RunFaultCommand(const Services& services, const Json& request) {
  const absl::StatusOr<Device*> found = RequestDevice(services, request);
  if (!found.ok()) return found.status();
  Device& device = **found;
  absl::Status status;
  if (const auto add = request.find("add"); add != request.end()) {
    status = AddFault(device, *add);
  } else if (const auto number = request.find("remove"); number != request.end()) {
    status = Remove(device, *number);
  } else if (const auto clear = request.find("clear"); clear != request.end()) {
    if (*clear != true) return WrongValue("clear", "true");
    Clear(device);
  }
  if (!status.ok()) return status;
  return DescribeFaults(device);
}

}  // namespace roci::control
