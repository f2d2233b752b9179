#include "control/daemon.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "control/errno_status.h"
#include "control/log.h"
#include "control/runtime_files.h"
#include "control/show.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::control {
namespace {

constexpr uint64_t kMiB = 1 << 20;

dataplane::HugePages HugePagesOf(HugepageUse use) {
  switch (use) {
    case HugepageUse::kOn:
      return dataplane::HugePages::kOn;
    case HugepageUse::kOff:
      return dataplane::HugePages::kOff;
    case HugepageUse::kAuto:
      break;
  }
  return dataplane::HugePages::kAuto;
}

// "0000:03:00.0" or "03:00.0", perhaps with ",key=value" behind.
bool IsPciAddress(const std::string& devargs) {
  const std::string name = devargs.substr(0, devargs.find(','));
  return name.find('.') != std::string::npos && name.find(':') != std::string::npos &&
         name.find_first_not_of("0123456789abcdefABCDEF:.") == std::string::npos;
}

}  // namespace

Daemon::Daemon(const Config& config)
    : config_(config), ring_memory_(config.limits.ring_memory_mib * kMiB) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config,
                                                      const std::string& runtime_dir) {
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
  for (absl::Status (Daemon::*step)() : {&Daemon::WatchSignals, &Daemon::StartDataplane,
                                         &Daemon::MakeDevices, &Daemon::OpenSockets}) {
    const absl::Status status = (daemon.get()->*step)();
    if (!status.ok()) return status;
  }
  return daemon;
}

Daemon::~Daemon() {
  publisher_.reset();
  manage_.reset();
  const bool served = sessions_ != nullptr;
  sessions_.reset();
  devices_.clear();
  wires_.clear();
  dataplane_.reset();
  std::error_code ignored;
  if (!runtime_dir_.empty()) std::filesystem::remove_all(runtime_dir_ + "/dpdk", ignored);
  if (!served) return;
  unlink(abi::SocketPath(runtime_dir_).c_str());
  unlink(absl::StrCat(runtime_dir_, "/", ManageServer::kSocketName).c_str());
}

absl::Status Daemon::WatchSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  signals_.Reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return StatusFromErrno(errno, "signalfd");
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_->Add(signals_.get(), EPOLLIN, [this](uint32_t) {
        Log(LogArea::kDaemon, LogLevel::kInfo, "a signal asks to end");
        loop_->Stop();
      });
  return watch.status();
}

absl::Status Daemon::StartDataplane() {
  // Where the EAL puts its own files, else in a directory that all users of DPDK share.
  setenv("RUNTIME_DIRECTORY", runtime_dir_.c_str(), 1);
  dataplane::DataplaneOptions options;
  options.eal.lcores = config_.daemon.lcores;
  options.eal.cpus.assign(config_.daemon.pin.begin(), config_.daemon.pin.end());
  options.eal.memory_mib = config_.daemon.memory_mib;
  options.eal.hugepages = HugePagesOf(config_.daemon.hugepages);
  options.eal.extra_arguments = config_.daemon.eal_args;
  for (const DeviceConfig& device : config_.devices) {
    if (IsPciAddress(device.port)) {
      options.eal.pci_devices.push_back(device.port.substr(0, device.port.find(',')));
    }
  }
  options.lcore.idle_sleep_us = config_.daemon.idle_sleep_us;
  options.lcore.spin = config_.daemon.spin;
  absl::StatusOr<std::unique_ptr<dataplane::Dataplane>> dataplane =
      dataplane::Dataplane::Start(options);
  InitLog(config_.daemon.log_level);
  if (!dataplane.ok()) return dataplane.status();
  dataplane_ = *std::move(dataplane);
  return absl::OkStatus();
}

dataplane::Wire* Daemon::FindWire(const std::string& name) {
  for (size_t i = 0; i < config_.wires.size(); ++i) {
    if (config_.wires[i].name == name) return wires_[i].get();
  }
  return nullptr;
}

absl::Status Daemon::MakeDevices() {
  for (size_t i = 0; i < config_.wires.size(); ++i) {
    wires_.push_back(std::make_unique<dataplane::Wire>(*dataplane_));
  }
  for (const DeviceConfig& device : config_.devices) {
    absl::StatusOr<std::unique_ptr<Device>> made =
        Device::Create(*dataplane_, FindWire(device.wire), device, config_.limits.device, *loop_);
    if (!made.ok()) return made.status();
    devices_.push_back(*std::move(made));
  }
  return absl::OkStatus();
}

absl::Status Daemon::OpenSockets() {
  services_.reset(
      new Services{*loop_, *dataplane_, config_, devices_, ring_memory_, app_mappings_});
  absl::StatusOr<std::unique_ptr<SessionServer>> sessions =
      SessionServer::Create(*services_, runtime_dir_, geteuid() == 0);
  if (!sessions.ok()) return sessions.status();
  sessions_ = *std::move(sessions);
  absl::StatusOr<std::unique_ptr<ManageServer>> manage = ManageServer::Create(*loop_, runtime_dir_);
  if (!manage.ok()) return manage.status();
  manage_ = *std::move(manage);
  manage_->AddCommand("show",
                      [this](const nlohmann::json& request) -> absl::StatusOr<nlohmann::json> {
                        const auto what = request.find("what");
                        if (what == request.end() || !what->is_string()) {
                          return absl::InvalidArgumentError("show what?");
                        }
                        return Show(*services_, *sessions_, what->get<std::string>());
                      });
  absl::StatusOr<std::unique_ptr<SysfsPublisher>> publisher =
      SysfsPublisher::Create(*services_, *sessions_, runtime_dir_);
  if (!publisher.ok()) return publisher.status();
  publisher_ = *std::move(publisher);
  loop_->AddDeadline([this] { return publisher_->NextTimeout(); },
                     [this](roce::TimeNs now) { publisher_->HandleTimeout(now); });
  return absl::OkStatus();
}

void Daemon::Run() {
  NotifyServiceManager("READY=1");
  loop_->Run();
  NotifyServiceManager("STOPPING=1");
}

}  // namespace roci::control
