// Completion queues: creation, resizing, destruction, notification. Polling is in poll.cc.
#include <bit>
#include <utility>

#include "verbs_provider/session/channel.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/events.h"
#include "verbs_provider/verbs/extended_poll.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

struct RingLayout {
  uint64_t memory_size;
  uint32_t capacity;
  uint32_t entries_offset;
};

// Maps the ring that a response describes. 0 or an errno; changes `memory` and `ring` only on
// success.
int MapRing(int fd, const RingLayout& layout, SharedMapping* memory, CompletionRing* ring) {
  SharedMapping mapping;
  const int error = mapping.Map(fd, layout.memory_size);
  if (error != 0) return error;
  auto* header = mapping.At<roci_abi_cq>(0);
  auto* entries = mapping.At<roci_abi_cqe>(layout.entries_offset, layout.capacity);
  const bool power_of_two = layout.capacity != 0 && (layout.capacity & (layout.capacity - 1)) == 0;
  if (header == nullptr || entries == nullptr || !power_of_two) {
    mapping.Unmap();
    return EPROTO;
  }
  ring->Use(header, entries, layout.capacity);
  *memory = mapping;
  return 0;
}

int Destroy(VerbsSession* session, uint32_t handle, roci_abi_destroy_response* response) {
  roci_abi_handle_request request = {};
  request.handle = handle;
  return session->client.Call(ROCI_ABI_DESTROY_CQ, &request, response);
}

int Create(Cq* cq, const roci_abi_create_cq_request& filled) {
  VerbsSession* session = cq->session;
  roci_abi_create_cq_request request = filled;
  roci_abi_create_cq_response response = {};
  ReceivedFds fds;
  int error = session->client.Call(ROCI_ABI_CREATE_CQ, &request, &response, nullptr, &fds);
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) {
    error = MapRing(fds.at(0), {response.memory_size, response.capacity, response.entries_offset},
                    &cq->memory, &cq->ring);
  }
  if (error != 0) {
    roci_abi_destroy_response ignored = {};
    if (response.head.error == 0) Destroy(session, response.handle, &ignored);
    return error;
  }
  cq->vcq.cq.handle = cq->handle = response.handle;
  cq->vcq.cq.cqe = static_cast<int>(response.entries);
  return 0;
}

}  // namespace

namespace {

struct CqOptions {
  ibv_pd* domain = nullptr;
  bool single_threaded = false;
  bool ignore_overrun = false;
};

Cq* NewCq(ibv_context* context, uint32_t entries, ibv_comp_channel* channel, uint32_t vector,
          const CqOptions& options) {
  VerbsSession* session = SessionOf(context);
  if (entries < 1 || vector >= session->num_comp_vectors) return Fail(EINVAL);
  roci_abi_create_cq_request request = {};
  request.channel = ROCI_ABI_NO_HANDLE;
  if (channel != nullptr && !FindChannel(session, channel->fd, &request.channel)) {
    return Fail(EINVAL);
  }
  auto* cq = AllocateIn<Cq>(options.domain, DomainMemory::kCompletionQueue);
  if (cq == nullptr) return nullptr;
  if (options.single_threaded) cq->lock.DisableLocking();
  cq->session = session;
  cq->vcq.cq.context = context;
  request.user_handle = reinterpret_cast<uintptr_t>(&cq->vcq.cq);
  request.entries = entries;
  request.comp_vector = vector;
  request.flags = options.ignore_overrun ? ROCI_ABI_CQ_IGNORE_OVERRUN : 0;
  const int error = Create(cq, request);
  if (error != 0) {
    FreeIn(cq, DomainMemory::kCompletionQueue);
    return Fail(error);
  }
  return cq;
}

}  // namespace

ibv_cq* CreateCq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector) {
  if (entries < 1 || vector < 0) return Fail(EINVAL);
  Cq* cq =
      NewCq(context, static_cast<uint32_t>(entries), channel, static_cast<uint32_t>(vector), {});
  return cq != nullptr ? &cq->vcq.cq : nullptr;
}

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kServed = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr uint32_t kServedFlags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
  if ((attr->comp_mask & ~kServed) != 0 || (flags & ~kServedFlags) != 0 ||
      (attr->wc_flags & ~kExtendedFields) != 0) {
    return Fail(EOPNOTSUPP);
  }
  if (attr->cqe > INT32_MAX) return Fail(EINVAL);
  CqOptions options;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    options.domain = attr->parent_domain;
    const Pd* domain = ParentDomainOf(options.domain);
    if (domain == nullptr || domain->pd.context != context) return Fail(EINVAL);
  }
  options.single_threaded =
      (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0 || IsSingleThreaded(options.domain);
  options.ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
  Cq* cq = NewCq(context, attr->cqe, attr->channel, attr->comp_vector, options);
  if (cq == nullptr) return nullptr;
  EnableExtendedPoll(cq, attr->wc_flags);
  return &cq->vcq.cq_ex;
}

