// Opening and closing a device.
#include "verbs_provider/context.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "verbs_provider/channel.h"
#include "verbs_provider/intercept.h"
#include "verbs_provider/objects.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {
namespace {

void FreeContext(ibv_context* ibcontext) {
  Context* context = ToContext(ibcontext);
  ForgetFd(ibcontext->cmd_fd);
  ForgetFd(ibcontext->async_fd);
  DropChannels(context->session);
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
};

Context* MakeContext(ibv_device* device, int cmd_fd) {
  // The third argument is where in Context the verbs_context lies, as a null-based pointer.
  static_assert(offsetof(Context, vctx) == 0);
  auto* context = static_cast<Context*>(
      _verbs_init_and_alloc_context(device, cmd_fd, sizeof(Context), nullptr, 0));
  if (context != nullptr) verbs_set_ops(&context->vctx, &kOps);
  return context;
}

}  // namespace

verbs_context* AllocContext(ibv_device* device, int cmd_fd, void*) {
  Session* session = nullptr;
  int error = Session::InstallHooks();
  if (error == 0) error = Session::Open(ToDevice(device)->socket_path, device->name, &session);
  if (error != 0) {
    close(cmd_fd);
    return Fail(error);
  }
  Context* context = MakeContext(device, cmd_fd);
  if (context == nullptr) {
    error = errno;
    close(session->async_fd);
    Session::Close(session);
    return Fail(error);
  }
  ibv_context* ibcontext = &context->vctx.context;
  context->session = session;
  ibcontext->async_fd = session->async_fd;
  ibcontext->num_comp_vectors = static_cast<int>(session->num_comp_vectors);
  if (!RegisterFd(cmd_fd, FdKind::kCommand, ibcontext) ||
      !RegisterFd(session->async_fd, FdKind::kAsyncEvents, ibcontext)) {
    FreeContext(ibcontext);
    return Fail(ENOMEM);
  }
  return &context->vctx;
}

InterceptHandlers ContextHandlers() {
  InterceptHandlers handlers;
  handlers.create_completion_channel = [](void* owner) {
    return CreateChannel(SessionOf(static_cast<ibv_context*>(owner)));
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
