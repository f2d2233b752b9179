// The functions that libibverbs and librdmacm call in place of the C library's (intercept.h).
#include "verbs_provider/intercept/intercept.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs_provider/abi/stand_in.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/intercept/fd_registry.h"
#include "verbs_provider/intercept/got_patch.h"

struct nl_sock;

namespace roci::provider {
namespace {

constexpr char kDeviceDirectory[] = "/dev/infiniband/";
constexpr char kRdmaCmPath[] = "/dev/infiniband/rdma_cm";

// The functions that a patched library called before. One set per library, because another
// interposer may have patched only one of them.
struct Originals {
  ssize_t (*read)(int, void*, size_t);
  ssize_t (*write)(int, const void*, size_t);
  int (*ioctl)(int, unsigned long, ...);
  int (*close)(int);
  int (*open)(const char*, int, ...);
  int (*stat)(const char*, struct stat*);
  int (*fstat)(int, struct stat*);
  int (*nl_connect)(nl_sock*, int);
};

Originals g_verbs;
Originals g_cm;
InterceptHandlers g_handlers;
RdmaCmHandlers g_cm_handlers;

int Fail(int error) {
  errno = error;
  return -1;
}

// Converts a handler's result: a negative errno becomes -1 with errno set.
template <class T>
T Result(T answer) {
  return answer < 0 ? static_cast<T>(Fail(static_cast<int>(-answer))) : answer;
}

// The kind of `fd`; kNone if it is no longer the file that was registered.
FdKind VerifiedKind(int fd, void** owner) {
  const FdKind kind = FindFd(fd, owner);
  return kind != FdKind::kNone && IsSameFile(fd) ? kind : FdKind::kNone;
}

// ---- read

// Replaces the file of `fd` by one that never becomes readable, an eventfd at zero with the same
// O_NONBLOCK and close-on-exec flags. False if that fails.
bool ReplaceByIdleEventfd(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  const int idle = ::eventfd(0, EFD_CLOEXEC | ((flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0));
  if (idle < 0) return false;
  const int close_on_exec = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
  const bool replaced = ::dup3(idle, fd, close_on_exec) == fd;
  ::close(idle);
  return replaced;
}

ssize_t DeviceFatal(void* data, size_t size) {
  ib_uverbs_async_event_desc event = {};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  if (size < sizeof(event)) return Fail(EINVAL);
  std::memcpy(data, &event, sizeof(event));
  return sizeof(event);
}

bool IsEndOfFile(ssize_t result) { return result == 0 || (result < 0 && errno == ECONNRESET); }

// Answers a read at end of file: the daemon has exited. Sets `*retry` while another thread reports
// that event.
ssize_t ReadLost(int fd, void* data, size_t size, ssize_t result, bool* retry) {
  *retry = FindFd(fd, nullptr) == FdKind::kLost;
  if (*retry) return result;
  void* owner = nullptr;
  switch (VerifiedKind(fd, &owner)) {
    case FdKind::kCompletionChannel:
      return Fail(EIO);
    case FdKind::kAsyncEvents:
      *retry = !ExchangeKind(fd, FdKind::kAsyncEvents, FdKind::kLost);
      if (*retry) return result;
      if (g_handlers.lost != nullptr) g_handlers.lost(owner);
      if (!ReplaceByIdleEventfd(fd)) RemoveFd(fd);
      return DeviceFatal(data, size);
    default:
      return result;
  }
}

extern "C" ssize_t RociRead(int fd, void* data, size_t size) {
  // Bounded, because the descriptor may by now be another file at its end.
  constexpr int kMaxRetries = 1000;
  for (int retries = 0;; ++retries) {
    const ssize_t result = g_verbs.read(fd, data, size);
    if (size == 0 || !IsEndOfFile(result)) [[likely]]
      return result;
    bool retry = false;
    const ssize_t answer = ReadLost(fd, data, size, result, &retry);
    if (!retry) return answer;
    if (retries == kMaxRetries) {
      RemoveFd(fd);
      return result;
    }
    ::sched_yield();
  }
}

// ---- write and ioctl on a command descriptor

// ibv_create_comp_channel. Checks the lengths as the kernel does.
ssize_t CreateCompletionChannel(void* owner, const void* data, size_t size) {
  struct {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_create_comp_channel body;
  } command;
  if (size < sizeof(command)) return Fail(EINVAL);
  std::memcpy(&command, data, sizeof(command));
  if (command.header.in_words * 4u != size ||
      command.header.out_words * 4u < sizeof(ib_uverbs_create_comp_channel_resp)) {
    return Fail(EINVAL);
  }
  if (g_handlers.create_completion_channel == nullptr) return Fail(EOPNOTSUPP);
  const int fd = g_handlers.create_completion_channel(owner);
  if (fd < 0) return Fail(-fd);
  ib_uverbs_create_comp_channel_resp response = {};
  response.fd = static_cast<uint32_t>(fd);
  std::memcpy(reinterpret_cast<void*>(command.body.response), &response, sizeof(response));
  return static_cast<ssize_t>(size);
}

ssize_t WriteCommand(void* owner, const void* data, size_t size) {
  ib_uverbs_cmd_hdr header;
  if (size < sizeof(header)) return Fail(EINVAL);
  std::memcpy(&header, data, sizeof(header));
  if (header.command == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) {
    return CreateCompletionChannel(owner, data, size);
  }
  return Fail(EOPNOTSUPP);
}

extern "C" ssize_t RociWrite(int fd, const void* data, size_t size) {
  void* owner = nullptr;
  if (FindFd(fd, nullptr) == FdKind::kNone || VerifiedKind(fd, &owner) != FdKind::kCommand) {
    return g_verbs.write(fd, data, size);
  }
  return WriteCommand(owner, data, size);
}

int AllocateAsyncFd(void* owner, ib_uverbs_ioctl_hdr* command) {
  if (g_handlers.allocate_async_fd == nullptr) return Fail(EOPNOTSUPP);
  for (unsigned i = 0; i < command->num_attrs; ++i) {
    ib_uverbs_attr& attribute = command->attrs[i];
    if (attribute.attr_id != UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE) continue;
    const int fd = g_handlers.allocate_async_fd(owner);
    if (fd < 0) return Fail(-fd);
    attribute.data_s64 = fd;
    attribute.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    return 0;
  }
  return Fail(EINVAL);
}

extern "C" int RociIoctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  void* owner = nullptr;
  if (request != RDMA_VERBS_IOCTL || VerifiedKind(fd, &owner) != FdKind::kCommand) {
    return g_verbs.ioctl(fd, request, argument);
  }
  auto* command = static_cast<ib_uverbs_ioctl_hdr*>(argument);
  if (command->object_id == UVERBS_OBJECT_ASYNC_EVENT &&
      command->method_id == UVERBS_METHOD_ASYNC_EVENT_ALLOC) {
    return AllocateAsyncFd(owner, command);
  }
  return Fail(ENOTTY);
}

extern "C" int RociClose(int fd) {
  void* owner = nullptr;
  const FdKind kind = VerifiedKind(fd, &owner);
  RemoveFd(fd);
  if (kind != FdKind::kNone && g_handlers.closing != nullptr) {
    g_handlers.closing(owner, fd, kind);
  }
  return g_verbs.close(fd);
}

// As in open(2): O_TMPFILE has the bit of O_DIRECTORY, too.
bool TakesMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

// ---- open, stat and netlink, for roci run without a mount namespace, which has no /dev/infiniband

// True for /dev/infiniband/NAME if the emulated sysfs tree at SYSFS_PATH has a uverbs device NAME
// of Rocinante. Keeps errno.
bool IsNodeOfTree(const char* path) {
  const KeepErrno keep_errno;
  const size_t prefix = sizeof(kDeviceDirectory) - 1;
  if (std::strncmp(path, kDeviceDirectory, prefix) != 0) return false;
  const char* sysfs = ::secure_getenv("SYSFS_PATH");
  if (sysfs == nullptr) return false;
  char attribute[4096];
  const int length = std::snprintf(attribute, sizeof(attribute), "%s/class/infiniband_verbs/%s/%s",
                                   sysfs, path + prefix, abi::kSocketAttribute);
  return length > 0 && static_cast<size_t>(length) < sizeof(attribute) &&
         ::access(attribute, F_OK) == 0;
}

extern "C" int RociOpen(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (TakesMode(flags)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  const int fd = g_verbs.open(path, flags, mode);
  if (fd >= 0 || errno != ENOENT || !IsNodeOfTree(path)) return fd;
  return g_verbs.open(abi::kStandInPath, flags, mode);
}

extern "C" int RociStat(const char* path, struct stat* st) {
  const int result = g_verbs.stat(path, st);
  if (result == 0 || errno != ENOENT || !IsNodeOfTree(path)) return result;
  return g_verbs.stat(abi::kStandInPath, st);
}

// Fails if SYSFS_PATH is set: libibverbs uses that tree only if it cannot ask the kernel.
extern "C" int RociNetlinkConnect(nl_sock* socket, int protocol) {
  constexpr int kFailure = -1;  // -NLE_FAILURE of libnl
  if (protocol == NETLINK_RDMA && ::secure_getenv("SYSFS_PATH") != nullptr) return kFailure;
  return g_verbs.nl_connect(socket, protocol);
}

// ---- librdmacm

extern "C" int RociCmOpen(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (TakesMode(flags)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (std::strcmp(path, kRdmaCmPath) == 0) return Result(g_cm_handlers.open(flags));
  return g_cm.open(path, flags, mode);
}

extern "C" ssize_t RociCmWrite(int fd, const void* data, size_t size) {
  void* owner = nullptr;
  if (FindFd(fd, nullptr) == FdKind::kNone || VerifiedKind(fd, &owner) != FdKind::kRdmaCm) {
    const auto elsewhere = g_cm_handlers.write_elsewhere;
    const ssize_t result = elsewhere == nullptr ? 0 : elsewhere(data, size);
    return result != 0 ? Result(result) : g_cm.write(fd, data, size);
  }
  return Result(g_cm_handlers.write(owner, fd, data, size));
}

// librdmacm accepts only a character device with the device number in sysfs.
extern "C" int RociCmFstat(int fd, struct stat* st) {
  const int result = g_cm.fstat(fd, st);
  if (result != 0 || FindFd(fd, nullptr) != FdKind::kRdmaCm) return result;
  st->st_mode = S_IFCHR | 0666;
  st->st_rdev = makedev(abi::kStandInMajor, abi::kStandInMinor);
  return 0;
}

extern "C" int RociCmClose(int fd) {
  void* owner = nullptr;
  const bool is_channel = FindFd(fd, &owner) == FdKind::kRdmaCm && IsSameFile(fd);
  if (is_channel && g_cm_handlers.close != nullptr) g_cm_handlers.close(owner, fd);
  RemoveFd(fd);
  return g_cm.close(fd);
}

// ---- Installation

enum class Installed { kNotTried, kYes, kNo };

// The result of the first `install` that `state` saw.
template <class Install>
bool InstallOnce(std::atomic<Installed>& state, Install install) {
  if (state.load() == Installed::kNotTried) state = install() ? Installed::kYes : Installed::kNo;
  return state == Installed::kYes;
}

template <class Function>
SlotPatch Hook(const char* symbol, Function* replacement, Function** original) {
  return {symbol, reinterpret_cast<void*>(replacement), reinterpret_cast<void**>(original)};
}

}  // namespace

bool InstallInterceptionInto(const char* soname, const InterceptHandlers& handlers) {
  g_handlers = handlers;
  SlotPatch patches[] = {
      Hook("read", RociRead, &g_verbs.read),
      Hook("write", RociWrite, &g_verbs.write),
      Hook("ioctl", RociIoctl, &g_verbs.ioctl),
      Hook("close", RociClose, &g_verbs.close),
      Hook("open", RociOpen, &g_verbs.open),
      Hook("open64", RociOpen, &g_verbs.open),
      Hook("stat", RociStat, &g_verbs.stat),
      Hook("stat64", RociStat, &g_verbs.stat),
      Hook("nl_connect", RociNetlinkConnect, &g_verbs.nl_connect),
  };
  return PatchLibrary(soname, patches, sizeof(patches) / sizeof(patches[0])) &&
         g_verbs.read != nullptr && g_verbs.write != nullptr && g_verbs.ioctl != nullptr &&
         g_verbs.close != nullptr;
}

bool InstallInterception(const InterceptHandlers& handlers) {
  static std::atomic<Installed> state{Installed::kNotTried};
  return InstallOnce(state, [&] { return InstallInterceptionInto("libibverbs.so.1", handlers); });
}

bool InstallRdmaCmInterceptionInto(const char* soname, const RdmaCmHandlers& handlers) {
  if (handlers.open == nullptr || handlers.write == nullptr) return false;
  if (::dlopen(soname, RTLD_NOW | RTLD_NODELETE) == nullptr) return false;
  g_cm_handlers = handlers;
  SlotPatch patches[] = {
      Hook("open", RociCmOpen, &g_cm.open),    Hook("open64", RociCmOpen, &g_cm.open),
      Hook("fstat", RociCmFstat, &g_cm.fstat), Hook("fstat64", RociCmFstat, &g_cm.fstat),
      Hook("write", RociCmWrite, &g_cm.write), Hook("close", RociCmClose, &g_cm.close),
  };
  return PatchLibrary(soname, patches, sizeof(patches) / sizeof(patches[0])) &&
         g_cm.open != nullptr && g_cm.fstat != nullptr && g_cm.write != nullptr &&
         g_cm.close != nullptr;
}

bool InstallRdmaCmInterception(const RdmaCmHandlers& handlers) {
  static std::atomic<Installed> state{Installed::kNotTried};
  return InstallOnce(state,
                     [&] { return InstallRdmaCmInterceptionInto("librdmacm.so.1", handlers); });
}

bool RegisterFd(int fd, FdKind kind, void* owner) { return AddFd(fd, kind, owner); }
void ForgetFd(int fd) { RemoveFd(fd); }
FdKind LookUpFd(int fd, void** owner) { return FindFd(fd, owner); }

}  // namespace roci::provider
