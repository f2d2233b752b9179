// Lookups in the program's process that requests of a session need. They may block, so a helper
// thread makes them before the request is handled.
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"
#include "control/session/session.h"
#include "memory/mapped_file.h"
#include "roce/qp_attributes.h"

namespace roci::control {
namespace {

// Whether `fd`, a foreign descriptor, is a memfd with a sealed size: then calls on it do not block.
bool IsSealedMemory(int fd, size_t size) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  struct stat file;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals && fstat(fd, &file) == 0 &&
         static_cast<size_t>(file.st_size) >= size;
}

// ROCI_ABI_FEATURE_MEMORY_PROOF: whether the memory maps the file `fd`. Writes the file and reads
// the memory first; writes to the memory only after that shows the file's content. (A program may
// map files of other users read-only.)
bool ProvesMemory(const memory::AppMemory& app, int fd) {
  roci_abi_memory_proof proof;
  if (!IsSealedMemory(fd, sizeof(proof)) || pread(fd, &proof, sizeof(proof), 0) != sizeof(proof)) {
    return false;
  }
  constexpr off_t kAt = offsetof(roci_abi_memory_proof, word);
  const uint64_t address = proof.address + kAt;
  uint64_t words[2], found = 0;
  if (getrandom(words, sizeof(words), GRND_NONBLOCK) != sizeof(words)) return false;
  const bool reads = pwrite(fd, &words[0], sizeof(words[0]), kAt) == sizeof(words[0]) &&
                     app.Read(address, std::as_writable_bytes(std::span(&found, 1))) ==
                         memory::MemoryStatus::kOk &&
                     found == words[0];
  return reads &&
         app.Write(address, std::as_bytes(std::span(&words[1], 1))) == memory::MemoryStatus::kOk &&
         pread(fd, &found, sizeof(found), kAt) == sizeof(found) && found == words[1];
}

// The program that connected, identified by the descriptor that it passed or by its process number.
struct Connector {
  pid_t pid = 0;
  uid_t uid = 0;
  memory::Reach reach = memory::Reach::kAddressSpace;
  uint64_t features = 0;  // ROCI_ABI_FEATURE_*
  UniqueFd pidfd;
  UniqueFd passed;  // the last descriptor of the message, if the features require one
  int error = 0;    // errno of a missing descriptor

  std::unique_ptr<memory::AppMemory> Open(int* out_error);
};

std::unique_ptr<memory::AppMemory> Connector::Open(int* out_error) {
  *out_error = error;
  if (error != 0) return nullptr;
  if ((features & ROCI_ABI_FEATURE_APP_MEMORY) != 0) {
    auto app = memory::AppMemory::Adopt(passed.get(), pid, pidfd.get(), reach, out_error);
    if (app != nullptr) passed.Release();
    return app;
  }
  *out_error = EPERM;
  if (pid <= 0) return nullptr;
  auto app = memory::AppMemory::Open(pid, pidfd.get(), reach, out_error);
  // The number may now belong to a program with more rights than the one that connected (exec of
  // `su`).
  const bool proves = (features & ROCI_ABI_FEATURE_MEMORY_PROOF) != 0;
  const bool is_the_peers =
      app != nullptr && (proves ? ProvesMemory(*app, passed.get()) : app->AccessibleTo(uid));
  if (app != nullptr && !is_the_peers) {
    app.reset();
    *out_error = EPERM;
  }
  return app;
}

// Number of descriptors of a Connector, including those that it opens.
constexpr uint64_t kConnectorFds = 4;

// Duplicates `fd`, whose owner may close it during the lookup. On failure *error is an errno.
UniqueFd Duplicate(int fd, int* error) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) *error = errno;
  return copy;
}

// The session whose context descriptor is the same open file as `broker_fd` of the broker; 0: none.
uint32_t FindContext(const std::vector<ContextName>& contexts, pid_t broker, int broker_fd) {
  const auto found =
      std::find_if(contexts.begin(), contexts.end(), [&](const ContextName& context) {
        return syscall(SYS_kcmp, context.pid, broker, KCMP_FILE, context.fd, broker_fd) == 0 &&
               context.app->Alive();
      });
  return found != contexts.end() ? found->session : 0;
}

}  // namespace

std::optional<ContextName> Session::context_name() const {
  if (context_fd_ < 0 || app_ == nullptr || !app_->has_process()) return std::nullopt;
  return ContextName{number_, peer_.pid, context_fd_, app_};
}

// Opens the memory of the program that connected.
Session::Lookup Session::LookUpProgram(uint64_t features, const FdsPointer& fds) const {
  auto connector = std::make_shared<Connector>();
  connector->pid = peer_.pid;
  connector->uid = peer_.uid;
  connector->reach = IsDaemonsOwnUser() ? memory::Reach::kProcess : memory::Reach::kAddressSpace;
  connector->features = features;
  int* const error = &connector->error;
  if (peer_.pidfd.valid()) connector->pidfd = Duplicate(peer_.pidfd.get(), error);
  if ((features & (ROCI_ABI_FEATURE_APP_MEMORY | ROCI_ABI_FEATURE_MEMORY_PROOF)) != 0) {
    // Invalid if no call on the file is safe.
    const int last = (*fds)[fds->message_count() - 1].local.get();
    connector->passed = Duplicate(last, error);
  }
  return {.find = [connector](Findings& out) { out.app = connector->Open(&out.app_error); },
          .descriptors = kConnectorFds};
}

