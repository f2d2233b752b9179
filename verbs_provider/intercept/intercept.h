// Interception of the system calls that libibverbs and librdmacm make on kernel descriptors. Calls
// on registered descriptors are answered here; calls on all others are passed on.
//
// The plugin's constructor calls InstallInterception, which replaces the entries of read, write,
// ioctl, close, open and stat in libibverbs' global offset table. Calls of other libraries do not
// change.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace roci::provider {

// The kind of a registered descriptor, as libibverbs or librdmacm uses it.
enum class FdKind : uint8_t {
  kNone = 0,
  kCommand,            // cmd_fd: write ABI and RDMA_VERBS_IOCTL
  kAsyncEvents,        // async_fd: read gives struct ib_uverbs_async_event_desc (16 bytes)
  kCompletionChannel,  // ibv_comp_channel: read gives struct ib_uverbs_comp_event_desc (8 bytes)
  kRdmaCm,             // event channel of librdmacm: write ABI of <rdma/rdma_user_cm.h>
  kLost,               // kAsyncEvents whose daemon is gone; not for RegisterFd
};

// The provider's answers. `owner` is what RegisterFd got for the command descriptor (for `lost` and
// `closing`: for the descriptor in question). Called on the application's thread, without a lock;
// handlers may change errno. A null handler answers like a kernel without the feature.
struct InterceptHandlers {
  // ibv_create_comp_channel: returns a new close-on-exec descriptor, which the handler has
  // registered as kCompletionChannel and libibverbs owns, or a negative errno.
  int (*create_completion_channel)(void* owner) = nullptr;
  // ibv_import_device, and ibv_open_device if alloc_context has left async_fd at -1: likewise, a
  // descriptor registered as kAsyncEvents.
  int (*allocate_async_fd)(void* owner) = nullptr;
  // The asynchronous event descriptor is at end of file, so the daemon has exited. Called once per
  // descriptor, before read returns IBV_EVENT_DEVICE_FATAL.
  void (*lost)(void* owner) = nullptr;
  // libibverbs is about to close a descriptor, which is no longer registered. There is no other
  // call in ibv_destroy_comp_channel.
  void (*closing)(void* owner, int fd, FdKind kind) = nullptr;
};

// The handlers of the rdma_cm character device.
struct RdmaCmHandlers {
  // open("/dev/infiniband/rdma_cm"): returns a new descriptor that is readable while an event is
  // pending, registered as kRdmaCm by the handler; or a negative errno.
  int (*open)(int flags) = nullptr;
  // One command: returns `size` or a negative errno. Neither `data` nor `size` has been checked.
  ssize_t (*write)(void* owner, int fd, const void* data, size_t size) = nullptr;
  // librdmacm writes to a descriptor that is not registered: returns a negative errno for
  // librdmacm, or 0 to pass the write on.
  ssize_t (*write_elsewhere)(const void* data, size_t size) = nullptr;
  // librdmacm is about to close the descriptor, which stays registered until the handler returns.
  void (*close)(void* owner, int fd) = nullptr;
};

// Patches libibverbs.so.1, which must be loaded. Called by the plugin's constructor. Later calls
// return the result of the first and must not be concurrent with it. False if the library or one of
// the required entries was not found; then the plugin must not offer a device.
bool InstallInterception(const InterceptHandlers& handlers);

// As InstallInterception, for librdmacm.so.1. Loads the library permanently if it is not loaded,
// because the program may load it later. False if the machine does not have it.
bool InstallRdmaCmInterception(const RdmaCmHandlers& handlers);

// The same for the library `soname`, for tests. Each may be called once per process.
bool InstallInterceptionInto(const char* soname, const InterceptHandlers& handlers);
bool InstallRdmaCmInterceptionInto(const char* soname, const RdmaCmHandlers& handlers);

// Registers `fd`, in place of an earlier registration, until libibverbs closes it, ForgetFd is
// called, or `fd` turns out to be another file: the application may have closed it, so the file's
// identity is compared before a call is answered. False if `fd` is not open or memory ran out.
// Thread-safe.
//
// kAsyncEvents and kCompletionChannel should be ends of a socket pair, not of a pipe: after the
// daemon's exit, poll() then returns POLLIN | POLLHUP, so that programs that check only POLLIN call
// read. At end of file, an asynchronous event descriptor returns one IBV_EVENT_DEVICE_FATAL and
// then never becomes readable again; a completion channel fails with EIO, as the kernel's does.
bool RegisterFd(int fd, FdKind kind, void* owner);

// Removes a registration. The provider calls this before it closes a registered descriptor itself.
// No effect on other descriptors.
void ForgetFd(int fd);

// The kind and the owner with which `fd` was registered; kNone for all others. Lock-free.
FdKind LookUpFd(int fd, void** owner = nullptr);

}  // namespace roci::provider
