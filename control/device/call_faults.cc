#include "control/device/call_faults.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace roci::control {
namespace {

struct Verb {
  const char* name;
  uint32_t command;
};

// A verb with several rows is executed by several commands. CREATE_AH and DESTROY_AH are missing,
// since the plugin answers most of these calls alone.
constexpr auto kVerbs = std::to_array<Verb>({
    {"open_device", ROCI_ABI_HELLO},
    {"query_device", ROCI_ABI_QUERY_DEVICE},
    {"query_port", ROCI_ABI_QUERY_PORT},
    {"alloc_pd", ROCI_ABI_ALLOC_PD},
    {"dealloc_pd", ROCI_ABI_DEALLOC_PD},
    {"reg_mr", ROCI_ABI_REG_MR},
    {"reg_dmabuf_mr", ROCI_ABI_REG_DMA_BUFFER_MR},
    {"rereg_mr", ROCI_ABI_REREG_MR},
    {"dereg_mr", ROCI_ABI_DEREG_MR},
    {"alloc_null_mr", ROCI_ABI_ALLOC_NULL_MR},
    {"alloc_mw", ROCI_ABI_ALLOC_MW},
    {"dealloc_mw", ROCI_ABI_DEALLOC_MW},
    {"alloc_dm", ROCI_ABI_ALLOC_DM},
    {"free_dm", ROCI_ABI_FREE_DM},
    {"reg_dm_mr", ROCI_ABI_REG_DM_MR},
    {"create_comp_channel", ROCI_ABI_CREATE_COMP_CHANNEL},
    {"destroy_comp_channel", ROCI_ABI_DESTROY_COMP_CHANNEL},
    {"create_cq", ROCI_ABI_CREATE_CQ},
    {"resize_cq", ROCI_ABI_RESIZE_CQ},
    {"modify_cq", ROCI_ABI_MODIFY_CQ},
    {"destroy_cq", ROCI_ABI_DESTROY_CQ},
    {"create_qp", ROCI_ABI_CREATE_QP},
    {"create_qp", ROCI_ABI_CREATE_RSS_QP},
    {"modify_qp", ROCI_ABI_MODIFY_QP},
    {"query_qp", ROCI_ABI_QUERY_QP},
    {"destroy_qp", ROCI_ABI_DESTROY_QP},
    {"open_qp", ROCI_ABI_OPEN_QP},
    {"create_srq", ROCI_ABI_CREATE_SRQ},
    {"create_srq", ROCI_ABI_CREATE_TAG_SRQ},
    {"modify_srq", ROCI_ABI_MODIFY_SRQ},
    {"query_srq", ROCI_ABI_QUERY_SRQ},
    {"destroy_srq", ROCI_ABI_DESTROY_SRQ},
    {"open_xrcd", ROCI_ABI_OPEN_XRCD},
    {"close_xrcd", ROCI_ABI_CLOSE_XRCD},
    {"attach_mcast", ROCI_ABI_ATTACH_MULTICAST},
    {"detach_mcast", ROCI_ABI_DETACH_MULTICAST},
    {"create_flow", ROCI_ABI_CREATE_FLOW},
    {"destroy_flow", ROCI_ABI_DESTROY_FLOW},
    {"create_counters", ROCI_ABI_CREATE_COUNTERS},
    {"destroy_counters", ROCI_ABI_DESTROY_COUNTERS},
    {"attach_counters_point_flow", ROCI_ABI_ATTACH_COUNTERS},
    {"read_counters", ROCI_ABI_READ_COUNTERS},
    {"create_rwq_ind_table", ROCI_ABI_CREATE_QUEUE_TABLE},
    {"destroy_rwq_ind_table", ROCI_ABI_DESTROY_QUEUE_TABLE},
    {"import_pd", ROCI_ABI_IMPORT_PD},
    {"import_mr", ROCI_ABI_IMPORT_MR},
    {"import_dm", ROCI_ABI_IMPORT_DM},
});

}  // namespace

std::vector<std::string_view> VerbNames() {
  std::vector<std::string_view> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  return names;
}

CommandSet CommandsOf(const std::string& verb) {
  CommandSet commands;
  for (const Verb& each : kVerbs) {
    if (fnmatch(verb.c_str(), each.name, 0) == 0) commands.set(each.command);
  }
  return commands;
}

absl::Status CallFaults::Add(uint32_t id, const CallFaultSettings& settings, roce::TimeNs now) {
  if (faults_.size() == kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", kMost,
                     " faults of calls, the most possible: delete one of them (roci fault del)"));
  }
  faults_.push_back({id, settings, now});
  return absl::OkStatus();
}

bool CallFaults::Remove(uint32_t id) {
  return std::erase_if(faults_, [id](const CallFault& fault) { return fault.id == id; }) != 0;
}

CallFaults::Fate CallFaults::Apply(uint32_t command, std::string_view program, roce::TimeNs now) {
  Fate fate;
  for (CallFault& fault : faults_) {
    const CallFaultSettings& settings = fault.settings;
    if (!settings.commands.test(command) || !settings.when.IsInTime(now - fault.began) ||
        (!settings.program.empty() && settings.program != program)) {
      continue;
    }
    if (!settings.when.Takes(++fault.matched, fault.hit)) continue;
    ++fault.hit;
    fate.delay_ns = std::min(fate.delay_ns + settings.delay_ns, CallFaultSettings::kMostDelayNs);
    if (fate.error != 0 || settings.error == 0) continue;
    fate.error = settings.error;
    fate.fault = fault.id;
  }
  return fate;
}

}  // namespace roci::control
