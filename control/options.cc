#include "control/options.h"

#include <CLI/CLI.hpp>

namespace roci::control {
namespace {

constexpr char kDescription[] =
    R"(rocid - the daemon of Rocinante, an RDMA NIC made of software

Offers RDMA devices (roci0, roci1, ...) to the programs of this machine and speaks RoCEv2 for them on
Ethernet ports that it drives with DPDK, or on a wire inside the daemon. Start programs with
`roci run PROGRAM`; they need only libibverbs. No RDMA hardware, kernel support for RDMA, privileges
or huge pages are needed.

Without --config there are two devices on one wire: roci0 (10.99.0.1, fd72:6f63:6900::1) and roci1
(10.99.0.2, fd72:6f63:6900::2).)";

constexpr char kFooter[] = R"(
CONFIGURATION FILE
  TOML. Every key is optional; unknown keys are errors. docs/rocid.toml is a commented example.
    [daemon]    lcores, pin, hugepages, memory_mib, spin, idle_sleep_us, realtime, fairness,
                clock, virtual_quiet_ms, seed, log_level, metrics, telemetry, eal_args
    [memory]    policy, auto_inline
    [limits]    max_qp, max_cq, max_mr, max_mw, max_dm_bytes, max_pd, max_ah, max_srq, max_srq_wr, max_qp_wr,
                max_cqe, max_rd_atomic, max_sessions, ring_memory_mib, user_percent
    [[wire]]    name
    [[device]]  name, wire or port, mac, addresses, gateway4, gateway6, routes, mtu, rate_mbps, congestion,
                personality
    [[device.vlan]]  id, addresses, gateway4, gateway6, routes, egress_qos_map
    [congestion]  DCQCN parameters: see docs/rocid.toml

OUTPUT
  Prints `rocid: ready` on standard output when programs can find the devices. The log goes to
  standard error. Under systemd use Type=notify.

SIGNALS
  SIGTERM, SIGINT, SIGHUP   shut down: close sessions, remove sockets and the devices' entries in the sysfs tree.
                            rocid.lock and the tree's empty directories stay for the next daemon.

FILES
  The runtime directory is that of --runtime-dir, else $ROCI_RUNTIME_DIR, else /run/roci for root,
  $XDG_RUNTIME_DIR/roci or /tmp/roci-UID for other users. In it:
    rocid.sock    programs connect here
    manage.sock   `roci show` and other management, for the daemon's user and root only
    sysfs/        what programs see as /sys/class/infiniband and other directories of sysfs
    rocid.lock    locked by the running daemon: one daemon per runtime directory

EXIT STATUS
  0   ended by a signal, or --check-config found no error
  1   could not start, or the configuration has an error
  2   wrong command line

SEE ALSO
  roci --help, roci run --help, roci show --help, roci doctor --help)";

}  // namespace

void DeclareOptions(CLI::App& app, Options& options) {
  app.name("rocid");
  app.description(kDescription);
  app.footer(kFooter);
  app.set_version_flag("--version,-V", "rocid " ROCI_VERSION);
  app.add_option("-c,--config", options.config_file, "Read the configuration from FILE")
      ->type_name("FILE");
  app.add_option("-r,--runtime-dir", options.runtime_dir,
                 "Directory for sockets and the sysfs tree (see FILES)")
      ->type_name("DIR");
  app.add_option_function<std::string>(
         "-l,--log-level",
         [&options](const std::string& level) { options.log_level = ParseLogLevel(level); },
         "Least severe messages to log; overrides the configuration")
      ->type_name("LEVEL")
      ->check(
          [](const std::string& text) {
            return ParseLogLevel(text) ? std::string()
                                       : "must be error, warning, notice, info or debug";
          },
          "{error,warning,notice,info,debug}");
  app.add_flag("--all-users", options.all_users,
               "Serve programs of all users, as a daemon of root does, also as another user. Needs "
               "CAP_SYS_PTRACE to recognise root's programs");
  app.add_option_function<std::string>(
         "-m,--metrics",
         [&options](const std::string& text) { options.metrics = *ParseMetricsAddress(text); },
         "Serve metrics at http://ADDRESS/metrics: PORT (of 127.0.0.1), a loopback ADDRESS:PORT, "
         "or public:ADDRESS:PORT; overrides the configuration")
      ->type_name("ADDRESS")
      ->check([](const std::string& text) {
        const absl::StatusOr<MetricsAddress> address = ParseMetricsAddress(text);
        return address.ok() ? std::string() : std::string(address.status().message());
      });
  app.add_flag("--check-config", options.check_config,
               "Check the configuration, print its first error or what it would start, and exit");
  app.add_flag("--probe", options.probe,
               "Try what this machine gives a daemon of this user, print it as JSON, and exit (for "
               "roci doctor)");
}

std::optional<Options> ParseOptions(int argc, char** argv, int& exit_status) {
  Options options;
  CLI::App app;
  DeclareOptions(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kUsage = 2;
    exit_status = app.exit(error) == 0 ? 0 : kUsage;
    return std::nullopt;
  }
  return options;
}

}  // namespace roci::control
