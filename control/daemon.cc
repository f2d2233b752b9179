#include "control/daemon.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "control/config/adapter_roce.h"
#include "control/config/port_arguments.h"
#include "control/device/subordinate_ids.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/runtime_files.h"
#include "control/manage/address_commands.h"
#include "control/manage/capture_server.h"
#include "control/manage/event_requests.h"
#include "control/manage/fault_requests.h"
#include "control/manage/link_requests.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/metrics_snapshot.h"
#include "control/manage/plug_requests.h"
#include "control/manage/route_commands.h"
#include "control/manage/self_check.h"
#include "control/manage/show.h"
#include "control/manage/trace_server.h"
#include "control/net/mac_claim.h"
#include "control/net/roce_udp_socket.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/port/port_devargs.h"
#include "roce/icrc.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::control {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Whether the port's frame buffers are shared with a device or another process (not only with the
// kernel).
bool SharesFrames(const std::string& devargs) {
  return dataplane::IsPciAddress(devargs) || devargs.starts_with("net_virtio_user");
}

// RLIMIT_NOFILE minus a generous reserve for the daemon itself: EAL, ports, management, descriptors
// received with messages.
uint64_t DescriptorsForSessions(const Config& config) {
  constexpr uint64_t kOfTheDaemon = 128, kOfEachLcoreOrDevice = 8;
  const uint64_t own =
      kOfTheDaemon + kOfEachLcoreOrDevice * (config.daemon.lcores + config.devices.size());
  const uint64_t limit = FileLimit();
  return limit > own ? limit - own : 0;
}

// vm.max_map_count minus a reserve for the daemon itself (EAL, heap, threads) and for mappings of
// program memory. Each page fault in a truncated file splits a mapping into three
// (memory/sigbus_guard.h).
uint64_t MappingsForRings() {
  constexpr uint64_t kOwn = 8192 + kMaxAppMappings;
  constexpr uint64_t kLeast = 1024;
  const uint64_t limit = MappingLimit();
  return std::max(limit, kOwn + kLeast) - kOwn;
}

}  // namespace

Daemon::Daemon(const Config& config)
    : config_(config),
      quotas_{.sessions = Quota(config.limits.max_sessions),
              .descriptors = Quota(DescriptorsForSessions(config)),
              .ring_memory = Quota(config.limits.ring_memory_mib * kMiB),
              .ring_mappings = Quota(MappingsForRings()),
              .app_mappings = Quota(kMaxAppMappings),
              .charged_bytes = CgroupMemoryLimit()},
      users_(quotas_, config.limits.user_percent) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config,
                                                      const std::string& runtime_dir,
                                                      FdBroker broker) {
  RaiseFileLimit();
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  absl::StatusOr<UniqueFd> lock = LockRuntimeDir(runtime_dir);
  if (!lock.ok()) return lock.status();
  daemon->lock_ = *std::move(lock);
  absl::StatusOr<std::string> canonical = CanonicalDir(runtime_dir);
  if (!canonical.ok()) return canonical.status();
  daemon->runtime_dir_ = *canonical;
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) return loop.status();
  daemon->loop_ = *std::move(loop);
  absl::StatusOr<std::unique_ptr<ForeignFds>> foreign_fds =
      ForeignFds::Create(*daemon->loop_, daemon->users_, std::move(broker));
  if (!foreign_fds.ok()) return foreign_fds.status();
  daemon->foreign_fds_ = *std::move(foreign_fds);
  absl::StatusOr<std::unique_ptr<BlockingCalls>> blocking_calls =
      BlockingCalls::Create(*daemon->loop_);
  if (!blocking_calls.ok()) return blocking_calls.status();
  daemon->blocking_calls_ = *std::move(blocking_calls);
  daemon->accounts_ =
      std::make_unique<AccountLookup>(daemon->users_, *daemon->blocking_calls_, &AccountOf);
  for (absl::Status (Daemon::*step)() :
       {&Daemon::WatchSignals, &Daemon::StartDataplane, &Daemon::MakeDevices, &Daemon::OpenSockets,
        &Daemon::TakePriority, &Daemon::ServeMetrics}) {
    const absl::Status status = (daemon.get()->*step)();
    if (!status.ok()) return status;
  }
  return daemon;
}

