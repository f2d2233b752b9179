#include "control/config/daemon_reader.h"

#include "absl/strings/str_cat.h"
#include "control/config/named_value.h"
#include "control/config/toml_reader.h"
#include "memory/page.h"

namespace roci::control {
namespace {

constexpr Named<LogLevel> kLogLevels[] = {{"error", LogLevel::kError},
                                          {"warning", LogLevel::kWarning},
                                          {"notice", LogLevel::kNotice},
                                          {"info", LogLevel::kInfo},
                                          {"debug", LogLevel::kDebug}};
constexpr Named<dataplane::HugePages> kHugePages[] = {{"auto", dataplane::HugePages::kAuto},
                                                      {"on", dataplane::HugePages::kOn},
                                                      {"off", dataplane::HugePages::kOff}};
constexpr Named<dataplane::RealtimeUse> kRealtimeUses[] = {{"auto", dataplane::RealtimeUse::kAuto},
                                                           {"on", dataplane::RealtimeUse::kOn},
                                                           {"off", dataplane::RealtimeUse::kOff}};
constexpr Named<dataplane::Fairness> kFairnesses[] = {
    {"queue_pair", dataplane::Fairness::kQueuePair}, {"user", dataplane::Fairness::kUser}};
constexpr Named<bool> kClocks[] = {{"real", false}, {"virtual", true}};
constexpr Named<roci_abi_memory_policy> kMemoryPolicies[] = {
    {"auto", ROCI_ABI_MEMORY_AUTO},
    {"process_vm", ROCI_ABI_MEMORY_PROCESS_VM},
    {"map", ROCI_ABI_MEMORY_MAP}};

// Checks what is known without DPDK, since rte_eal_init() ends the process on some wrong options.
void CheckEalArguments(TomlReader& reader, const std::vector<std::string>& args) {
  if (!args.empty() && args.front().rfind('-', 0) != 0) {
    reader.Fault("eal_args", absl::StrCat("\"", args.front(), "\" is not a DPDK option"));
  }
  for (const std::string& arg : args) {
    const std::string name = arg.substr(0, arg.find('='));
    for (const char* taken : {"-", "--", "-h", "--help", "-v", "--version", "-l", "-c", "--lcores",
                              "--main-lcore", "--file-prefix"}) {
      if (name == taken)
        reader.Fault("eal_args", absl::StrCat("\"", name, "\" is not allowed here"));
    }
  }
}

// After the keys that contradict it.
void ReadClock(TomlReader& reader, DaemonConfig& out) {
  reader.Parsed("clock", "one of \"real\", \"virtual\"", [&](const std::string& text) {
    return Lookup(kClocks, text, out.virtual_time.is_used);
  });
  const bool has_quiet = reader.Number("virtual_quiet_ms", 1, 600'000, out.virtual_time.quiet_ms);
  const bool has_seed = reader.Number("seed", 0, UINT32_MAX, out.seed);
  if (!out.virtual_time.is_used) {
    if (has_quiet) reader.Fault("virtual_quiet_ms", "needs clock = \"virtual\"");
    if (has_seed) reader.Fault("seed", "needs clock = \"virtual\"");
    return;
  }
  if (out.lcores != 1) reader.Fault("clock", "\"virtual\" needs lcores = 1");
  if (out.spin) reader.Fault("clock", "\"virtual\" cannot be used with spin = true");
  if (out.realtime == dataplane::RealtimeUse::kOn) {
    reader.Fault("clock", "\"virtual\" cannot be used with realtime = \"on\"");
  }
}

}  // namespace

void ReadDaemon(TomlReader& reader, DaemonConfig& out) {
  reader.Number("lcores", 1, dataplane::kMaxLcores, out.lcores);
  reader.Numbers("pin", 0, 1023, out.pin);
  if (!out.pin.empty() && out.pin.size() != out.lcores) {
    reader.Fault("pin", absl::StrCat("needs one processor per lcore, ", out.lcores));
  }
  reader.Parsed("hugepages", "one of \"auto\", \"on\", \"off\"",
                [&](const std::string& text) { return Lookup(kHugePages, text, out.hugepages); });
  reader.Number("memory_mib", 0, 1 << 20, out.memory_mib);
  reader.Bool("spin", out.spin);
  reader.Number("idle_sleep_us", 0, 1'000'000, out.idle_sleep_us);
  reader.Parsed("realtime", "one of \"auto\", \"on\", \"off\"",
                [&](const std::string& text) { return Lookup(kRealtimeUses, text, out.realtime); });
  reader.Parsed("fairness", "one of \"queue_pair\", \"user\"",
                [&](const std::string& text) { return Lookup(kFairnesses, text, out.fairness); });
  ReadClock(reader, out);
  reader.Parsed("log_level", "one of \"error\", \"warning\", \"notice\", \"info\", \"debug\"",
                [&](const std::string& text) { return Lookup(kLogLevels, text, out.log_level); });
  std::string metrics;
  if (reader.String("metrics", metrics)) {
    absl::StatusOr<MetricsAddress> address = ParseMetricsAddress(metrics);
    if (address.ok()) {
      out.metrics = *std::move(address);
    } else {
      reader.Fault("metrics", address.status().message());
    }
  }
  reader.Bool("telemetry", out.telemetry);
  reader.Strings("eal_args", out.eal_args);
  CheckEalArguments(reader, out.eal_args);
}

void ReadMemory(TomlReader& reader, MemoryConfig& out) {
  reader.Parsed("policy", "one of \"auto\", \"process_vm\", \"map\"",
                [&](const std::string& text) { return Lookup(kMemoryPolicies, text, out.policy); });
  reader.Number("auto_inline", 0, dataplane::kMaxInlineBytes, out.auto_inline);
}

void ReadLimits(TomlReader& reader, LimitsConfig& out) {
  const DeviceLimits most;  // the defaults are also the maxima
  reader.Number("max_qp", 1, most.max_qp, out.device.max_qp);
  reader.Number("max_cq", 1, most.max_cq, out.device.max_cq);
  reader.Number("max_mr", 1, most.max_mr, out.device.max_mr);
  reader.Number("max_mw", 1, most.max_mw, out.device.max_mw);
  reader.Number("max_dm_bytes", memory::kPageBytes, most.max_dm_bytes, out.device.max_dm_bytes);
  reader.Number("max_pd", 1, most.max_pd, out.device.max_pd);
  reader.Number("max_ah", 1, most.max_ah, out.device.max_ah);
  reader.Number("max_srq", 1, most.max_srq, out.device.max_srq);
  reader.Number("max_srq_wr", 1, most.max_srq_wr, out.device.max_srq_wr);
  reader.Number("max_qp_wr", 1, most.max_qp_wr, out.device.max_qp_wr);
  reader.Number("max_cqe", 1, most.max_cqe, out.device.max_cqe);
  reader.Number("max_rd_atomic", 1, most.max_rd_atomic, out.device.max_rd_atomic);
  reader.Number("max_sessions", 1, 65536, out.max_sessions);
  reader.Number("ring_memory_mib", 1, 1 << 24, out.ring_memory_mib);
  reader.Number("user_percent", 1, 100, out.user_percent);
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  LogLevel level;
  if (!Lookup(kLogLevels, name, level)) return std::nullopt;
  return level;
}

}  // namespace roci::control
