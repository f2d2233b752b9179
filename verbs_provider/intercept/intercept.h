// The one interception layer: what libibverbs and librdmacm send straight to a kernel descriptor is
// answered here, for the descriptors that the provider registered, and passed on for all others.
//
// How: the plugin's constructor calls InstallInterception, which replaces the slots of read, write,
// ioctl, close, open and stat in libibverbs' own global offset table. No other library's calls
// change.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace roci::provider {

// What a registered descriptor is, from the point of view of libibverbs.
enum class FdKind : uint8_t {
  kNone = 0,
  kCommand,            // cmd_fd: write ABI and RDMA_VERBS_IOCTL
  kAsyncEvents,        // async_fd: read gives struct ib_uverbs_async_event_desc (16 bytes)
  kCompletionChannel,  // ibv_comp_channel: read gives struct ib_uverbs_comp_event_desc (8 bytes)
  kRdmaCm,             // event channel of librdmacm: write ABI of <rdma/rdma_user_cm.h>
  kLost,               // kAsyncEvents whose daemon is gone; not for RegisterFd
};

// What the provider does when asked. `owner` is what RegisterFd was given for the command
// descriptor (for lost: for the descriptor that ended). Called on the application's thread, no lock
// held; errno need not be kept. A null pointer answers as a kernel without the feature does.
struct InterceptHandlers {
  // ibv_create_comp_channel: a new close-on-exec descriptor (ownership passes to libibverbs) that
  // the handler has registered as kCompletionChannel, or a negative errno.
  int (*create_completion_channel)(void* owner) = nullptr;
  // ibv_import_device, and ibv_open_device where alloc_context left async_fd at -1: likewise, as
  // kAsyncEvents.
  int (*allocate_async_fd)(void* owner) = nullptr;
  // The writing end of an asynchronous event descriptor is gone, so the daemon is. Called once per
  // descriptor, before IBV_EVENT_DEVICE_FATAL is handed out.
  void (*lost)(void* owner) = nullptr;
  // libibverbs is about to close a descriptor, which is registered no more. The only news of
  // ibv_destroy_comp_channel that there is.
  void (*closing)(void* owner, int fd, FdKind kind) = nullptr;
};

// The rdma_cm character device. Only for a provider that serves the connection manager.
struct RdmaCmHandlers {
  // open("/dev/infiniband/rdma_cm"): a new descriptor that polls readable while an event waits,
  // registered as kRdmaCm by the handler; or a negative errno.
  int (*open)(int flags) = nullptr;
  // One command: the number of bytes taken (= size), or a negative errno. The caller has checked
  // nothing; `size` may be anything.
  ssize_t (*write)(void* owner, int fd, const void* data, size_t size) = nullptr;
  // librdmacm writes to a descriptor that is not ours: a negative errno for its caller, or 0 for
  // the write to be passed on.
  ssize_t (*write_elsewhere)(const void* data, size_t size) = nullptr;
  // librdmacm is about to close the descriptor, which stays registered until this comes back.
  void (*close)(void* owner, int fd) = nullptr;
};

// Patches libibverbs.so.1, which must be loaded. For the plugin's constructor: calls after the
// first return what that returned, and must not overlap it. False where the library or one of the
// needed slots was not found: no device must be offered then.
bool InstallInterception(const InterceptHandlers& handlers);

// The same for librdmacm.so.1. Loads it for good if it is not there yet, since a program may load
// it later; false where the machine has none.
bool InstallRdmaCmInterception(const RdmaCmHandlers& handlers);

// The same for other libraries, for tests. May be called once each per process.
bool InstallInterceptionInto(const char* soname, const InterceptHandlers& handlers);
bool InstallRdmaCmInterceptionInto(const char* soname, const RdmaCmHandlers& handlers);

// Makes `fd` ours until it is closed through libibverbs, forgotten, or found to be another file (an
// application may close any number behind our backs: the file's identity is compared before
// anything unusual is done). Any number; replaces an earlier registration. False: `fd` is not open,
// or memory ran out. Thread-safe.
//
// kAsyncEvents and kCompletionChannel should be the reading end of a socket pair rather than of a
// pipe: when the daemon is gone, poll() then says POLLIN | POLLHUP, and programs that look for
// POLLIN alone read and learn of it. At end of file an asynchronous event descriptor yields one
// IBV_EVENT_DEVICE_FATAL and is quiet from then on; a completion channel fails with EIO, as the
// kernel's do.
bool RegisterFd(int fd, FdKind kind, void* owner);

// Must precede a close() of a registered descriptor by the provider itself. No effect on others.
void ForgetFd(int fd);

// What `fd` was registered as, and for whom; kNone for all others. Lock-free.
FdKind LookUpFd(int fd, void** owner = nullptr);

}  // namespace roci::provider
