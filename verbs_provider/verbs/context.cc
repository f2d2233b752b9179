// Opening and closing a device.
#include "verbs_provider/verbs/context.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs_provider/base/generation.h"
#include "verbs_provider/base/linked_list.h"
#include "verbs_provider/base/process_lock.h"
#include "verbs_provider/intercept/fd_registry.h"
#include "verbs_provider/intercept/intercept.h"
#include "verbs_provider/session/channel.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

// All open contexts of this process and all devices of libibverbs; under the ProcessLock.
Context* contexts = nullptr;
VerbsDevice* devices = nullptr;

void AddContext(Context* context) {
  const ProcessLock lock;
  AddToList(contexts, context);
}

// The daemon identifies a session by the command descriptor of one of its contexts. This context's
// descriptor is about to be closed; if another context uses the session, the daemon gets that
// one's.
void RemoveContext(Context* context) {
  const ProcessLock lock;
  RemoveFromList(contexts, context);
  VerbsSession* session = context->session.load();
  const Context* other = contexts;
  while (other != nullptr && other->session.load() != session) other = other->next;
  if (other != nullptr) session->NameContext(other->ibcontext.cmd_fd);
}

struct SharedContext {
  ibv_device* device;
  VerbsSession* session;  // null: there is no such context
};

// Finds the context whose command descriptor `fd` duplicates, and takes a reference to its session
// for the caller. The context itself may be closed after the return.
SharedContext ShareContextOf(int fd) {
  const pid_t pid = getpid();
  const ProcessLock lock;
  Context* context = contexts;
  while (context != nullptr &&
         syscall(SYS_kcmp, pid, pid, KCMP_FILE, fd, context->ibcontext.cmd_fd) != 0) {
    context = context->next;
  }
  if (context == nullptr) return {};
  VerbsSession* session = context->session.load();
  session->AddReference();
  return {context->ibcontext.device, session};
}

// The device `name` of the daemon that `like` belongs to; null if there is none.
ibv_device* FindDevice(const char* name, const VerbsDevice* like) {
  const ProcessLock lock;
  VerbsDevice* device = devices;
  while (device != nullptr && (strcmp(device->vdev.device.name, name) != 0 ||
                               strcmp(device->socket_path, like->socket_path) != 0)) {
    device = device->next;
  }
  return device != nullptr ? &device->vdev.device : nullptr;
}

// libibverbs' structure, which ends with the context.
verbs_context* VerbsContextOf(Context* context) {
  return reinterpret_cast<verbs_context*>(reinterpret_cast<std::byte*>(context) -
                                          LoadedGeneration().context_offset);
}

}  // namespace

void FreeContext(ibv_context* ibcontext) {
  Context* context = ToContext(ibcontext);
  RemoveContext(context);
  ForgetFd(ibcontext->cmd_fd);
  ForgetFd(ibcontext->async_fd);
  VerbsSession::Close(context->session);
  verbs_context* const vctx = VerbsContextOf(context);
  verbs_uninit_context(vctx);  // closes both descriptors
  free(vctx);
}

namespace {

// The likely reason for an error of opening a device, to follow the errno's text.
const char* HintOf(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return " (a daemon that does not run as root serves only programs of its own user, and none "
             "that has changed its user without exec or is not dumpable; a program in a container "
             "must be able to open /proc/self/mem; see `roci doctor`)";
    case ENFILE:
      return " (the daemon has no descriptor left for this user: close other sessions)";
    case EAGAIN:
      return " (this user has as many sessions as limits.user_percent allows: close some)";
    case EUSERS:
      return " (the daemon has limits.max_sessions sessions: close some or raise the limit)";
    case ENOENT:
    case ECONNREFUSED:
      return " (check that rocid runs; after chroot, this path or /proc must exist; see `roci "
             "doctor`)";
    default:
      return "";
  }
}

