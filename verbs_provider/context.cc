// Opening and closing a device.
#include "verbs_provider/context.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs_provider/channel.h"
#include "verbs_provider/intercept.h"
#include "verbs_provider/objects.h"
#include "verbs_provider/process_lock.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {
namespace {

// Every open context of this process.
Context* contexts = nullptr;

void AddToList(Context* context) {
  const ProcessLock lock;
  context->next = contexts;
  contexts = context;
}

void RemoveFromList(Context* context) {
  const ProcessLock lock;
  Context** link = &contexts;
  while (*link != nullptr && *link != context) link = &(*link)->next;
  if (*link != nullptr) *link = context->next;
}

// The context whose command descriptor `fd` is a duplicate of. Its session is shared for the caller
// before the list is let go. Null: none.
Context* ShareContextOf(int fd) {
  const pid_t pid = getpid();
  const ProcessLock lock;
  Context* context = contexts;
  while (context != nullptr &&
         syscall(SYS_kcmp, pid, pid, KCMP_FILE, fd, context->vctx.context.cmd_fd) != 0) {
    context = context->next;
  }
  if (context != nullptr) context->session->Share();
  return context;
}

void FreeContext(ibv_context* ibcontext) {
  Context* context = ToContext(ibcontext);
  RemoveFromList(context);
  ForgetFd(ibcontext->cmd_fd);
  ForgetFd(ibcontext->async_fd);
  Session::Close(context->session);
  verbs_uninit_context(&context->vctx);  // closes both descriptors
  free(context);
}

// What is not named here answers EOPNOTSUPP or ENOSYS from libibverbs' own table.
constexpr verbs_context_ops kOps = {
    .alloc_parent_domain = AllocParentDomain,
    .alloc_pd = AllocPd,
    .alloc_td = AllocTd,
    .create_ah = CreateAh,
    .create_cq = CreateCq,
    .create_cq_ex = CreateCqEx,
    .create_qp = CreateQp,
    .create_qp_ex = CreateQpEx,
    .dealloc_pd = DeallocPd,
    .dealloc_td = DeallocTd,
    .dereg_mr = DeregMr,
    .destroy_ah = DestroyAh,
    .destroy_cq = DestroyCq,
    .destroy_qp = DestroyQp,
    .free_context = FreeContext,
    .import_mr = ImportMr,
    .import_pd = ImportPd,
    .modify_qp = ModifyQp,
    .poll_cq = PollCq,
    .post_recv = PostRecv,
    .post_send = PostSend,
    .query_device_ex = QueryDevice,
    .query_port = QueryPort,
    .query_qp = QueryQp,
    .query_rt_values = QueryRtValues,
    .reg_mr = RegMr,
    .req_notify_cq = ReqNotifyCq,
    .rereg_mr = ReregMr,
    .resize_cq = ResizeCq,
    .unimport_mr = UnimportMr,
    .unimport_pd = UnimportPd,
};

// Most programs say no more than that the device cannot be opened.
void Complain(ibv_device* device, int error) {
  const char* reason = error == EPROTONOSUPPORT || error == EPROTO
                           ? "the daemon is of another version"
                           : strerrordesc_np(error);
  fprintf(stderr, "libroci: cannot open %s by %s: %s\n", device->name,
          ToDevice(device)->socket_path, reason != nullptr ? reason : "unknown error");
}

// A registered duplicate of the session's asynchronous event descriptor, or a negative errno.
int MakeAsyncFd(ibv_context* context) {
  const int fd = fcntl(SessionOf(context)->async_fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return -errno;
  if (RegisterFd(fd, FdKind::kAsyncEvents, context)) return fd;
  close(fd);
  return -ENOMEM;
}

// Takes `cmd_fd` and one use of `session` over, also when it fails.
Context* MakeContext(ibv_device* device, int cmd_fd, Session* session) {
  // The third argument is where in Context the verbs_context lies, as a null-based pointer.
  static_assert(offsetof(Context, vctx) == 0);
  auto* context = static_cast<Context*>(
      _verbs_init_and_alloc_context(device, cmd_fd, sizeof(Context), nullptr, 0));
  if (context == nullptr) {
    const int error = errno;
    Session::Close(session);
    return Fail(error);
  }
  ibv_context* ibcontext = &context->vctx.context;
  verbs_set_ops(&context->vctx, &kOps);
  context->session = session;
  ibcontext->num_comp_vectors = static_cast<int>(session->num_comp_vectors);
  AddToList(context);
  if (!RegisterFd(cmd_fd, FdKind::kCommand, ibcontext)) {
    FreeContext(ibcontext);
    return Fail(ENOMEM);
  }
  return context;
}

}  // namespace

verbs_context* AllocContext(ibv_device* device, int cmd_fd, void*) {
  Session* session = nullptr;
  int error = Session::InstallHooks();
  if (error == 0) error = Session::Open(ToDevice(device)->socket_path, device->name, &session);
  if (error != 0) {
    Complain(device, error);
    close(cmd_fd);
    return Fail(error);
  }
  Context* context = MakeContext(device, cmd_fd, session);
  if (context == nullptr) return nullptr;
  ibv_context* ibcontext = &context->vctx.context;
  const int async_fd = MakeAsyncFd(ibcontext);
  if (async_fd < 0) {
    FreeContext(ibcontext);
    return Fail(-async_fd);
  }
  ibcontext->async_fd = async_fd;
  return &context->vctx;
}

// libibverbs finds the device by the number of the character device, which is the same for all of
// ours: the open context knows better. It makes the asynchronous event descriptor itself afterwards
// (InterceptHandlers::allocate_async_fd).
verbs_context* ImportContext(ibv_device*, int cmd_fd) {
  const Context* original = ShareContextOf(cmd_fd);
  if (original == nullptr) return Fail(ENODEV);
  Session* session = original->session;
  Context* context = MakeContext(original->vctx.context.device, cmd_fd, session);
  return context != nullptr ? &context->vctx : nullptr;
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
