#include "control/cm/injected_error.h"

#include "control/cm/channel.h"
#include "control/cm/port.h"
#include "control/loop/program_name.h"

namespace roci::control::cm {

int InjectedError(const CmId& id, uint32_t command) {
  CallFaults& faults = id.port->device.call_faults();
  if (faults.all().empty()) return 0;
  const pid_t pid = id.channel->peer().pid;
  return faults
      .Apply(OfConnectionManager(command), ProgramName(pid), MonotonicNow(),
             static_cast<uint32_t>(pid))
      .error;
}

int InjectedErrorOfAnswer(const CmId& id, uint32_t command) {
  const bool resolves = command == RDMA_USER_CM_CMD_RESOLVE_IP ||
                        command == RDMA_USER_CM_CMD_RESOLVE_ADDR ||
                        command == RDMA_USER_CM_CMD_RESOLVE_ROUTE;
  return resolves || id.port == nullptr ? 0 : InjectedError(id, command);
}

}  // namespace roci::control::cm
