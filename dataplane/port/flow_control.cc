#include "dataplane/port/flow_control.h"

#include <rte_errno.h>
#include <rte_ethdev.h>

#include "absl/strings/str_cat.h"

namespace roci::dataplane {
namespace {

// In units of 512 bit times; the NIC ends the pause earlier when its buffer has room again.
constexpr uint16_t kPauseTime = UINT16_MAX;
constexpr uint32_t kPriorities = 8;

PortFlowControl StateOf(const rte_eth_fc_conf& conf) {
  return {.rx_pause = conf.mode == RTE_ETH_FC_RX_PAUSE || conf.mode == RTE_ETH_FC_FULL,
          .tx_pause = conf.mode == RTE_ETH_FC_TX_PAUSE || conf.mode == RTE_ETH_FC_FULL};
}

absl::Status Refusal(const char* what, int error) {
  return absl::FailedPreconditionError(absl::StrCat(what, " cannot be switched on: ",
                                                    error == -ENOTSUP || error == -ENOSYS
                                                        ? "the driver of the port does not offer it"
                                                        : rte_strerror(-error)));
}

// Water marks that the driver reports stay as they are.
rte_eth_fc_conf Present(uint16_t port, int& error) {
  rte_eth_fc_conf conf{};
  error = rte_eth_dev_flow_ctrl_get(port, &conf);
  return conf;
}

absl::StatusOr<PortFlowControl> SetPause(uint16_t port, FlowControlUse use) {
  int error = 0;
  rte_eth_fc_conf conf = Present(port, error);
  if (error != 0) {
    if (use == FlowControlUse::kOn) return Refusal("pause", error);
    return PortFlowControl{};
  }
  const rte_eth_fc_conf before = conf;
  conf.mode = use == FlowControlUse::kOff ? RTE_ETH_FC_NONE : RTE_ETH_FC_FULL;
  if (conf.pause_time == 0) conf.pause_time = kPauseTime;
  conf.send_xon = 1;
  error = rte_eth_dev_flow_ctrl_set(port, &conf);
  if (error == 0) return StateOf(conf);
  if (use == FlowControlUse::kOn) return Refusal("pause", error);
  return StateOf(before);
}

absl::StatusOr<PortFlowControl> SetPfc(uint16_t port, uint8_t priorities) {
  int ignored = 0;
  rte_eth_pfc_conf conf{};
  conf.fc = Present(port, ignored);
  conf.fc.mode = RTE_ETH_FC_FULL;
  if (conf.fc.pause_time == 0) conf.fc.pause_time = kPauseTime;
  for (uint8_t priority = 0; priority < kPriorities; ++priority) {
    if ((priorities >> priority & 1) == 0) continue;
    conf.priority = priority;
    const int error = rte_eth_dev_priority_flow_ctrl_set(port, &conf);
    if (error != 0) return Refusal("PFC", error);
  }
  return PortFlowControl{.pfc_priorities = priorities};
}

}  // namespace

// A link has pause frames or PFC, not both.
absl::StatusOr<PortFlowControl> SetFlowControl(uint16_t port, const PortSettings& settings) {
  if (settings.pfc_priorities != 0) return SetPfc(port, settings.pfc_priorities);
  return SetPause(port, settings.pause);
}

absl::Status FlowControlIsOff(const PortSettings& settings) {
  if (settings.pfc_priorities != 0) return Refusal("PFC", -ENOTSUP);
  return settings.pause == FlowControlUse::kOn ? Refusal("pause", -ENOTSUP) : absl::OkStatus();
}

}  // namespace roci::dataplane
