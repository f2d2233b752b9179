#include "control/manage/call_fault_requests.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "control/config/nearest_name.h"
#include "control/manage/fault_occasions.h"
#include "control/manage/fault_program.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

constexpr int kLastErrno = 133;  // EHWPOISON
constexpr auto kKeys =
    std::to_array<std::string_view>({"verb", "program", "pid", "errno", "delay_ns", "limit"});

struct Alias {
  const char* name;
  int error;
};
// Names that strerrorname_np(3) does not use.
constexpr auto kAliases = std::to_array<Alias>(
    {{"ENOTSUP", ENOTSUP}, {"EWOULDBLOCK", EWOULDBLOCK}, {"EDEADLOCK", EDEADLOCK}});

std::optional<int> ErrnoOf(const Json& value) {
  for (const Alias& alias : kAliases) {
    if (value == alias.name) return alias.error;
  }
  for (int error = 1; error <= kLastErrno; ++error) {
    const char* name = strerrorname_np(error);
    if (name != nullptr && (value == error || value == name)) return error;
  }
  return std::nullopt;
}

absl::Status TakeErrno(const Json& fault, int& out) {
  const auto it = fault.find("errno");
  if (it == fault.end()) return absl::OkStatus();
  const std::optional<int> error = ErrnoOf(*it);
  if (!error.has_value()) {
    return WrongValue("errno", "a name or number of errno(3) on Linux: ENOMEM");
  }
  out = *error;
  return absl::OkStatus();
}

absl::Status TakeVerb(const Json& fault, CallFaultSettings& out) {
  const absl::StatusOr<std::string> verb = RequestText(fault, "verb");
  if (!verb.ok()) return verb.status();
  out.verb = *verb;
  out.commands = CommandsOf(*verb);
  if (out.commands.any()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no verb ", *verb,
                                                 " is executed by the daemon; the nearest is ",
                                                 std::string(NearestName(*verb, VerbNames()))));
}

// "max_qp=16"
absl::StatusOr<LoweredLimit> ParseLimit(const std::string& text, const CommandSet& commands) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::vector<std::string_view> names;
  for (const AnswerLimit& limit : AnswerLimits()) {
    if (commands.test(limit.command)) names.push_back(limit.name);
  }
  if (names.empty()) {
    return absl::InvalidArgumentError("\"limit\" needs the verb query_device or query_port");
  }
  const auto found = std::ranges::find(AnswerLimits(), std::string_view(name), &AnswerLimit::name);
  if (found == AnswerLimits().end() || !commands.test(found->command)) {
    return absl::InvalidArgumentError(absl::StrCat("the answer has no limit ", name,
                                                   "; the nearest is ",
                                                   std::string(NearestName(name, names))));
  }
  LoweredLimit out{&*found, 0};
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(equals + 1), &out.most)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" must be LIMIT=NUMBER"));
  }
  return out;
}

absl::Status TakeLimits(const Json& fault, CallFaultSettings& out) {
  const auto it = fault.find("limit");
  if (it == fault.end()) return absl::OkStatus();
  if (!it->is_array()) return WrongValue("limit", "a list of texts, each LIMIT=NUMBER");
  for (const Json& entry : *it) {
    if (!entry.is_string() || out.limits.size() == AnswerLimits().size()) {
      return WrongValue("limit", "a list of texts, each LIMIT=NUMBER");
    }
    const auto limit = ParseLimit(entry.get<std::string>(), out.commands);
    if (!limit.ok()) return limit.status();
    out.limits.push_back(*limit);
  }
  return absl::OkStatus();
}

// Refuses faults that librdmacm's calls cannot have: these calls fail, but cannot be delayed.
absl::Status CheckCmCall(const CallFaultSettings& fault) {
  if (!HasCmCommands(fault.commands) || fault.delay_ns == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "calls of librdmacm can only fail (\"errno\"); delay the messages that they send (\"cm\")");
}

}  // namespace

bool IsCallFault(const Json& fault) { return fault.is_object() && fault.contains("verb"); }

absl::StatusOr<CallFaultSettings> DecodeCallFault(const Json& fault) {
  CallFaultSettings out;
  for (const absl::Status& status :
       {CheckFaultKeys(fault, kKeys), TakeVerb(fault, out), TakeErrno(fault, out.error),
        TakeNumber(fault, "delay_ns", CallFaultSettings::kMostDelayNs, out.delay_ns),
        TakeLimits(fault, out), TakeProgram(fault, out.program), TakeOccasions(fault, out.when),
        CheckCmCall(out)}) {
    if (!status.ok()) return status;
  }
  if (out.error == 0 && out.delay_ns == 0 && out.limits.empty()) {
    return absl::InvalidArgumentError(
        "the fault does nothing to the call: it needs \"errno\", \"delay_ns\" or \"limit\"");
  }
  return out;
}

Json DescribeCallFault(const CallFault& fault) {
  Json out = {{"fault", fault.id}, {"verb", fault.settings.verb}};
  DescribeProgram(fault.settings.program, out);
  DescribeOccasions(fault.settings.when, out);
  if (fault.settings.error != 0) out["errno"] = strerrorname_np(fault.settings.error);
  if (fault.settings.delay_ns != 0) out["delay_ns"] = fault.settings.delay_ns;
  for (const auto& [limit, most] : fault.settings.limits) {
    out["limit"].push_back(absl::StrCat(std::string(limit->name), "=", most));
  }
  out["counters"] = {{"matched", fault.matched}, {"hit", fault.hit}};
  return out;
}

}  // namespace roci::control
