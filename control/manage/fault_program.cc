#include "control/manage/fault_program.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"

namespace roci::control {

using Json = nlohmann::json;

absl::Status TakeProgram(const Json& request, dataplane::ProgramMatch& out) {
  uint64_t pid = 0;
  const absl::Status status = TakeNumber(request, "pid", INT32_MAX, pid);
  if (!status.ok()) return status;
  if (request.contains("pid") && pid == 0) return WrongValue("pid", "1 or more");
  out.pid = static_cast<uint32_t>(pid);
  if (!request.contains("program")) return absl::OkStatus();
  absl::StatusOr<std::string> name = RequestText(request, "program");
  if (!name.ok()) return name.status();
  if (name->empty() || name->size() > dataplane::ProgramMatch::kMostNameBytes) {
    return WrongValue("program", "a name of 1 to 15 bytes, as ps -o comm has it");
  }
  out.name = *std::move(name);
  return absl::OkStatus();
}

void DescribeProgram(const dataplane::ProgramMatch& program, Json& out) {
  if (!program.name.empty()) out["program"] = program.name;
  if (program.pid != 0) out["pid"] = program.pid;
}

absl::Status TakeQueuePairMatch(const Json& request, dataplane::QueuePairMatch& out) {
  const absl::Status status = TakeNumber(request, "created", UINT32_MAX, out.created);
  if (!status.ok()) return status;
  if (request.contains("created") && out.created == 0) return WrongValue("created", "1 or more");
  return TakeProgram(request, out.program);
}

void DescribeQueuePairMatch(const dataplane::QueuePairMatch& match, Json& out) {
  DescribeProgram(match.program, out);
  if (match.created != 0) out["created"] = match.created;
}

}  // namespace roci::control
