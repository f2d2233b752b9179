// Session commands that open and query the device.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "control/loop/errno_status.h"
#include "control/loop/event_socket.h"
#include "control/loop/log.h"
#include "control/session/session.h"
#include "memory/split_mix.h"

namespace roci::control {
namespace {

// For programs without permission to handle page faults of the kernel (userfaultfd(2)). A program
// with this descriptor can block accesses of the daemon to its memory, so programs of other users
// do not get it.
UniqueFd OpenUserfaultfdDevice() { return UniqueFd(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC)); }

}  // namespace

absl::Status Session::Hello(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& hello = request.As<roci_abi_hello_request>();
  Device* device = services_.FindDevice(hello.device);
  if (device == nullptr || !device->is_plugged()) return StatusFromErrno(ENODEV, hello.device);
  app_features_ = hello.features;
  return OpenDevice(*device, hello.minor, nullptr, reply);
}

// Page migration changes the behaviour of the memory (docs/memory.md), so it must be configured.
// Never for programs of other users: their memory is accessed through /proc/PID/mem, where an
// access during a migration would fail (process_vm waits).
uint32_t Session::MemoryPolicy() const {
  const uint32_t policy = services_.config.memory.policy;
  if (policy == ROCI_ABI_MEMORY_PROCESS_VM) return policy;
  if (policy == ROCI_ABI_MEMORY_MAP && IsDaemonsOwnUser() && app_->has_process()) return policy;
  return ROCI_ABI_MEMORY_NO_CONVERSION;
}

absl::Status Session::OpenApp() {
  app_ = std::move(findings_.app);
  if (app_ != nullptr) return absl::OkStatus();
  const int error = findings_.app_error;
  const bool passed = (app_features_ & ROCI_ABI_FEATURE_APP_MEMORY) != 0;
  Log(LogArea::kSession, LogLevel::kWarning,
      "cannot access the memory of %s[%d] (uid %u)%s: %s (see `roci doctor`)", program_.c_str(),
      peer_.pid, peer_.uid,
      passed ? " through the descriptor that it passed" : " by its process number",
      std::string(StatusFromErrno(error, "/proc/PID/mem").message()).c_str());
  return StatusFromErrno(error, "access to the program's memory");
}

// Opens the device and fills the answer to HELLO or ATTACH. `shared`: a session whose context this
// one shares, or null.
absl::Status Session::OpenDevice(Device& device, uint16_t minor, Session* shared, Reply& reply) {
  absl::Status status = OpenApp();
  if (status.ok()) status = OpenDataplane(device, reply);
  if (status.ok() && shared != nullptr) status = JoinGroup(*shared);
  if (!status.ok()) return status;
  memory::SplitMix random(device.RandomNumber());
  ForEachOwnTable([&](auto& table) { table.StartBehind(random.Next()); });
  srqs_.UseRange(1, std::min(ROCI_ABI_MAX_SRQ_HANDLES - 1u, shard_->last_srq_handle()));
  qps_.UseRange(0, shard_->queue_pair_handles());
  device_ = &device;
  limits_ = admission_.user->LimitsOf(device.limits());
  quotas_ = &admission_.user->QuotasOf(device.limits(), device.quotas());
  auto& response = reply.As<roci_abi_hello_response>();
  response.magic = ROCI_ABI_MAGIC;
  response.major = ROCI_ABI_MAJOR;
  response.minor = std::min<uint16_t>(minor, ROCI_ABI_MINOR);
  response.features = ROCI_ABI_FEATURE_RESTART | ROCI_ABI_FEATURE_IP_CHECKSUM |
                      ROCI_ABI_FEATURE_APP_MEMORY | ROCI_ABI_FEATURE_MEMORY_PROOF |
                      ROCI_ABI_FEATURE_PATH_WAITS;
  if (services_.config.daemon.virtual_time.is_used) {
    response.features |= ROCI_ABI_FEATURE_POLL_COUNT;
  }
  if (device.config().reorder != ReorderUse::kGoBackN) {
    response.features |= ROCI_ABI_FEATURE_SELECTIVE_REPEAT;
  }
  response.session = number_;
  response.doorbell_size = static_cast<uint32_t>(shard_->doorbell_bytes());
  response.memory_policy = MemoryPolicy();
  response.auto_inline = services_.config.memory.auto_inline;
  response.num_comp_vectors = kCompletionVectors;
  if (device.config().personality.has_lenient_posts) response.flags |= ROCI_ABI_HELLO_LENIENT_POSTS;
  const bool may_convert = response.memory_policy == ROCI_ABI_MEMORY_MAP;
  UniqueFd userfaultfd = may_convert ? OpenUserfaultfdDevice() : UniqueFd();
  if (userfaultfd.valid()) {
    response.flags |= ROCI_ABI_HELLO_HAS_USERFAULTFD;
    reply.Hand(std::move(userfaultfd));
  }
  Log(LogArea::kSession, LogLevel::kInfo, "session %u: %s[%d] (uid %u) opens %s on lcore %u",
      number_, program_.c_str(), peer_.pid, peer_.uid, device.name().c_str(),
      shard_->lcore_index());
  return absl::OkStatus();
}

absl::Status Session::OpenDataplane(Device& device, Reply& reply) {
  UniqueFd sending, receiving;
  const absl::Status status = OpenEventSocket(sending, receiving);
  if (!status.ok()) return status;
  dataplane::EventWriter* const writer = admission_.user->event_writer.get();
  if (writer != nullptr && !writer->Start()) {
    return StatusFromErrno(EAGAIN, "no thread for events can be started");
  }
  dataplane::ShardClientConfig config;
  config.async_socket = MakeEventSocket(std::move(sending));
  config.app = app_;
  config.copy_use = admission_.user->copy_use;
  config.retired_rings = admission_.user->retired_rings;
  config.max_keys = device.limits().max_mr + device.limits().max_mw;
  config.key_seed = device.RandomNumber();
  config.program = static_cast<uint64_t>(peer_.pid);
  config.max_queue_pairs = device.limits().max_qp + device.limits().max_work_queues;
  config.max_address_handles = device.limits().max_ah;
  absl::StatusOr<std::unique_ptr<dataplane::ShardClient>> session = dataplane::ShardClient::Create(
      device.dataplane(), services_.dataplane.LeastLoadedLcore(), std::move(config));
  if (!session.ok()) return session.status();
  shard_ = *std::move(session);
  shard_->ShowPaths(device.paths());
  reply.fds = {shard_->doorbell_fd(), shard_->wake_fd()};
  reply.Hand(std::move(receiving));
  return absl::OkStatus();
}

absl::Status Session::QueryDevice(const Request&, const FdsPointer&, Reply& reply) {
  auto& device = reply.As<roci_abi_query_device_response>();
  DescribeDevice(limits_, device_->identity(), device_->node_guid(), device);
  if ((app_features_ & ROCI_ABI_FEATURE_IP_CHECKSUM) == 0) {
    device.device_cap_flags &= ~kCapRawIpChecksum;
    device.device_cap_flags_ex &= ~kCapRawIpChecksum;
  }
  if (services_.config.memory.policy == ROCI_ABI_MEMORY_PROCESS_VM) {
    device.device_cap_flags_ex &= ~kCapFlushPersistent;
  }
  return absl::OkStatus();
}

absl::Status Session::QueryPort(const Request&, const FdsPointer&, Reply& reply) {
  device_->DescribePort(reply.As<roci_abi_query_port_response>());
  return absl::OkStatus();
}

}  // namespace roci::control
