// A preloaded library that connects sockets of NETLINK_RDMA to the daemon (abi/rdma_netlink.h).
//
// It keeps no table of descriptors, so dup, fork, exec and close need no care: a socket is one of
// the daemon's if its peer has the name of the daemon's socket. What a connected Unix socket does
// as a netlink socket does (send, recv, poll, MSG_PEEK, MSG_TRUNC) is left to the kernel, which
// also ignores the destination of a message. Other sockets get what they get without the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "verbs_provider/abi/rdma_netlink.h"

#define EXPORT __attribute__((visibility("default")))

// The oldest version of dlsym, so that the library loads into programs with an old C library. Those
// may lack it: the functions below then make system calls.
extern void* oldest_dlsym(void* handle, const char* name) __attribute__((weak));
#if defined(__x86_64__)
__asm__(".symver oldest_dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver oldest_dlsym, dlsym@GLIBC_2.17");
#else
#error "name the C library's first version"
#endif

static const time_t kGreetingLimitS = 5;

typedef int (*socket_function)(int, int, int);
typedef int (*bind_function)(int, const struct sockaddr*, socklen_t);
typedef int (*name_function)(int, struct sockaddr*, socklen_t*);
typedef int (*setsockopt_function)(int, int, int, const void*, socklen_t);
typedef ssize_t (*sendto_function)(int, const void*, size_t, int, const struct sockaddr*,
                                   socklen_t);
typedef ssize_t (*sendmsg_function)(int, const struct msghdr*, int);
typedef ssize_t (*recvfrom_function)(int, void*, size_t, int, struct sockaddr*, socklen_t*);
typedef ssize_t (*recvmsg_function)(int, struct msghdr*, int);

// The next definition of each function in the program: the C library's, or that of another
// preloaded library or a sanitizer.
static struct {
  socket_function socket;
  bind_function bind;
  bind_function connect;
  name_function getsockname;
  name_function getpeername;
  setsockopt_function setsockopt;
  sendto_function sendto;
  sendmsg_function sendmsg;
  recvfrom_function recvfrom;
  recvmsg_function recvmsg;
} next;

static struct sockaddr_un daemon_address;  // family 0: the runtime directory is unknown

