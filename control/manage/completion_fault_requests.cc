#include "control/manage/completion_fault_requests.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/config/named_value.h"
#include "control/config/nearest_name.h"
#include "control/config/status_names.h"
#include "control/manage/fault_occasions.h"
#include "control/manage/fault_program.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using dataplane::CompletionFaultSettings;
using roce::CompletionOpcode;
using roce::CompletionStatus;

constexpr Named<CompletionOpcode> kOpcodes[] = {
    {"send", CompletionOpcode::kSend},
    {"rdma_write", CompletionOpcode::kRdmaWrite},
    {"rdma_read", CompletionOpcode::kRdmaRead},
    {"comp_swap", CompletionOpcode::kCompareSwap},
    {"fetch_add", CompletionOpcode::kFetchAdd},
    {"bind_mw", CompletionOpcode::kBindMw},
    {"local_inv", CompletionOpcode::kLocalInvalidate},
    {"atomic_write", CompletionOpcode::kAtomicWrite},
    {"flush", CompletionOpcode::kFlush},
    {"recv", CompletionOpcode::kRecv},
    {"recv_rdma_with_imm", CompletionOpcode::kRecvRdmaWithImm},
};

constexpr auto kKeys =
    std::to_array<std::string_view>({"completion", "qps", "program", "pid", "created", "status",
                                     "vendor_error", "delay_ns", "lose_event", "overflow"});

template <class Value, size_t kSize>
absl::Status NoSuch(const char* what, const std::string& wrong,
                    const Named<Value> (&names)[kSize]) {
  std::vector<std::string_view> all;
  for (const Named<Value>& each : names) all.push_back(each.name);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no ", what, " ", wrong, "; the nearest is ", std::string(NearestName(wrong, all))));
}

absl::Status TakeOpcodes(const Json& fault, std::bitset<256>& out) {
  const absl::StatusOr<std::string> pattern = RequestText(fault, "completion");
  if (!pattern.ok()) return pattern.status();
  for (const auto& [name, opcode] : kOpcodes) {
    if (fnmatch(pattern->c_str(), std::string(name).c_str(), 0) == 0)
      out.set(static_cast<size_t>(opcode));
  }
  return out.any() ? absl::OkStatus() : NoSuch("completion", *pattern, kOpcodes);
}

absl::Status TakeStatus(const Json& fault, CompletionStatus& out) {
  if (!fault.contains("status")) return absl::OkStatus();
  const absl::StatusOr<std::string> wanted = RequestText(fault, "status");
  if (!wanted.ok()) return wanted.status();
  return Lookup(kStatusNames, *wanted, out) ? absl::OkStatus()
                                            : NoSuch("status", *wanted, kStatusNames);
}

absl::Status TakeVendorError(const Json& fault, CompletionFaultSettings& out) {
  if (!fault.contains("vendor_error")) return absl::OkStatus();
  if (!fault.contains("status")) {
    return absl::InvalidArgumentError("\"vendor_error\" needs \"status\"");
  }
  uint64_t number = 0;
  const absl::Status status = TakeNumber(fault, "vendor_error", UINT32_MAX, number);
  out.vendor_error = static_cast<uint32_t>(number);
  return status;
}

absl::Status CheckActions(const CompletionFaultSettings& fault) {
  const bool has_status = fault.status != CompletionStatus::kSuccess;
  const bool writes = has_status || fault.delay_ns != 0 || fault.loses_event;
  if (!writes && !fault.overflows) {
    return absl::InvalidArgumentError(
        "the fault does nothing to the completion: it needs \"status\", \"delay_ns\", "
        "\"lose_event\" or \"overflow\"");
  }
  if (writes && fault.overflows) {
    return absl::InvalidArgumentError(
        "nothing else can be done to a completion that does not fit (\"overflow\")");
  }
  return absl::OkStatus();
}

// One pattern for the opcodes: their name, or those that are all of a kind.
Json DescribeOpcodes(const std::bitset<256>& opcodes) {
  Json names = Json::array();
  for (const auto& [name, opcode] : kOpcodes) {
    if (opcodes.test(static_cast<size_t>(opcode))) names.push_back(name);
  }
  if (names.size() == std::size(kOpcodes)) return "*";
  return names.size() == 1 ? names[0] : names;
}

}  // namespace

bool IsCompletionFault(const Json& fault) {
  return fault.is_object() && fault.contains("completion");
}

absl::StatusOr<CompletionFaultSettings> DecodeCompletionFault(const Json& fault) {
  CompletionFaultSettings out;
  for (const absl::Status& status :
       {CheckFaultKeys(fault, kKeys), TakeOpcodes(fault, out.opcodes),
        TakeStatus(fault, out.status), TakeVendorError(fault, out),
        TakeNumber(fault, "delay_ns", dataplane::ImpairmentSettings::kMaxDelayNs, out.delay_ns),
        TakeFlag(fault, "lose_event", out.loses_event), TakeFlag(fault, "overflow", out.overflows),
        TakeQueuePairMatch(fault, out.queue_pair), TakeOccasions(fault, out.when),
        CheckActions(out)}) {
    if (!status.ok()) return status;
  }
  absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(fault);
  if (!filter.ok()) return filter.status();
  out.qpns = std::move(filter->qpns);
  return out;
}

Json DescribeCompletionFault(const dataplane::CompletionFaultState& fault) {
  const CompletionFaultSettings& settings = fault.settings;
  Json out = {{"fault", fault.id}, {"completion", DescribeOpcodes(settings.opcodes)}};
  for (const roce::Qpn qpn : settings.qpns) out["qps"].push_back(qpn.value());
  DescribeQueuePairMatch(settings.queue_pair, out);
  DescribeOccasions(settings.when, out);
  const auto status =
      std::ranges::find(kStatusNames, settings.status, &Named<CompletionStatus>::value);
  if (status != std::end(kStatusNames)) out["status"] = status->name;
  if (settings.vendor_error.has_value()) out["vendor_error"] = *settings.vendor_error;
  if (settings.delay_ns != 0) out["delay_ns"] = settings.delay_ns;
  if (settings.loses_event) out["lose_event"] = true;
  if (settings.overflows) out["overflow"] = true;
  out["counters"] = {{"matched", fault.matched}, {"hit", fault.hit}};
  return out;
}

}  // namespace roci::control
