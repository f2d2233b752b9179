// Shared receive queues: creation, modification, queries, destruction, posting.
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/events.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/poll.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

int Destroy(VerbsSession* session, uint32_t handle, roci_abi_destroy_response* response) {
  roci_abi_handle_request request = {};
  request.handle = handle;
  return session->client.Call(ROCI_ABI_DESTROY_SRQ, &request, response);
}

int Create(Srq* srq, const roci_abi_create_srq_request& filled) {
  VerbsSession* session = srq->session;
  roci_abi_create_srq_request request = filled;
  roci_abi_create_srq_response response = {};
  ReceivedFds fds;
  int error = session->client.Call(ROCI_ABI_CREATE_SRQ, &request, &response, nullptr, &fds);
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) error = srq->memory.Map(fds.at(0), response.layout.memory_size);
  if (error == 0) error = srq->queue.Use(srq->memory, response.layout);
  if (error == 0 && response.handle >= ROCI_ABI_MAX_SRQ_HANDLES) error = EPROTO;
  if (error != 0) {
    roci_abi_destroy_response ignored = {};
    if (response.head.error == 0) Destroy(session, response.handle, &ignored);
    srq->memory.Unmap();
    srq->queue.FreeMemory();
    return error;
  }
  srq->queue.limit = response.layout.max_wr;
  srq->vsrq.srq.handle = response.handle;
  srq->vsrq.srq_num = response.srqn;
  return 0;
}

// Maps the rings of the tag list operations. 0 or an errno.
int UseTags(Srq* srq, const roci_abi_create_tag_srq_request& request,
            const roci_abi_create_tag_srq_response& response, int fd) {
  const int error = srq->tag_memory.Map(fd, response.ops_memory_size);
  if (error != 0) return error;
  srq->tags.bells = srq->session->bells;
  return srq->tags.Use(srq->tag_memory, response, request.max_tags, request.max_ops);
}

// As Create, for a queue with tag matching.
int CreateTagged(Srq* srq, roci_abi_create_tag_srq_request request) {
  VerbsSession* session = srq->session;
  roci_abi_create_tag_srq_response response = {};
  ReceivedFds fds;
  int error = session->client.Call(ROCI_ABI_CREATE_TAG_SRQ, &request, &response, nullptr, &fds);
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) error = srq->memory.Map(fds.at(0), response.layout.memory_size);
  if (error == 0) error = srq->queue.Use(srq->memory, response.layout);
  if (error == 0) error = UseTags(srq, request, response, fds.at(1));
  if (error == 0 && response.handle >= ROCI_ABI_MAX_SRQ_HANDLES) error = EPROTO;
  if (error != 0) {
    roci_abi_destroy_response ignored = {};
    if (response.head.error == 0) Destroy(session, response.handle, &ignored);
    srq->memory.Unmap();
    srq->tag_memory.Unmap();
    srq->queue.FreeMemory();
    srq->tags.FreeMemory();
    return error;
  }
  srq->queue.limit = response.layout.max_wr;
  srq->vsrq.srq.handle = response.handle;
  return 0;
}

// Allocates a queue; `create(srq)` creates it at the daemon: 0 or an errno.
template <class Ask>
Srq* NewSrq(ibv_pd* pd, ibv_srq_attr* attr, Ask&& create) {
  auto* srq = Allocate<Srq>();
  if (srq == nullptr) return nullptr;
  srq->session = SessionOf(pd->context);
  const int error = create(srq);
  if (error != 0) {
    Free(srq);
    return Fail(error);
  }
  attr->max_wr = srq->queue.limit;
  attr->max_sge = srq->queue.max_sge;
  srq->vsrq.srq.context = pd->context;
  AcquireDomain(pd);
  srq->session->srqs[srq->vsrq.srq.handle].store(srq, std::memory_order_relaxed);
  return srq;
}

Srq* NewSrq(ibv_pd* pd, ibv_srq_attr* attr, roci_abi_create_srq_request request) {
  return NewSrq(pd, attr, [&](Srq* srq) {
    request.user_handle = reinterpret_cast<uintptr_t>(&srq->vsrq.srq);
    request.pd = pd->handle;
    request.max_wr = attr->max_wr;
    request.max_sge = attr->max_sge;
    return Create(srq, request);
  });
}

Srq* NewTaggedSrq(ibv_srq_init_attr_ex* attr) {
  return NewSrq(attr->pd, &attr->attr, [attr](Srq* srq) {
    roci_abi_create_tag_srq_request request = {};
    request.user_handle = reinterpret_cast<uintptr_t>(&srq->vsrq.srq);
    request.pd = attr->pd->handle;
    request.cq = attr->cq->handle;
    request.max_wr = attr->attr.max_wr;
    request.max_sge = attr->attr.max_sge;
    request.max_tags = attr->tm_cap.max_num_tags;
    request.max_ops = attr->tm_cap.max_ops;
    return CreateTagged(srq, request);
  });
}

