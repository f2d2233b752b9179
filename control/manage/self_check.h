// Probes of what the machine grants this process, for `roci doctor`.
#pragma once

#include <nlohmann/json.hpp>

#include "control/device/services.h"

namespace roci::control {

// {"version": "0.1.0", "abi": "3.0" (of sessions), "errors": {THING: errno, 0 if it was granted},
// "drivers": {NAME: bool}}. The drivers are those of virtual ports, and "mempool_ring". The things:
// "userfaultfd" (the device), "raw_sockets", "tap", "map_files", "keep_pages"
// (dataplane::KeepPages), "process_vm", "lock_memory". For any process, before or after the EAL is
// started. Never waits for another process.
nlohmann::json TryMachine();

// The answer to kProbeCommand: as TryMachine(), and "running": what the daemon has got,
// {"hugepages": bool, "realtime": "auto" | "on" | "off", "realtime_priority": lowest of an lcore,
// "memory_policy": "auto" | "process_vm" | "map", "caller": process ID of the client, 0: not
// visible}.
nlohmann::json ProbeDaemon(const Services& services, const nlohmann::json& request);

}  // namespace roci::control