Session::Lookup Session::LookUpContext(const Request& request, const FdsPointer& fds) const {
  const uint64_t features = request.As<roci_abi_attach_request>().features;
  Lookup program = LookUpProgram(features, fds);
  auto contexts = std::make_shared<std::vector<ContextName>>(services_.contexts_of(peer_.uid));
  return {
      .find =
          [program = std::move(program.find), contexts, broker = services_.foreign_fds.broker_pid(),
           fd = (*fds)[0].broker_fd](Findings& out) {
            program(out);
            out.context = FindContext(*contexts, broker, fd);
          },
      .descriptors = program.descriptors};
}

// Opens the files of the extents through /proc/PID/map_files.
Session::Lookup Session::LookUpMappings(std::span<const roci_abi_extent> extents,
                                        uint32_t access) const {
  struct Mapping {
    size_t extent;
    uint64_t begin;
    uint64_t end;
  };
  std::vector<Mapping> mappings;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i].kind != ROCI_ABI_EXTENT_MAP_FILES) continue;
    mappings.push_back({i, extents[i].map_start, extents[i].map_end});
  }
  const bool maps = services_.config.memory.policy != ROCI_ABI_MEMORY_PROCESS_VM;
  if (mappings.empty() || !maps || !app_->has_process()) return {};
  const uint64_t count = mappings.size();
  return {.find =
              [mappings = std::move(mappings), writable = WantsWritableMappings(access), app = app_,
               pid = peer_.pid, uid = peer_.uid, gid = peer_.gid,
               is_trusted = peer_.has_rights_of_daemon](Findings& out) {
                std::optional<WithoutFileCapabilities> without;
                if (uid == 0 && !is_trusted && !without.emplace().ok()) return;
                for (const Mapping& mapping : mappings) {
                  UniqueFd fd(memory::OpenMappingOf(pid, uid, gid, mapping.begin, mapping.end,
                                                    writable, &out.mapped_errors[mapping.extent]));
                  // Check that the number still means the same process.
                  if (fd.valid() && app->Alive()) out.mapped[mapping.extent] = std::move(fd);
                }
              },
          .descriptors = count};
}

// For requests that need a privilege; see MayUseRawPackets().
Session::Lookup Session::LookUpPrivilege() const {
  if (KnownRawPackets(peer_, app_.get()).has_value()) return {};
  return {.find = [app = app_, pid = peer_.pid, uid = peer_.uid](Findings& out) {
    Peer peer;
    peer.pid = pid;
    peer.uid = uid;
    out.may_use_raw_packets = control::MayUseRawPackets(peer, app.get());
  }};
}

Session::Lookup Session::LookupFor(const Request& request, const FdsPointer& fds) const {
  const uint32_t command = request.head.command;
  const bool opens = command == ROCI_ABI_HELLO || command == ROCI_ABI_ATTACH;
  if (opens != (device_ == nullptr)) return {};  // refused
  switch (command) {
    case ROCI_ABI_HELLO:
      return LookUpProgram(request.As<roci_abi_hello_request>().features, fds);
    case ROCI_ABI_ATTACH:
      return LookUpContext(request, fds);
    case ROCI_ABI_REG_MR: {
      const auto& reg = request.As<roci_abi_reg_mr_request>();
      return LookUpMappings(std::span(reg.extents).first(reg.extent_count), reg.access);
    }
    case ROCI_ABI_REREG_MR: {
      const auto& rereg = request.As<roci_abi_rereg_mr_request>();
      if ((rereg.flags & kReregTranslation) == 0) return {};
      return LookUpMappings(std::span(rereg.extents).first(rereg.extent_count), AccessIn(rereg));
    }
    case ROCI_ABI_CREATE_QP:
      return NeedsPrivilege(request.As<roci_abi_create_qp_request>()) ? LookUpPrivilege()
                                                                      : Lookup{};
    case ROCI_ABI_MODIFY_QP: {
      const auto& modify = request.As<roci_abi_modify_qp_request>();
      const bool sets_qkey = (modify.mask & roce::kAttrQkey) != 0;
      return sets_qkey && roce::IsControlledQkey(modify.attr.qkey) ? LookUpPrivilege() : Lookup{};
    }
    case ROCI_ABI_REG_DMA_BUFFER_MR:
      return MapDmaBuffer(request, fds);
    case ROCI_ABI_CREATE_FLOW:
    case ROCI_ABI_CREATE_RSS_QP:
      return LookUpPrivilege();
    default:
      return {};
  }
}

absl::StatusOr<bool> Session::StartLookup(const FdsPointer& fds) {
  Lookup lookup = LookupFor(request_, fds);
  if (lookup.find == nullptr) return false;
  auto findings = std::make_shared<Findings>();
  blocking_call_ = services_.blocking_calls.Run(
      admission_.user, lookup.descriptors,
      [find = std::move(lookup.find), findings] { find(*findings); },
      [this, fds, findings] { FinishLookup(fds, *findings); });
  if (blocking_call_ == 0) return StatusFromErrno(EAGAIN, "no thread can be started");
  deferred_ = true;
  services_.loop.Change(socket_watch_, 0);
  return true;
}

void Session::FinishLookup(const FdsPointer& fds, Findings& findings) {
  blocking_call_ = 0;
  deferred_ = false;
  services_.loop.Change(socket_watch_, EPOLLIN);
  findings_ = std::move(findings);
  const roce::TimeNs begin = MonotonicNow();
  AnswerOrEnd([&] { AnswerRequest(absl::OkStatus(), fds, FindingsUse::kUsed); });
  admission_.user->loop_share->Charge(MonotonicNow() - begin);
  findings_ = Findings();
}

}  // namespace roci::control