// Which of the two is too old. `daemon_major` is 0 if the daemon did not tell its version.
const char* VersionRemedy(uint16_t daemon_major) {
  if (daemon_major == 0) return "install plugin and daemon of one version";
  return daemon_major > ROCI_ABI_MAJOR
             ? "the plugin is too old: install the daemon's, or, in a container, run `roci cdi` on "
               "the host and create the container again"
             : "the daemon is too old: restart rocid, or install the plugin's version of it";
}

// Prints why a device cannot be opened, because most programs do not. As in libibverbs, only if
// VERBS_LOG_LEVEL asks for it.
void PrintOpenError(ibv_device* device, int error, uint16_t daemon_major) {
  const char* level = secure_getenv("VERBS_LOG_LEVEL");
  if (level == nullptr || atoi(level) < 1) return;
  fprintf(stderr, "libroci: cannot open %s through %s: ", device->name,
          ToDevice(device)->socket_path);
  if (error == EPROTONOSUPPORT || error == EPROTO) {
    fprintf(stderr, "the daemon has another protocol version (%u, this plugin %u); %s\n",
            daemon_major, ROCI_ABI_MAJOR, VersionRemedy(daemon_major));
    return;
  }
  const char* reason = strerrordesc_np(error);
  fprintf(stderr, "%s%s\n", reason != nullptr ? reason : "unknown error", HintOf(error));
}

// A registered duplicate of the session's asynchronous event descriptor, or a negative errno.
int MakeAsyncFd(ibv_context* context) {
  const int fd = fcntl(SessionOf(context)->async_file.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return -errno;
  if (RegisterFd(fd, FdKind::kAsyncEvents, context)) return fd;
  close(fd);
  return -ENOMEM;
}

// Takes ownership of `cmd_fd` and of one reference to `session`, also on failure.
Context* MakeContext(ibv_device* device, int cmd_fd, VerbsSession* session) {
  static_assert(offsetof(Context, ibcontext) == 0);
  const Generation& generation = LoadedGeneration();
  auto* memory = static_cast<std::byte*>(_verbs_init_and_alloc_context(
      device, cmd_fd, generation.context_offset + sizeof(Context), nullptr, 0));
  if (memory == nullptr) {
    const int error = errno;
    VerbsSession::Close(session);
    return Fail(error);
  }
  auto* context = reinterpret_cast<Context*>(memory + generation.context_offset);
  ibv_context* ibcontext = &context->ibcontext;
  verbs_set_ops(VerbsContextOf(context), generation.operations);
  context->session = session;
  ibcontext->num_comp_vectors = static_cast<int>(session->num_comp_vectors);
  AddContext(context);
  if (!RegisterFd(cmd_fd, FdKind::kCommand, ibcontext)) {
    FreeContext(ibcontext);
    return Fail(ENOMEM);
  }
  return context;
}

}  // namespace

verbs_context* AllocContext(ibv_device* device, int cmd_fd, void*) {
  VerbsSession* session = nullptr;
  uint16_t daemon_major = 0;
  const VerbsDevice* found = ToDevice(device);
  int error = VerbsSession::InstallHooks();
  if (error == 0) {
    error = VerbsSession::Open(found->socket_path, found->socket.fd(), device->name, &session,
                               &daemon_major);
  }
  if (error != 0) {
    PrintOpenError(device, error, daemon_major);
    close(cmd_fd);
    return Fail(error);
  }
  Context* context = MakeContext(device, cmd_fd, session);
  if (context == nullptr) return nullptr;
  ibv_context* ibcontext = &context->ibcontext;
  session->NameContext(ibcontext->cmd_fd);
  const int async_fd = MakeAsyncFd(ibcontext);
  if (async_fd < 0) {
    FreeContext(ibcontext);
    return Fail(-async_fd);
  }
  ibcontext->async_fd = async_fd;
  return VerbsContextOf(context);
}