namespace {

// Whether a ring for `entries` can be mapped here: 0 or an errno.
int CheckRoomForRing(const Cq* cq, uint32_t entries) {
  const uint64_t capacity = std::bit_ceil(uint64_t{entries});
  return SharedMapping::CheckRoom(cq->session->wake_file.fd(),
                                  sizeof(roci_abi_cq) + capacity * sizeof(roci_abi_cqe));
}

}  // namespace

int ResizeCq(ibv_cq* ibcq, int entries) {
  Cq* cq = ToCq(ibcq);
  if (entries < 1) return EINVAL;
  if (!cq->session->alive()) return EIO;
  roci_abi_resize_cq_request request = {};
  roci_abi_resize_cq_response response = {};
  ReceivedFds fds;
  request.handle = ibcq->handle;
  request.entries = static_cast<uint32_t>(entries);
  // The daemon cannot take the change back.
  const int lack = CheckRoomForRing(cq, request.entries);
  if (lack != 0) return lack;
  // Polls wait for the lock until the entries are in the new ring.
  const SpinGuard guard(cq->lock);
  const SpinGuard arm_guard(cq->arm_lock);
  request.consumer = cq->ring.consumer;
  int error = cq->session->client.Call(ROCI_ABI_RESIZE_CQ, &request, &response, nullptr, &fds);
  if (error != 0 && response.memory_size == 0) return error;
  SharedMapping old = cq->memory;
  if (error == 0) {
    error = MapRing(fds.at(0), {response.memory_size, response.capacity, response.entries_offset},
                    &cq->memory, &cq->ring);
  }
  if (error != 0) {
    // The daemon uses the new ring, which this process cannot map: the session has to end. Another
    // thread has taken the descriptor or the address space that was free before.
    cq->session->client.MarkDead();
    return error;
  }
  old.Unmap();
  ibcq->cqe = static_cast<int>(response.entries);
  return 0;
}

int ModifyCq(ibv_cq* ibcq, ibv_modify_cq_attr* attr) {
  if ((attr->attr_mask & ~uint32_t{IBV_CQ_ATTR_MODERATE}) != 0) return EOPNOTSUPP;
  if (attr->attr_mask == 0) return 0;
  roci_abi_modify_cq_request request = {};
  roci_abi_plain_response response = {};
  request.handle = ibcq->handle;
  request.count = attr->moderate.cq_count;
  request.period_us = attr->moderate.cq_period;
  return ToCq(ibcq)->session->client.Call(ROCI_ABI_MODIFY_CQ, &request, &response);
}

namespace {

// Sets how many events the program has to acknowledge.
int DestroyWithEvents(Cq* cq, uint32_t* comp_events, uint32_t* async_events) {
  ibv_cq* ibcq = &cq->vcq.cq;
  EventRemoval removal(cq->session);
  roci_abi_destroy_response response = {};
  const int error = Destroy(cq->session, ibcq->handle, &response);
  if (error != 0) return error;
  *comp_events = removal.RemoveCompletionEvents(ibcq, response.comp_events);
  *async_events = removal.RemoveAsyncEvents(ibcq, response.async_events);
  return 0;
}

}  // namespace

int DestroyCq(ibv_cq* ibcq) {
  Cq* cq = ToCq(ibcq);
  uint32_t comp_events = 0;
  uint32_t async_events = 0;
  const int error = DestroyWithEvents(cq, &comp_events, &async_events);
  if (!IsGone(cq->session, error)) return error;
  if (error == 0) AwaitCqAcknowledgements(ibcq, comp_events, async_events);
  UnmapOwn(cq->session, &cq->memory);
  FreeIn(cq, DomainMemory::kCompletionQueue);
  return 0;
}

int ReqNotifyCq(ibv_cq* ibcq, int solicited_only) {
  Cq* cq = ToCq(ibcq);
  if (!cq->session->alive()) return EIO;
  if (ibcq->handle != cq->handle) return EINVAL;  // not a CQ (IBTA vol 1, 11.4.2.2)
  if (ibcq->channel == nullptr) return 0;         // as with adapters: no thread reads the event
  const SpinGuard guard(cq->arm_lock);
  cq->ring.RequestNotification(solicited_only != 0);
  return 0;
}

}  // namespace roci::provider
