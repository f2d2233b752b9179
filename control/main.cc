// rocid: the daemon.
#include <malloc.h>
#include <signal.h>

#include <cstdio>
#include <string>

#include "control/check_config.h"
#include "control/config/config.h"
#include "control/daemon.h"
#include "control/loop/fd_broker.h"
#include "control/loop/log.h"
#include "control/manage/self_check.h"
#include "control/options.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace {

using roci::control::Config;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "rocid: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Called before any thread starts, so that every thread inherits the mask. SIGTERM, SIGINT and
// SIGHUP are read from a signalfd. DPDK's net_tap lets the kernel send a real-time signal for each
// received frame, which lcores unblock, or SIGIO when the signal queue is full.
void BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const int signal_number : {SIGPIPE, SIGIO}) signal(signal_number, SIG_IGN);
}

absl::StatusOr<Config> ReadConfig(const roci::control::Options& options) {
  absl::StatusOr<Config> config = options.config_file.empty()
                                      ? roci::control::DefaultConfig()
                                      : roci::control::LoadConfig(options.config_file);
  if (config.ok() && options.log_level) config->daemon.log_level = *options.log_level;
  if (config.ok()) config->daemon.all_users = options.all_users;
  if (config.ok() && options.metrics) config->daemon.metrics = *options.metrics;
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  // Large blocks of a session go back to the system when the session ends. glibc would raise the
  // threshold by itself, and later sessions would fragment the heap.
  constexpr int kMappedAlone = 128 << 10;
  mallopt(M_MMAP_THRESHOLD, kMappedAlone);
  int exit_status = 0;
  const std::optional<roci::control::Options> options =
      roci::control::ParseOptions(argc, argv, exit_status);
  if (!options) return exit_status;
  if (options->probe) {
    std::printf("%s\n", roci::control::TryMachine().dump(2).c_str());
    return 0;
  }
  const absl::StatusOr<Config> config = ReadConfig(*options);
  if (!config.ok()) return Fail(config.status());
  const absl::Status fits = roci::control::CheckMachine(*config, options->config_file);
  if (!fits.ok()) return Fail(fits);
  const absl::Status faults = roci::control::CheckFaults(*config, options->config_file);
  if (!faults.ok()) return Fail(faults);
  const std::string runtime_dir =
      roci::abi::RuntimeDir(options->runtime_dir.c_str(), roci::abi::RuntimeDirUse::kServe);
  if (options->check_config) {
    std::printf("%s: ok\n%s",
                options->config_file.empty() ? "defaults" : options->config_file.c_str(),
                roci::control::DescribeConfig(*config, runtime_dir).c_str());
    return 0;
  }
  BlockSignals();
  roci::control::InitLog(config->daemon.log_level);
  absl::StatusOr<roci::control::FdBroker> broker = roci::control::StartFdBroker();
  if (!broker.ok()) return Fail(broker.status());
  absl::StatusOr<std::unique_ptr<roci::control::Daemon>> daemon =
      roci::control::Daemon::Start(*config, runtime_dir, *std::move(broker));
  if (!daemon.ok()) return Fail(daemon.status());
  std::puts("rocid: ready");
  std::fflush(stdout);
  (*daemon)->Run();
  daemon->reset();
  return 0;
}