namespace {

verbs_context* ImportFromAnotherProcess(ibv_device* device, int cmd_fd) {
  VerbsSession* session = nullptr;
  char name[ROCI_ABI_DEVICE_NAME_MAX];
  const VerbsDevice* found = ToDevice(device);
  int error = VerbsSession::InstallHooks();
  if (error == 0) {
    error = VerbsSession::Attach(found->socket_path, found->socket.fd(), cmd_fd, name, &session);
  }
  if (error != 0) return Fail(error);
  ibv_device* opened = FindDevice(name, ToDevice(device));
  if (opened == nullptr) {
    VerbsSession::Close(session);
    return Fail(ENODEV);
  }
  Context* context = MakeContext(opened, cmd_fd, session);
  if (context == nullptr) return nullptr;
  session->NameContext(cmd_fd);
  return VerbsContextOf(context);
}

// Replaces the context's inherited asynchronous event descriptor by that of the child's session,
// unless the program has closed it: its number may be another file's now.
void ReplaceAsyncFd(Context* context, const VerbsSession* session) {
  ibv_context& ibcontext = context->ibcontext;
  if (LookUpFd(ibcontext.async_fd) != FdKind::kAsyncEvents || !IsSameFile(ibcontext.async_fd)) {
    return;
  }
  ForgetFd(ibcontext.async_fd);
  if (dup3(session->async_file.fd(), ibcontext.async_fd, O_CLOEXEC) >= 0) {
    RegisterFd(ibcontext.async_fd, FdKind::kAsyncEvents, &ibcontext);
  }
}

}  // namespace

// Inherited objects with rings keep the inherited session and cannot be used in the child. That
// session is not freed, because they point to it.
VerbsSession* SessionOfChild(Context* context) {
  VerbsSession* const inherited = context->session.load(std::memory_order_acquire);
  const ibv_context& ibcontext = context->ibcontext;
  const VerbsDevice* device = ToDevice(ibcontext.device);
  const int socket_file = device->socket.fd();
  VerbsSession* own = nullptr;
  char name[ROCI_ABI_DEVICE_NAME_MAX];
  int error = VerbsSession::Attach(device->socket_path, socket_file, ibcontext.cmd_fd, name, &own);
  // The parent has exited: the child's new objects do not need it.
  if (error == ENODEV) {
    uint16_t daemon_major;
    error = VerbsSession::Open(device->socket_path, socket_file, ibcontext.device->name, &own,
                               &daemon_major);
  }
  if (error != 0) return inherited;
  VerbsSession* present = inherited;
  if (!context->session.compare_exchange_strong(present, own)) {  // another thread was first
    VerbsSession::Close(own);
    return present;
  }
  own->NameContext(ibcontext.cmd_fd);
  ReplaceAsyncFd(context, own);
  return own;
}

// libibverbs chooses `device` by the number of the character device, which is the same for all
// devices of Rocinante, so the device of the open context is used instead. libibverbs asks for the
// asynchronous event descriptor afterwards (InterceptHandlers::allocate_async_fd).
verbs_context* ImportContext(ibv_device* device, int cmd_fd) {
  const SharedContext original = ShareContextOf(cmd_fd);
  if (original.session == nullptr) return ImportFromAnotherProcess(device, cmd_fd);
  Context* context = MakeContext(original.device, cmd_fd, original.session);
  return context != nullptr ? VerbsContextOf(context) : nullptr;
}

void AddDevice(VerbsDevice* device) {
  const ProcessLock lock;
  AddToList(devices, device);
}

void RemoveDevice(VerbsDevice* device) {
  const ProcessLock lock;
  RemoveFromList(devices, device);
}

InterceptHandlers ContextHandlers() {
  InterceptHandlers handlers;
  handlers.create_completion_channel = [](void* owner) {
    return CreateChannel(SessionOf(static_cast<ibv_context*>(owner)));
  };
  handlers.allocate_async_fd = [](void* owner) {
    return MakeAsyncFd(static_cast<ibv_context*>(owner));
  };
  handlers.lost = [](void* owner) {
    SessionOf(static_cast<ibv_context*>(owner))->client.MarkDead();
  };
  handlers.closing = [](void* owner, int, FdKind kind) {
    if (kind == FdKind::kCompletionChannel) DestroyChannel(owner);
  };
  return handlers;
}

}  // namespace roci::provider
