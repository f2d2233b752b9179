#include "control/config/fault_keys.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/config/value_text.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using Kind = FaultKeyKind;

constexpr uint64_t kMostDelayNs = 20 * roce::kNsPerSecond;  // of a call; the daemon knows more
constexpr uint64_t kMostPeriodNs = 24 * 3'600 * roce::kNsPerSecond;

constexpr auto kFaultKeys = std::to_array<FaultKey>({
    {"direction", Kind::kChoice, "direction", "in or out (default out)", {"in", "out"}},
    {"qp", Kind::kQueuePairs, "qps", "Of this queue pair"},
    {"opcode", Kind::kOpcodes, "opcodes", "With this opcode"},
    {"cm", Kind::kText, "cm", "A message of the connection manager: req, rep, rej, ..."},
    {"completion", Kind::kText, "completion",
     "Completions instead of packets: send, rdma_read, recv, ... or '*'"},
    {"verb", Kind::kText, "verb", "Calls instead of packets: reg_mr, 'create_*'"},
    {"program", Kind::kProgram, "program", "Of programs with this name or process number"},
    {"created", Kind::kNumber, "created", "Of the N-th queue pair that is created from now on"},
    {"peer", Kind::kText, "peer", "Of this address at the other end"},
    {"psn", Kind::kPsn, "psn", "PSN, or +N from the first packet"},
    {"pass", Kind::kNumber, "pass", "With --psn: the N-th time that it passes"},
    {"after", Kind::kPeriod, "after_ns", "Begin after this time"},
    {"for", Kind::kPeriod, "for_ns", "Last for this time"},
    {"nth", Kind::kNumber, "nth", "The N-th packet or call that matches"},
    {"every", Kind::kNumber, "every", "Every N-th"},
    {"times", Kind::kNumber, "times", "At most this number; 0: no limit"},
    {"chance", Kind::kChance, "chance", "Probability: 1% or 0.01"},
    {"seed", Kind::kNumber, "seed", "Seed of --chance (default 0)"},
    {"drop", Kind::kFlag, "drop", "Drop the packet"},
    {"delay", Kind::kDelay, "delay_ns", "Hold it for this time"},
    {"reorder", Kind::kNumber, "reorder", "Let N packets overtake it"},
    {"duplicate", Kind::kNumber, "duplicate", "Send N more copies"},
    {"truncate", Kind::kNumber, "truncate", "Cut N bytes off its end"},
    {"status", Kind::kText, "status",
     "With --completion: the status that they report: rem_access_err"},
    {"vendor-error", Kind::kNumber, "vendor_error", "With --status: their vendor error"},
    {"lose-event", Kind::kFlag, "lose_event",
     "With --completion: the event that they raise is lost"},
    {"overflow", Kind::kFlag, "overflow", "With --completion: the completion queue overflows"},
    {"errno", Kind::kName, "errno", "With --verb: the call fails with it: ENOMEM"},
    {"limit", Kind::kTexts, "limit",
     "With --verb query_device or query_port: answer with at most: max_qp=16"},
    {"inject", Kind::kText, "inject",
     "Put a frame in front: cnp, nak_access, rnr_nak, stale, dreq, ..."},
    {"reject", Kind::kName, "reject", "With --cm: drop it and answer with REJ of this reason"},
    {"ecn", Kind::kFlag, "ecn", "Mark it (CE)"},
    {"set", Kind::kTexts, "set", "Change a field: FIELD=VALUE, += or -=; help: list the fields"},
    {"flip", Kind::kTexts, "flip", "Invert a bit: headers:N, payload:N, icrc:N"},
    {"icrc", Kind::kChoice, "icrc", "Fix or keep the ICRC after --set and --flip", {"fix", "keep"}},
});

// Each of these adds the value if it is one, and returns what is wrong with the text.
std::string TakeNumberOr(const char* key, const std::string& text, uint64_t most, const char* fault,
                         Json& request) {
  const std::optional<uint64_t> number = ParseNumber(text, most);
  if (!number) return absl::StrCat(text, " ", fault);
  request[key] = *number;
  return {};
}

std::string TakeTime(const FaultKey& key, const std::string& text, Json& request) {
  const bool is_delay = key.kind == Kind::kDelay;
  const std::optional<uint64_t> ns = ParseDuration(text, is_delay ? kMostDelayNs : kMostPeriodNs);
  if (!ns || (!is_delay && *ns == 0)) {
    return absl::StrCat(text, is_delay ? " is not a time up to 5s, for calls 20s (10us, 1.5ms)"
                                       : " is not a time up to 86400s (100ms, 30s)");
  }
  request[key.request] = *ns;
  return {};
}

std::string TakePsn(const FaultKey& key, const std::string& text, Json& request) {
  const bool from_first = text.starts_with('+');
  if (from_first) request["psn_from_first"] = true;
  return TakeNumberOr(key.request, from_first ? text.substr(1) : text, roce::kMask24,
                      "is not a PSN (1000, +5)", request);
}

std::string TakeOpcodes(const FaultKey& key, const std::string& text, Json& request) {
  const std::vector<uint32_t> found = FindOpcodes(text);
  if (found.empty()) return absl::StrCat("there is no opcode ", text);
  std::vector<uint32_t> all = request.value(key.request, std::vector<uint32_t>());
  all.insert(all.end(), found.begin(), found.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  request[key.request] = all;
  return {};
}

}  // namespace

std::span<const FaultKey> FaultKeys() { return kFaultKeys; }

std::string TakeFaultValue(const FaultKey& key, const std::string& text, Json& request) {
  if (text.empty() && key.kind != Kind::kFlag) return "must not be empty";
  switch (key.kind) {
    case Kind::kFlag:
      request[key.request] = true;
      return {};
    case Kind::kNumber:
      return TakeNumberOr(key.request, text, kMostInJson, "is not a number", request);
    case Kind::kDelay:
    case Kind::kPeriod:
      return TakeTime(key, text, request);
    case Kind::kChance: {
      const std::optional<double> chance = ParseChance(text);
      if (!chance) return absl::StrCat(text, " is not a probability (1%, 0.01)");
      request[key.request] = *chance;
      return {};
    }
    case Kind::kPsn:
      return TakePsn(key, text, request);
    case Kind::kChoice:
      if (std::ranges::find(key.choices, std::string_view(text)) == key.choices.end()) {
        return absl::StrCat(text, " is neither ", std::string(key.choices[0]), " nor ",
                            std::string(key.choices[1]));
      }
      [[fallthrough]];
    case Kind::kText:
      request[key.request] = text;
      return {};
    case Kind::kProgram:
      if (TakeNumberOr("pid", text, kMostInJson, "", request).empty()) return {};
      request[key.request] = text;
      return {};
    case Kind::kName:
      if (TakeNumberOr(key.request, text, kMostInJson, "", request).empty()) return {};
      request[key.request] = text;
      return {};
    case Kind::kTexts:
      request[key.request].push_back(text);
      return {};
    case Kind::kQueuePairs: {
      const std::optional<uint64_t> number = ParseNumber(text, roce::kMask24);
      if (!number) return absl::StrCat(text, " is not a queue pair number");
      request[key.request].push_back(*number);
      return {};
    }
    case Kind::kOpcodes:
      return TakeOpcodes(key, text, request);
  }
  return {};
}

}  // namespace roci::control