Daemon::~Daemon() {
  metrics_.reset();
  link_watch_.reset();
  netlink_.reset();
  publisher_.reset();
  manage_.reset();
  link_states_.reset();
  captures_.reset();
  traces_.reset();
  const bool served = sessions_ != nullptr;
  connections_.reset();
  sessions_.reset();
  devices_.clear();
  dataplane_.reset();
  std::error_code ignored;
  if (!runtime_dir_.empty()) std::filesystem::remove_all(runtime_dir_ + "/dpdk", ignored);
  if (!served) return;
  unlink(abi::SocketPath(runtime_dir_).c_str());
  unlink(absl::StrCat(runtime_dir_, "/", ROCI_ABI_CM_SOCKET_NAME).c_str());
  unlink(absl::StrCat(runtime_dir_, "/", kManageSocketName).c_str());
  unlink(absl::StrCat(runtime_dir_, "/", ROCI_ABI_NETLINK_SOCKET_NAME).c_str());
}

absl::Status Daemon::WatchSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  signals_.Reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return StatusFromErrno(errno, "signalfd");
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_->Add(signals_.get(), EPOLLIN, [this](uint32_t) {
        Log(LogArea::kDaemon, LogLevel::kInfo, "SIGTERM, SIGINT or SIGHUP received, shutting down");
        loop_->Stop();
      });
  return watch.status();
}

absl::Status Daemon::StartDataplane() {
  // The EAL puts its files there; its default directory is shared by all DPDK programs of the user.
  setenv("RUNTIME_DIRECTORY", runtime_dir_.c_str(), 1);
  dataplane::DataplaneOptions options;
  options.eal.lcores = config_.daemon.lcores;
  options.eal.cpus.assign(config_.daemon.pin.begin(), config_.daemon.pin.end());
  options.eal.memory_mib = config_.daemon.memory_mib;
  options.eal.hugepages = config_.daemon.hugepages;
  options.eal.telemetry = config_.daemon.telemetry;
  options.eal.extra_arguments = config_.daemon.eal_args;
  for (const DeviceConfig& device : config_.devices) {
    if (dataplane::IsPciAddress(device.port)) options.eal.pci_devices.push_back(device.port);
    if (SharesFrames(device.port)) options.sharing_ports.push_back(device.port_settings);
  }
  options.lcore.idle_sleep_us = config_.daemon.idle_sleep_us;
  options.lcore.spin = config_.daemon.spin;
  // Virtual time waits for programs, so its lcore must not keep them from a processor.
  options.lcore.virtual_time = config_.daemon.virtual_time;
  options.lcore.realtime =
      config_.daemon.virtual_time.is_used ? dataplane::RealtimeUse::kOff : config_.daemon.realtime;
  options.lcore.fairness = config_.daemon.fairness;
  absl::StatusOr<std::unique_ptr<dataplane::Dataplane>> dataplane =
      dataplane::Dataplane::Start(options);
  InitLog(config_.daemon.log_level);
  if (!dataplane.ok()) return dataplane.status();
  dataplane_ = *std::move(dataplane);
  Log(LogArea::kDaemon, LogLevel::kInfo, "ICRC is computed by kernel %s",
      roce::ActiveCrcKernel().name);
  return absl::OkStatus();
}

dataplane::Wire* Daemon::FindWire(const std::string& name) const {
  for (size_t i = 0; i < config_.wires.size(); ++i) {
    if (config_.wires[i].name == name) return wires_[i];
  }
  return nullptr;
}

absl::Status Daemon::MakeDevices() {
  for (size_t i = 0; i < config_.wires.size(); ++i) {
    wires_.push_back(&dataplane_->AddWire());
  }
  for (const DeviceConfig& device : config_.devices) {
    absl::StatusOr<std::unique_ptr<Device>> made =
        Device::Create(*dataplane_, FindWire(device.wire), device, config_.limits.device, *loop_);
    if (!made.ok()) return made.status();
    if (const std::string roce = KernelRoceOf(device.port); !roce.empty()) {
      Log(LogArea::kDaemon, LogLevel::kWarning,
          "%s: the kernel's device %s on the same adapter has RoCE enabled, so the adapter passes "
          "no RoCE frame to rocid (docs/adapters.md)",
          device.name.c_str(), roce.c_str());
    }
    for (const std::string& fault : device.faults) {
      const absl::Status added = AddFault(**made, nlohmann::json::parse(fault));
      if (added.ok()) continue;
      return absl::Status(added.code(),
                          absl::StrCat("a fault of ", device.name, ": ", added.message()));
    }
    devices_.push_back(*std::move(made));
  }
  HoldRoceUdpPort();
  ClaimMacs();
  return absl::OkStatus();
}