// Calls the next `name`. Before the library's constructor has run, the system call.
#define CALL(name, ...) \
  (next.name != NULL ? next.name(__VA_ARGS__) : syscall(SYS_##name, __VA_ARGS__))

__attribute__((constructor)) static void FindNext(void) {
  if (oldest_dlsym == NULL) return;
#define FIND(name) *(void**)&next.name = oldest_dlsym(RTLD_NEXT, #name)
  FIND(socket);
  FIND(bind);
  FIND(connect);
  FIND(getsockname);
  FIND(getpeername);
  FIND(setsockopt);
  FIND(sendto);
  FIND(sendmsg);
  FIND(recvfrom);
  FIND(recvmsg);
#undef FIND
}

// The environment as the program got it: programs may clear it.
__attribute__((constructor)) static void FindDaemon(void) {
  const char* directory = getenv("ROCI_RUNTIME_DIR");
  if (directory == NULL || *directory != '/') return;
  const size_t length = strlen(directory);
  static const char kName[] = "/" ROCI_ABI_NETLINK_SOCKET_NAME;
  if (length + sizeof(kName) > sizeof(daemon_address.sun_path)) return;
  memcpy(daemon_address.sun_path, directory, length);
  memcpy(daemon_address.sun_path + length, kName, sizeof(kName));
  daemon_address.sun_family = AF_UNIX;
}

// ---- Whether a socket is connected to the daemon

static bool IsDaemons(int fd) {
  static const char kEnd[] = "/" ROCI_ABI_NETLINK_SOCKET_NAME;
  const int error = errno;
  struct sockaddr_un peer;
  socklen_t size = sizeof(peer);
  memset(&peer, 0, sizeof(peer));
  const bool named = syscall(SYS_getpeername, fd, &peer, &size) == 0 &&
                     peer.sun_family == AF_UNIX && size <= sizeof(peer) &&
                     size > offsetof(struct sockaddr_un, sun_path);
  errno = error;
  if (!named) return false;
  const size_t length = strnlen(peer.sun_path, size - offsetof(struct sockaddr_un, sun_path));
  return length >= sizeof(kEnd) - 1 &&
         memcmp(peer.sun_path + length - (sizeof(kEnd) - 1), kEnd, sizeof(kEnd) - 1) == 0;
}

static bool IsNetlinkAddress(const struct sockaddr* address, socklen_t size) {
  return address != NULL && size >= sizeof(address->sa_family) && address->sa_family == AF_NETLINK;
}

static int Fail(int error) {
  errno = error;
  return -1;
}

// Writes a name as the kernel would; `room` is the size of `address`.
static void PutName(uint32_t port, void* address, socklen_t room, socklen_t* size) {
  struct sockaddr_nl name;
  memset(&name, 0, sizeof(name));
  name.nl_family = AF_NETLINK;
  name.nl_pid = port;
  memcpy(address, &name, room < sizeof(name) ? room : sizeof(name));
  *size = sizeof(name);
}

static uint32_t PortOf(int fd) {
  struct sockaddr_un own;
  socklen_t size = sizeof(own);
  if (syscall(SYS_getsockname, fd, &own, &size) != 0) return 0;
  return roci_abi_netlink_port(own.sun_path,
                               (uint32_t)(size - offsetof(struct sockaddr_un, sun_path)));
}

// After a message was received from an address that the kernel has written to `address`.
static void CorrectSender(int fd, void* address, socklen_t room, socklen_t* size) {
  // The daemon binds its sockets under names that begin so (control/loop/socket.cc).
  static const char kStart[] = "/proc/self/fd/";
  const size_t offset = offsetof(struct sockaddr_un, sun_path);
  const struct sockaddr_un* name = (const struct sockaddr_un*)address;
  if (room <= offset || *size <= sizeof(struct sockaddr_nl) || name->sun_family != AF_UNIX) return;
  const size_t length = room - offset < sizeof(kStart) - 1 ? room - offset : sizeof(kStart) - 1;
  if (memcmp(name->sun_path, kStart, length) == 0 && IsDaemons(fd)) {
    PutName(0, address, room, size);  // 0: the kernel
  }
}

// ---- Opening

struct Caller {
  uintptr_t address;
  bool is_libnl;
  bool has_libibverbs;
};

static int VisitLibrary(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct Caller* caller = (struct Caller*)data;
  if (info->dlpi_name == NULL) return 0;
  if (strstr(info->dlpi_name, "libibverbs.so") != NULL) caller->has_libibverbs = true;
  if (strstr(info->dlpi_name, "libnl-3.so") == NULL) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type == PT_LOAD &&
        caller->address - start < info->dlpi_phdr[i].p_memsz)
      caller->is_libnl = true;
  }
  return 0;
}

// libibverbs and librdmacm find devices by netlink (through libnl) where they can, and in /sys
// where they cannot. The tree in /sys has the kernel's devices as well.
static bool IsVerbsLibrary(void* caller_address) {
  struct Caller caller = {(uintptr_t)caller_address, false, false};
  dl_iterate_phdr(&VisitLibrary, &caller);
  return caller.is_libnl && caller.has_libibverbs;
}

// 0, or why the daemon does not serve the connection. (socket() is no cancellation point, so
// nothing here may be one.)
static int ReceiveGreeting(int fd) {
  struct roci_abi_netlink_greeting greeting;
  ssize_t size;
  do {
    size = syscall(SYS_recvfrom, fd, &greeting, sizeof(greeting), 0, NULL, NULL);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return ETIMEDOUT;
  if (size != (ssize_t)sizeof(greeting) || greeting.magic != ROCI_ABI_MAGIC ||
      greeting.version != ROCI_ABI_NETLINK_VERSION) {
    return EPROTONOSUPPORT;
  }
  return greeting.error;
}

static void LimitWaits(int fd, time_t seconds) {
  const struct timeval limit = {seconds, 0};
  syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

static int Connect(int fd) {
  const struct sockaddr_un unnamed = {.sun_family = AF_UNIX};
  LimitWaits(fd, kGreetingLimitS);
  if (syscall(SYS_bind, fd, &unnamed, sizeof(unnamed.sun_family)) != 0 ||
      syscall(SYS_connect, fd, &daemon_address, sizeof(daemon_address)) != 0) {
    return errno == EAGAIN ? ETIMEDOUT : errno;
  }
  const int error = ReceiveGreeting(fd);
  LimitWaits(fd, 0);
  return error;
}

// A socket, or a negative errno.
static int Open(int type) {
  if (daemon_address.sun_family == 0) return -ENOENT;
  const int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | (type & SOCK_CLOEXEC), 0);
  if (fd < 0) return -errno;
  int error = Connect(fd);
  if (error == 0 && (type & SOCK_NONBLOCK) != 0 && fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
    error = errno;
  }
  if (error == 0) return fd;
  syscall(SYS_close, fd);
  return -error;
}

// No daemon serves RDMA netlink: the kernel answers as without the library.
static bool IsAbsent(int error) {
  return error == -ENOENT || error == -ECONNREFUSED || error == -ENOTDIR || error == -EACCES;
}

// The parameters of the C library have reserved names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
EXPORT int socket(int domain, int type, int protocol) {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
    if (IsVerbsLibrary(__builtin_return_address(0))) return Fail(EPROTONOSUPPORT);
    const int fd = Open(type);
    if (fd >= 0) return fd;
    if (!IsAbsent(fd)) return Fail(-fd);
  }
  return (int)CALL(socket, domain, type, protocol);
}

