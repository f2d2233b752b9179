// The counters below ports/1/hw_counters: those of rdma_rxe by their names, then our own.
#pragma once

#include <string>
#include <vector>

#include "control/sysfs/sysfs_layout.h"
#include "dataplane/shard/device_client.h"

namespace roci::control {

// The names of those that rdma_rxe does not have.
std::vector<std::string> HardwareCounterNames();

// All of them, always in the same order. Those of rdma_rxe that do not exist here are 0.
std::vector<CounterValue> HardwareCounters(const dataplane::DeviceSnapshot& snapshot);

}  // namespace roci::control