// Not needed for wires and for PCI devices that DPDK drives: the kernel does not see their frames.
void Daemon::HoldRoceUdpPort() {
  const bool any =
      std::any_of(config_.devices.begin(), config_.devices.end(), [](const DeviceConfig& device) {
        return !device.port.empty() && !dataplane::IsPciAddress(device.port);
      });
  if (!any) return;
  absl::StatusOr<UniqueFd> socket = OpenRoceUdpSocket();
  if (socket.ok()) {
    roce_udp_socket_ = *std::move(socket);
  } else {
    Log(LogArea::kDaemon, LogLevel::kNotice,
        "cannot bind UDP port 4791, the kernel may answer RoCE packets with ICMP errors: %s",
        std::string(socket.status().message()).c_str());
  }
}

void Daemon::ClaimMacs() {
  for (const auto& device : devices_) {
    const std::string interface = NetworkDeviceOf(device->config().port);
    if (interface.empty()) continue;
    absl::StatusOr<UniqueFd> claim = ClaimMac(interface, device->addresses().mac());
    if (claim.ok()) {
      mac_claims_.push_back(*std::move(claim));
    } else {
      Log(LogArea::kDaemon, LogLevel::kWarning, "%s: %s (configure another mac for one of them)",
          device->name().c_str(), std::string(claim.status().message()).c_str());
    }
  }
}

bool Daemon::ServesAllUsers() const { return config_.daemon.all_users || geteuid() == 0; }

// Where only the daemon's own user may connect, there is nobody to be protected from.
void Daemon::CheckRings() {
  if (!ServesAllUsers()) return;
  const absl::StatusOr<dataplane::SharedMemory> ring = dataplane::SharedMemory::Create("roci", 1);
  if (!ring.ok() || dataplane::KeepPages(ring->fd())) return;
  Log(LogArea::kDaemon, LogLevel::kNotice,
      "programs can punch holes into their queues, which delays other programs; grant rocid "
      "CAP_LINUX_IMMUTABLE (Linux 6.0 or later; see `roci doctor`)");
}

absl::Status Daemon::OpenSockets() {
  CheckRings();
  services_.reset(new Services{*loop_, *dataplane_, config_, devices_, users_, *foreign_fds_,
                               *blocking_calls_, *accounts_, call_times_});
  absl::StatusOr<std::unique_ptr<SessionServer>> sessions =
      SessionServer::Create(*services_, runtime_dir_, ServesAllUsers());
  if (!sessions.ok()) return sessions.status();
  sessions_ = *std::move(sessions);
  absl::StatusOr<std::unique_ptr<cm::Server>> connections =
      cm::Server::Create(*services_, runtime_dir_, ServesAllUsers());
  if (!connections.ok()) return connections.status();
  connections_ = *std::move(connections);
  absl::StatusOr<std::unique_ptr<ManageServer>> manage = ManageServer::Create(
      *loop_, runtime_dir_, [this](UniqueFd socket) { foreign_fds_->Close(std::move(socket)); });
  if (!manage.ok()) return manage.status();
  manage_ = *std::move(manage);
  loop_->AddDeadline(NextLogSuppressed, LogSuppressed);
  loop_->AddDeadline([this] { return sessions_->NextTimeout(); },
                     [this](roce::TimeNs now) { sessions_->HandleTimeout(now); });
  loop_->AddDeadline([this] { return connections_->NextTimeout(); },
                     [this](roce::TimeNs now) { connections_->HandleTimeout(now); });
  manage_->AddCommand(kShowCommand, [this](const nlohmann::json& request) {
    return Show(*services_, *sessions_, *connections_, request);
  });
  manage_->AddInParts(kShowCommand, [this](const nlohmann::json& request) {
    return ShowInParts(*sessions_, request);
  });
  loop_->AddDeadline([this] { return manage_->NextTimeout(); },
                     [this](roce::TimeNs now) { manage_->HandleTimeout(now); });
  manage_->AddCommand(kProbeCommand, [this](const nlohmann::json& request) {
    return ProbeDaemon(*services_, request);
  });
  AddLinkCommands();
  absl::StatusOr<std::unique_ptr<SysfsPublisher>> publisher =
      SysfsPublisher::Create(*services_, *sessions_, runtime_dir_);
  if (!publisher.ok()) return publisher.status();
  publisher_ = *std::move(publisher);
  // The last socket: `roci run --wait` concludes from it that the tree is complete.
  absl::StatusOr<std::unique_ptr<netlink::NetlinkServer>> netlink = netlink::NetlinkServer::Create(
      {*services_, *sessions_, *connections_, *publisher_}, runtime_dir_, ServesAllUsers());
  if (!netlink.ok()) return netlink.status();
  netlink_ = *std::move(netlink);
  WatchLinks();
  AddAddressCommand(*manage_, *services_, *publisher_);
  AddRouteCommand(*manage_, *services_);
  loop_->AddDeadline([this] { return publisher_->NextTimeout(); },
                     [this](roce::TimeNs now) { publisher_->HandleTimeout(now); });
  return absl::OkStatus();
}