// ---- The names of the sockets

EXPORT int bind(int fd, const struct sockaddr* address, socklen_t size) {
  if (IsNetlinkAddress(address, size) && IsDaemons(fd)) {
    if (size < sizeof(struct sockaddr_nl)) return Fail(EINVAL);
    // There are no notifications.
    return ((const struct sockaddr_nl*)address)->nl_groups != 0 ? Fail(EOPNOTSUPP) : 0;
  }
  return (int)CALL(bind, fd, address, size);
}

EXPORT int connect(int fd, const struct sockaddr* address, socklen_t size) {
  if (IsNetlinkAddress(address, size) && IsDaemons(fd)) {
    if (size < sizeof(struct sockaddr_nl)) return Fail(EINVAL);
    return ((const struct sockaddr_nl*)address)->nl_pid != 0 ? Fail(ECONNREFUSED) : 0;
  }
  return (int)CALL(connect, fd, address, size);
}

EXPORT int getsockname(int fd, struct sockaddr* restrict address, socklen_t* restrict size) {
  const socklen_t room = size != NULL ? *size : 0;
  const int result = (int)CALL(getsockname, fd, address, size);
  const size_t length = offsetof(struct sockaddr_un, sun_path) + ROCI_ABI_NETLINK_NAME_SIZE;
  if (result == 0 && room >= sizeof(address->sa_family) && *size == length &&
      address->sa_family == AF_UNIX && IsDaemons(fd)) {
    PutName(PortOf(fd), address, room, size);
  }
  return result;
}

EXPORT int getpeername(int fd, struct sockaddr* restrict address, socklen_t* restrict size) {
  const socklen_t room = size != NULL ? *size : 0;
  const int result = (int)CALL(getpeername, fd, address, size);
  if (result == 0) CorrectSender(fd, address, room, size);
  return result;
}

EXPORT int setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  if (level == SOL_NETLINK && IsDaemons(fd)) {
    return name == NETLINK_ADD_MEMBERSHIP ? Fail(EOPNOTSUPP) : 0;
  }
  return (int)CALL(setsockopt, fd, level, name, value, size);
}

// ---- Messages. A netlink socket raises no SIGPIPE.

EXPORT ssize_t sendto(int fd, const void* data, size_t size, int flags,
                      const struct sockaddr* address, socklen_t address_size) {
  if (IsNetlinkAddress(address, address_size)) flags |= MSG_NOSIGNAL;
  return CALL(sendto, fd, data, size, flags, address, address_size);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (message != NULL &&
      IsNetlinkAddress((const struct sockaddr*)message->msg_name, message->msg_namelen)) {
    flags |= MSG_NOSIGNAL;
  }
  return CALL(sendmsg, fd, message, flags);
}

EXPORT ssize_t recvfrom(int fd, void* restrict data, size_t size, int flags,
                        struct sockaddr* restrict address, socklen_t* restrict address_size) {
  const socklen_t room = address != NULL && address_size != NULL ? *address_size : 0;
  const ssize_t result = CALL(recvfrom, fd, data, size, flags, address, address_size);
  if (result > 0 && room != 0) CorrectSender(fd, address, room, address_size);
  return result;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  const socklen_t room = message != NULL && message->msg_name != NULL ? message->msg_namelen : 0;
  const ssize_t result = CALL(recvmsg, fd, message, flags);
  if (result > 0 && room != 0) CorrectSender(fd, message->msg_name, room, &message->msg_namelen);
  return result;
}

// What recvfrom is where programs are compiled with checks of buffers.
EXPORT ssize_t __recvfrom_chk(int fd, void* restrict data, size_t size, size_t room, int flags,
                              struct sockaddr* restrict address, socklen_t* restrict address_size) {
  if (size > room) abort();
  return recvfrom(fd, data, size, flags, address, address_size);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
