#include "control/device/call_faults.h"

#include <fnmatch.h>
#include <netinet/in.h>
// After the C library's header: the kernel's header then uses its address types.
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "verbs_provider/abi/session_device.h"

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
    // Those for which the connection manager knows the device.
    {"rdma_resolve_addr", OfConnectionManager(RDMA_USER_CM_CMD_RESOLVE_IP)},
    {"rdma_resolve_addr", OfConnectionManager(RDMA_USER_CM_CMD_RESOLVE_ADDR)},
    {"rdma_resolve_route", OfConnectionManager(RDMA_USER_CM_CMD_RESOLVE_ROUTE)},
    {"rdma_connect", OfConnectionManager(RDMA_USER_CM_CMD_CONNECT)},
    {"rdma_accept", OfConnectionManager(RDMA_USER_CM_CMD_ACCEPT)},
    {"rdma_reject", OfConnectionManager(RDMA_USER_CM_CMD_REJECT)},
    {"rdma_disconnect", OfConnectionManager(RDMA_USER_CM_CMD_DISCONNECT)},
    {"rdma_join_multicast", OfConnectionManager(RDMA_USER_CM_CMD_JOIN_IP_MCAST)},
    {"rdma_join_multicast", OfConnectionManager(RDMA_USER_CM_CMD_JOIN_MCAST)},
});
static_assert(RDMA_USER_CM_CMD_JOIN_MCAST < kMostCmCommands);

constexpr std::string_view kCmPrefix = "rdma_";

#define ROCI_LIMIT(name, command, type, field) \
  AnswerLimit { name, ROCI_ABI_##command, offsetof(type, field), sizeof(type::field) }
#define ROCI_DEVICE_LIMIT(name) \
  ROCI_LIMIT(#name, QUERY_DEVICE, roci_abi_query_device_response, name)
constexpr auto kLimits = std::to_array<AnswerLimit>({
    ROCI_DEVICE_LIMIT(max_mr_size),
    ROCI_DEVICE_LIMIT(max_qp),
    ROCI_DEVICE_LIMIT(max_qp_wr),
    ROCI_DEVICE_LIMIT(max_sge),
    ROCI_DEVICE_LIMIT(max_sge_rd),
    ROCI_DEVICE_LIMIT(max_cq),
    ROCI_DEVICE_LIMIT(max_cqe),
    ROCI_DEVICE_LIMIT(max_mr),
    ROCI_DEVICE_LIMIT(max_pd),
    ROCI_DEVICE_LIMIT(max_qp_rd_atom),
    ROCI_DEVICE_LIMIT(max_res_rd_atom),
    ROCI_DEVICE_LIMIT(max_qp_init_rd_atom),
    ROCI_DEVICE_LIMIT(max_mw),
    ROCI_DEVICE_LIMIT(max_mcast_grp),
    ROCI_DEVICE_LIMIT(max_mcast_qp_attach),
    ROCI_DEVICE_LIMIT(max_total_mcast_qp_attach),
    ROCI_DEVICE_LIMIT(max_ah),
    ROCI_DEVICE_LIMIT(max_srq),
    ROCI_DEVICE_LIMIT(max_srq_wr),
    ROCI_DEVICE_LIMIT(max_srq_sge),
    ROCI_DEVICE_LIMIT(max_pkeys),
    ROCI_LIMIT("active_mtu", QUERY_PORT, roci_abi_query_port_response, active_mtu),
    ROCI_LIMIT("max_msg_sz", QUERY_PORT, roci_abi_query_port_response, max_message_size),
    ROCI_LIMIT("gid_tbl_len", QUERY_PORT, roci_abi_query_port_response, gid_table_length),
    ROCI_LIMIT("pkey_tbl_len", QUERY_PORT, roci_abi_query_port_response, pkey_table_length),
});
#undef ROCI_DEVICE_LIMIT
#undef ROCI_LIMIT

template <class T>
void Lower(std::byte* at, uint64_t most) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  if (value <= most) return;
  value = static_cast<T>(most);
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

std::span<const AnswerLimit> AnswerLimits() { return kLimits; }

void LowerLimits(std::span<const LoweredLimit> limits, uint32_t command,
                 std::span<std::byte> response) {
  for (const auto& [limit, most] : limits) {
    if (limit->command != command || limit->offset + size_t{limit->bytes} > response.size()) {
      continue;
    }
    std::byte* const at = response.data() + limit->offset;
    if (limit->bytes == sizeof(uint64_t)) Lower<uint64_t>(at, most);
    if (limit->bytes == sizeof(uint32_t)) Lower<uint32_t>(at, most);
    if (limit->bytes == sizeof(uint16_t)) Lower<uint16_t>(at, most);
  }
}

std::vector<std::string_view> VerbNames() {
  std::vector<std::string_view> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  return names;
}

CommandSet CommandsOf(const std::string& verb) {
  const bool wants_cm = std::string_view(verb).starts_with(kCmPrefix);
  CommandSet commands;
  for (const Verb& each : kVerbs) {
    const bool is_cm = each.command >= ROCI_ABI_COMMAND_COUNT;
    if (is_cm == wants_cm && fnmatch(verb.c_str(), each.name, 0) == 0) commands.set(each.command);
  }
  return commands;
}

bool HasCmCommands(const CommandSet& commands) {
  return (commands >> ROCI_ABI_COMMAND_COUNT).any();
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

CallFaults::Fate CallFaults::Apply(uint32_t command, std::string_view program, roce::TimeNs now,
                                   uint32_t pid) {
  Fate fate;
  for (CallFault& fault : faults_) {
    const CallFaultSettings& settings = fault.settings;
    if (!settings.commands.test(command) || !settings.when.IsInTime(now - fault.began) ||
        !settings.program.Matches(program, pid)) {
      continue;
    }
    if (!settings.when.Takes(++fault.matched, fault.hit)) continue;
    ++fault.hit;
    fate.delay_ns = std::min(fate.delay_ns + settings.delay_ns, CallFaultSettings::kMostDelayNs);
    fate.limits.insert(fate.limits.end(), settings.limits.begin(), settings.limits.end());
    if (fate.error != 0 || settings.error == 0) continue;
    fate.error = settings.error;
    fate.fault = fault.id;
  }
  return fate;
}

}  // namespace roci::control