// Without the watch, changes are found when the publisher polls.
void Daemon::WatchLinks() {
  absl::StatusOr<std::unique_ptr<LinkWatch>> watch =
      LinkWatch::Create(*loop_, [this] { publisher_->ShowLinks(); });
  if (watch.ok()) {
    link_watch_ = *std::move(watch);
  } else {
    Log(LogArea::kDaemon, LogLevel::kNotice, "cannot watch network devices, polling instead: %s",
        std::string(watch.status().message()).c_str());
  }
}

void Daemon::AddStreams(const char* command, StreamServer& server) {
  loop_->AddDeadline([&server] { return server.NextTimeout(); },
                     [&server](roce::TimeNs now) { server.HandleTimeout(now); });
  manage_->AddStream(
      command, [&server](const nlohmann::json& request) -> absl::StatusOr<ManageServer::Stream> {
        auto stream = server.Prepare(request);
        if (!stream.ok()) return stream.status();
        return [&server, prepared = *std::move(stream)](UniqueFd socket) {
          server.Start(prepared, std::move(socket));
        };
      });
}

void Daemon::AddLinkCommands() {
  captures_ = std::make_unique<CaptureServer>(*services_);
  AddStreams(kCaptureCommand, *captures_);
  traces_ = std::make_unique<TraceServer>(*services_);
  AddStreams(kTraceCommand, *traces_);
  manage_->AddCommand(kImpairCommand, [this](const nlohmann::json& request) {
    return Impair(*services_, request);
  });
  link_states_ = std::make_unique<LinkStates>(*services_, [this] { publisher_->ShowLinks(); });
  loop_->AddDeadline([this] { return link_states_->NextTimeout(); },
                     [this](roce::TimeNs now) { link_states_->HandleTimeout(now); });
  manage_->AddCommand(kLinkCommand, [this](const nlohmann::json& request) {
    return link_states_->Run(request, MonotonicNow());
  });
  manage_->AddCommand(kDeviceCommand, [this](const nlohmann::json& request) {
    return RunPlugCommand({*services_, *sessions_, *connections_, *publisher_}, request);
  });
  manage_->AddCommand(kEventCommand, [this](const nlohmann::json& request) {
    return RunEventCommand(*services_, *sessions_, *link_states_, request, MonotonicNow());
  });
  manage_->AddCommand(kFaultCommand, [this](const nlohmann::json& request) {
    return RunFaultCommand(*services_, request);
  });
}

// Whether real-time priority is permitted is the same for the control thread and for the lcores.
absl::Status Daemon::TakePriority() {
  if (config_.daemon.realtime != dataplane::RealtimeUse::kOff) {
    dataplane_->Guard(loop_->priority());
  }
  const int priority = loop_->TakePriority(config_.daemon.realtime);
  if (priority == 0 && config_.daemon.realtime == dataplane::RealtimeUse::kOn) {
    return absl::PermissionDeniedError(
        "realtime = \"on\": real-time priority is not permitted; grant rocid CAP_SYS_NICE or "
        "RLIMIT_RTPRIO of 3 (ulimit -r; see `roci doctor`)");
  }
  Log(LogArea::kDaemon, LogLevel::kInfo, "threads run with %s priority",
      priority != 0 ? "real-time" : "ordinary");
  lcore_watch_ = std::make_unique<LcoreWatch>(*dataplane_, config_.daemon.realtime);
  loop_->AddDeadline([this] { return lcore_watch_->NextTimeout(); },
                     [this](roce::TimeNs now) { lcore_watch_->HandleTimeout(now); });
  return absl::OkStatus();
}

absl::Status Daemon::ServeMetrics() {
  if (config_.daemon.metrics.port == 0) return absl::OkStatus();
  const double start_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  absl::StatusOr<std::unique_ptr<MetricsServer>> metrics = MetricsServer::Create(
      *loop_, config_.daemon.metrics,
      [this, start_s] { return SnapshotMetrics(*services_, *sessions_, *connections_, start_s); });
  if (!metrics.ok()) {
    return absl::Status(metrics.status().code(),
                        absl::StrCat("cannot serve metrics: ", metrics.status().message()));
  }
  metrics_ = *std::move(metrics);
  Log(LogArea::kDaemon, LogLevel::kInfo, "metrics are served at http://%s/metrics",
      config_.daemon.metrics.Text().c_str());
  return absl::OkStatus();
}

void Daemon::Run() {
  NotifyServiceManager("READY=1");
  loop_->Run();
  LogSuppressed(roce::kNever);
  NotifyServiceManager("STOPPING=1");
}

}  // namespace roci::control