// Fills in what libibverbs fills in only for ibv_create_srq.
void InitBase(Srq* srq, const ibv_srq_init_attr_ex& attr) {
  ibv_srq& base = srq->vsrq.srq;
  base.srq_context = attr.srq_context;
  base.pd = attr.pd;
  base.events_completed = 0;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
}

// Whether the queue can grow to `max_wr` here: 0 or an errno. The daemon cannot take a growth back.
int PrepareGrowth(Srq* srq, uint32_t max_wr) {
  if (max_wr <= srq->queue.slot_count) return 0;
  const int lack =
      SharedMapping::CheckRoom(srq->session->wake_file.fd(), srq->queue.BytesFor(max_wr));
  return lack != 0 ? lack : srq->queue.Reserve(max_wr);
}

// Switches to the memory of a queue that has grown, which the daemon uses already. Ends the session
// on failure: another thread has taken the descriptor or the address space that PrepareGrowth has
// found. Called with the queue's lock held.
int SwitchToGrown(Srq* srq, const roci_abi_srq_layout& layout, int fd) {
  SharedMapping grown;
  int error = grown.Map(fd, layout.memory_size);
  if (error == 0) error = srq->queue.Use(grown, layout);
  if (error != 0) {
    grown.Unmap();
    srq->session->client.MarkDead();
    return error;
  }
  srq->memory.Unmap();
  srq->memory = grown;
  return 0;
}

}  // namespace

ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  roci_abi_create_srq_request request = {};
  request.type = ROCI_ABI_SRQ_BASIC;
  Srq* srq = NewSrq(pd, &attr->attr, request);
  if (srq == nullptr) return nullptr;
  srq->vsrq.srq_type = IBV_SRQT_BASIC;
  return &srq->vsrq.srq;
}

// libibverbs calls this for the basic type only with attributes that do not apply to it.
ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  constexpr uint32_t kServed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                               IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  const auto has = [attr](uint32_t bit) { return (attr->comp_mask & bit) != 0; };
  if ((attr->comp_mask & ~kServed) != 0) return Fail(EOPNOTSUPP);
  const ibv_srq_type type = has(IBV_SRQ_INIT_ATTR_TYPE) ? attr->srq_type : IBV_SRQT_BASIC;
  if (type > IBV_SRQT_TM) return Fail(EOPNOTSUPP);
  if (!has(IBV_SRQ_INIT_ATTR_PD) || attr->pd == nullptr || attr->pd->context != context) {
    return Fail(EINVAL);
  }
  roci_abi_create_srq_request request = {};
  request.type = ROCI_ABI_SRQ_BASIC;
  if (type == IBV_SRQT_XRC) {
    if (!has(IBV_SRQ_INIT_ATTR_XRCD) || !has(IBV_SRQ_INIT_ATTR_CQ) || attr->xrcd == nullptr ||
        attr->cq == nullptr || attr->xrcd->context != context || attr->cq->context != context) {
      return Fail(EINVAL);
    }
    request.type = ROCI_ABI_SRQ_XRC;
    request.xrcd = ToXrcd(attr->xrcd)->handle;
    request.cq = attr->cq->handle;
  }
  if (type == IBV_SRQT_TM && (!has(IBV_SRQ_INIT_ATTR_CQ) || !has(IBV_SRQ_INIT_ATTR_TM) ||
                              attr->cq == nullptr || attr->cq->context != context)) {
    return Fail(EINVAL);
  }
  Srq* srq = type == IBV_SRQT_TM ? NewTaggedSrq(attr) : NewSrq(attr->pd, &attr->attr, request);
  if (srq == nullptr) return nullptr;
  InitBase(srq, *attr);
  srq->vsrq.srq_type = type;
  if (type == IBV_SRQT_XRC) {
    srq->vsrq.xrcd = ToXrcd(attr->xrcd);
    srq->vsrq.cq = attr->cq;
  }
  if (type == IBV_SRQT_TM) srq->vsrq.cq = attr->cq;
  return &srq->vsrq.srq;
}

int GetSrqNum(ibv_srq* ibsrq, uint32_t* number) {
  const Srq* srq = ToSrq(ibsrq);
  if (srq->vsrq.srq_type != IBV_SRQT_XRC) return EOPNOTSUPP;
  *number = srq->vsrq.srq_num;
  return 0;
}

