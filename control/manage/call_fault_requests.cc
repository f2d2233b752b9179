#include "control/manage/call_fault_requests.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "control/manage/fault_occasions.h"
#include "control/manage/manage_request.h"
#include "control/manage/nearest_name.h"
#include "control/manage/request_values.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

constexpr int kLastErrno = 133;  // EHWPOISON
constexpr auto kKeys = std::to_array<std::string_view>({"verb", "program", "errno", "delay_ns"});

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

}  // namespace

bool IsCallFault(const Json& fault) { return fault.is_object() && fault.contains("verb"); }

absl::StatusOr<CallFaultSettings> DecodeCallFault(const Json& fault) {
  CallFaultSettings out;
  for (const absl::Status& status :
       {CheckFaultKeys(fault, kKeys), TakeVerb(fault, out), TakeErrno(fault, out.error),
        TakeNumber(fault, "delay_ns", CallFaultSettings::kMostDelayNs, out.delay_ns),
        TakeOccasions(fault, out.when)}) {
    if (!status.ok()) return status;
  }
  if (fault.contains("program")) {
    absl::StatusOr<std::string> program = RequestText(fault, "program");
    if (!program.ok()) return program.status();
    constexpr size_t kMostBytes = 15;  // of a name in Linux (TASK_COMM_LEN)
    if (program->empty() || program->size() > kMostBytes) {
      return WrongValue("program", "a name of 1 to 15 bytes, as ps -o comm has it");
    }
    out.program = *std::move(program);
  }
  if (out.error == 0 && out.delay_ns == 0) {
    return absl::InvalidArgumentError(
        "the fault does nothing to the call: it needs \"errno\" or \"delay_ns\"");
  }
  return out;
}

Json DescribeCallFault(const CallFault& fault) {
  Json out = {{"fault", fault.id}, {"verb", fault.settings.verb}};
  if (!fault.settings.program.empty()) out["program"] = fault.settings.program;
  DescribeOccasions(fault.settings.when, out);
  if (fault.settings.error != 0) out["errno"] = strerrorname_np(fault.settings.error);
  if (fault.settings.delay_ns != 0) out["delay_ns"] = fault.settings.delay_ns;
  out["counters"] = {{"matched", fault.matched}, {"hit", fault.hit}};
  return out;
}

}  // namespace roci::control
