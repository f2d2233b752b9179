// The daemon's use of resources: descriptors, mappings, memory, objects.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace roci::testing::hostile {

struct DaemonResources {
  std::map<std::string, uint64_t> descriptors;  // by kind
  uint64_t file_mappings = 0;
  uint64_t anonymous_mappings = 0;
  uint64_t rss_kib = 0;
  uint64_t log_bytes = 0;                   // of its standard error
  std::map<std::string, uint64_t> objects;  // by device and kind, as `roci show` has them
};

// The daemon that with_daemon.sh has started.
pid_t DaemonPid();
bool DaemonIsAlive();
// Objects are empty if the daemon does not answer.
DaemonResources ReadDaemonResources();
// Describes the resources of which there are more than at the start; empty if none. Bounded caches
// may fill.
std::string Excess(const DaemonResources& before, const DaemonResources& after);

}  // namespace roci::testing::hostile
