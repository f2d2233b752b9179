#define ALLOW_EXPERIMENTAL_API  // rte_devargs_reset
#include "dataplane/port/port_drivers.h"

#include <dlfcn.h>
#include <rte_devargs.h>
#include <rte_log.h>
#include <rte_mempool.h>

#include <filesystem>
#include <string_view>

namespace roci::dataplane {
namespace {

#ifdef ROCI_STATIC_DPDK  // a plugin would bring a second EAL
constexpr bool kDriversAreLinkedIn = true;
#else
constexpr bool kDriversAreLinkedIn = false;
#endif

// "librte_net_tap.so", or with a version ("librte_net_tap.so.23.0"): DPDK's runtime packages lack
// the names without one. The dynamic linker loads a file once, whatever its names.
bool IsSharedObject(std::string_view name) {
  constexpr std::string_view kSuffix = ".so";
  const size_t suffix = name.find(kSuffix);
  if (suffix == name.npos) return false;
  const std::string_view version = name.substr(suffix + kSuffix.size());
  return version.empty() || version.front() == '.';
}

// As librte_eal does for -d. Plugins register their drivers when they are loaded.
void LoadPlugins(std::string_view kind) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(RTE_EAL_PMD_PATH, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kind) && IsSharedObject(name)) dlopen(entry.path().c_str(), RTLD_NOW);
  }
}

void LoadAllPlugins() {
  if (kDriversAreLinkedIn) return;
  // Libraries that drivers depend on come first.
  for (const char* kind : {"librte_bus_", "librte_common_", "librte_mempool_", "librte_net_"}) {
    LoadPlugins(kind);
  }
}

// Once.
void LoadPlugins() {
  static const bool loaded = (LoadAllPlugins(), true);
  (void)loaded;
}

}  // namespace

bool HasPortDriver(const std::string& devargs) {
  if (devargs.starts_with("packet:")) return true;
  LoadPlugins();
  // DPDK logs unknown names to stderr; the caller reports them.
  const uint32_t level = rte_log_get_global_level();
  rte_log_set_global_level(RTE_LOG_EMERG);
  rte_devargs parsed{};
  const bool known = rte_devargs_parse(&parsed, devargs.c_str()) == 0;
  rte_log_set_global_level(level);
  if (known) rte_devargs_reset(&parsed);
  return known;
}

bool HasMempoolDriver() {
  LoadPlugins();
  for (uint32_t i = 0; i < rte_mempool_ops_table.num_ops; ++i) {
    if (std::string_view(rte_mempool_ops_table.ops[i].name) == "ring_mp_mc") return true;
  }
  return false;
}

}  // namespace roci::dataplane
