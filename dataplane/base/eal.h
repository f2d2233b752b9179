// Starts DPDK's environment (EAL), for a daemon that may have no privileges.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "dataplane/base/eal_options.h"

namespace roci::dataplane {

// Initialises the EAL; the calling thread becomes its main lcore (the control thread). Called once
// per process. The EAL is never cleaned up: DPDK's interrupt thread keeps running, and
// rte_eal_cleanup would free memory that drivers have registered with it (memif_listener.h). The
// EAL leaves no files behind that a clean-up would remove. InvalidArgument: an option is out of
// range; Internal: DPDK refuses.
absl::Status StartEal(const EalOptions& options);

// Runs `work` on DPDK's interrupt thread and waits for it. The alarms that earlier interrupt
// handlers set have run before. False: the thread did not run it within thirty seconds, and `work`
// never runs. Control thread.
bool RunOnInterruptThread(const std::function<void()>& work);

// Whether the EAL uses hugepages. After StartEal.
bool EalHasHugePages();

}  // namespace roci::dataplane