int ModifySrq(ibv_srq* ibsrq, ibv_srq_attr* attr, int mask) {
  Srq* srq = ToSrq(ibsrq);
  if (!srq->session->alive()) return EIO;
  static_assert(IBV_SRQ_MAX_WR == ROCI_ABI_SRQ_MAX_WR && IBV_SRQ_LIMIT == ROCI_ABI_SRQ_LIMIT);
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  roci_abi_modify_srq_request request = {};
  roci_abi_modify_srq_response response = {};
  ReceivedFds fds;
  request.handle = ibsrq->handle;
  request.mask = static_cast<uint32_t>(mask);
  if (resizes) request.max_wr = attr->max_wr;
  if ((mask & IBV_SRQ_LIMIT) != 0) request.limit = attr->srq_limit;
  // Posts wait for the lock.
  const SpinGuard guard(srq->queue.lock);
  if (resizes && attr->max_wr < srq->queue.outstanding()) return EINVAL;
  int error = resizes ? PrepareGrowth(srq, attr->max_wr) : 0;
  if (error != 0) return error;
  error = srq->session->client.Call(ROCI_ABI_MODIFY_SRQ, &request, &response, nullptr, &fds);
  if (error != 0 && response.layout.memory_size == 0) {
    srq->queue.Reserve(0);
    return error;
  }
  if (response.layout.memory_size != 0) error = SwitchToGrown(srq, response.layout, fds.at(0));
  if (error != 0) return error;
  if (resizes) srq->queue.limit = attr->max_wr;
  return 0;
}

int QuerySrq(ibv_srq* ibsrq, ibv_srq_attr* attr) {
  roci_abi_handle_request request = {};
  roci_abi_query_srq_response response = {};
  request.handle = ibsrq->handle;
  const int error = ToSrq(ibsrq)->session->client.Call(ROCI_ABI_QUERY_SRQ, &request, &response);
  if (error != 0) return error;
  attr->max_wr = response.max_wr;
  attr->max_sge = response.max_sge;
  attr->srq_limit = response.limit;
  return 0;
}

namespace {

// Sets how many events the program has to acknowledge.
int DestroyWithEvents(Srq* srq, uint32_t* async_events) {
  ibv_srq* ibsrq = &srq->vsrq.srq;
  EventRemoval removal(srq->session);
  roci_abi_destroy_response response = {};
  const int error = Destroy(srq->session, ibsrq->handle, &response);
  if (error == 0) *async_events = removal.RemoveAsyncEvents(ibsrq, response.async_events);
  return error;
}

}  // namespace

int DestroySrq(ibv_srq* ibsrq) {
  Srq* srq = ToSrq(ibsrq);
  VerbsSession* session = srq->session;
  uint32_t async_events = 0;
  const int error = DestroyWithEvents(srq, &async_events);
  if (!IsGone(session, error)) return error;
  if (!session->inherited()) {
    Cq* cq = srq->vsrq.cq != nullptr ? ToCq(srq->vsrq.cq) : nullptr;
    if (cq != nullptr) cq->lock.Lock();
    session->srqs[ibsrq->handle].store(nullptr, std::memory_order_relaxed);
    if (cq != nullptr) {
      cq->ring.SkipEntries(
          [&](const roci_abi_cqe& entry) {
            return (entry.flags & (ROCI_ABI_CQE_SRQ | ROCI_ABI_CQE_TAG)) != 0 &&
                   entry.qp_handle == ibsrq->handle;
          },
          [](const roci_abi_cqe&) {});
      cq->lock.Unlock();
    }
  }
  if (error == 0) AwaitSrqAcknowledgements(ibsrq, async_events);
  pthread_cond_destroy(&ibsrq->cond);
  pthread_mutex_destroy(&ibsrq->mutex);
  UnmapOwn(session, &srq->memory);
  UnmapOwn(session, &srq->tag_memory);
  srq->queue.FreeMemory();
  srq->tags.FreeMemory();
  ReleaseDomain(ibsrq->pd);
  Free(srq);
  return 0;
}

int PostSrqRecv(ibv_srq* ibsrq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Srq* srq = ToSrq(ibsrq);
  if (srq->session->alive()) [[likely]] {
    return SetErrno(PostSharedRecvList(srq->queue, wr, bad));
  }
  *bad = wr;
  return SetErrno(EIO);
}

int PostSrqOps(ibv_srq* ibsrq, ibv_ops_wr* wr, ibv_ops_wr** bad) {
  Srq* srq = ToSrq(ibsrq);
  if (srq->tags.shared != nullptr && srq->session->alive()) [[likely]] {
    return PostTagOps(srq->tags, wr, bad);
  }
  *bad = wr;
  return srq->tags.shared == nullptr ? EOPNOTSUPP : EIO;
}

}  // namespace roci::provider
