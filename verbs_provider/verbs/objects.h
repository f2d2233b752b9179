// The plugin's half of every verbs object, and the way back from libibverbs' half.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs_provider/base/held_file.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/shared_mapping.h"
#include "verbs_provider/base/spin_lock.h"
#include "verbs_provider/memory/convert.h"
#include "verbs_provider/rings/completion_ring.h"
#include "verbs_provider/rings/recv_queue.h"
#include "verbs_provider/rings/send_queue.h"
#include "verbs_provider/rings/shared_recv_queue.h"
#include "verbs_provider/rings/tag_ops.h"
#include "verbs_provider/session/session.h"
#include "verbs_provider/verbs/send_builder.h"

namespace roci::provider {

struct Td;

struct Device {
  verbs_device vdev;  // first
  char socket_path[4096];
  HeldFile socket;  // as it was found, O_PATH; fixed but for its end
  Device* next;     // of those that libibverbs knows
};

/// Allocated by libibverbs (calloc).
struct Context {
  verbs_context vctx;  // first
  std::atomic<Session*> session;
  Context* next;  // on the list of contexts
};

/// In a forked child: a session of the child's own that shares the context with its parent's
/// (context.cc). The inherited one, which answers EIO, where it cannot be had.
Session* SessionOfChild(Context* context);

/// A protection domain, or a parent domain, which is one with two notes for the provider: a thread
/// domain, whose objects need no locks, and where to take memory from (domain.h).
struct Pd {
  ibv_pd pd;                       // first
  Pd* parent;                      // null for a protection domain
  Td* td;                          // of a parent domain, may be null
  std::atomic<uint32_t> users{0};  // parent domains; what was made with a parent domain
  void* (*allocate)(ibv_pd*, void*, size_t, size_t, uint64_t);
  void (*release)(ibv_pd*, void*, void*, uint64_t);
  void* app_context;  // for both
};

struct Td {
  ibv_td td;  // first
  std::atomic<uint32_t> users{0};
};

/// Where the memory of an object comes from (domain.h).
struct Home {
  Pd* domain = nullptr;  // the parent domain it was made in, or null
  bool from_app = false;
};

struct Mr {
  verbs_mr vmr;  // first
  ConvertedRanges held;
  uint64_t iova;
  bool may_copy;  // posts may read the memory themselves
  Mr* next;       // of the session's regions
  Mr** link;      // what points to this one there
};

struct Dm {
  ibv_dm dm;             // first
  Session* session;      // in which it is mapped
  SharedMapping memory;  // empty where it is imported
  std::byte* data;
  uint64_t length;  // bytes, as asked for
  bool imported;
  Dm* next;  // of the session's
};

struct Ah {
  ibv_ah ah;         // first
  Session* session;  // whose number the handle is
};

struct Cq {
  verbs_cq vcq;  // first
  Session* session;
  Home home;
  uint32_t handle;  // as in `vcq`, which the app can write
  SharedMapping memory;
  SpinLock lock;
  CompletionRing ring;  // under `lock`; where it is, under `arm_lock` too
  SpinLock arm_lock;    // behind `lock`. A program may ask for an event while it polls
  // Between start_poll and end_poll, which hold `lock` from one to the other.
  const roci_abi_cqe* current;
  uint64_t wall_offset;  // ns from CLOCK_MONOTONIC to CLOCK_REALTIME, as last used
  uint32_t polled;       // index behind `current`
};

struct Srq {
  verbs_srq vsrq;  // first
  Session* session;
  SharedMapping memory;
  SharedRecvQueue queue;
  // Tag matching only.
  SharedMapping tag_memory;
  TagOps tags;
};

/// `sq` and `rq` of a receiving XRC queue pair, and `rq` of one with a shared receive queue, take
/// nothing.
struct Qp {
  verbs_qp vqp;  // first
  Session* session;
  Home home;
  SharedMapping memory;
  /// What a post answers before it looks at the request: 0, or EINVAL in states that take none.
  std::atomic<int> send_refusal{EINVAL};
  std::atomic<int> recv_refusal{EINVAL};
  int sq_sig_all;
  ibv_qp_cap cap;  // granted
  SendQueue sq;
  RecvQueue rq;
  SendBuilder builder;  // under sq.lock
};

inline Device* ToDevice(ibv_device* device) { return reinterpret_cast<Device*>(device); }
inline Context* ToContext(ibv_context* context) {
  // verbs_context ends with the ibv_context.
  return reinterpret_cast<Context*>(reinterpret_cast<std::byte*>(context) -
                                    offsetof(verbs_context, context));
}
/// For calls that make or ask something.
inline Session* SessionOf(ibv_context* ibcontext) {
  Context* context = ToContext(ibcontext);
  Session* session = context->session.load(std::memory_order_acquire);
  return session->inherited() ? SessionOfChild(context) : session;
}
/// For calls that take something down: a child that only cleans up what it has inherited needs
/// nobody for that.
inline Session* PresentSessionOf(ibv_context* context) {
  return ToContext(context)->session.load(std::memory_order_acquire);
}
inline Mr* ToMr(verbs_mr* vmr) { return reinterpret_cast<Mr*>(vmr); }
inline Cq* ToCq(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
inline Srq* ToSrq(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }
inline verbs_xrcd* ToXrcd(ibv_xrcd* xrcd) { return reinterpret_cast<verbs_xrcd*>(xrcd); }
inline Qp* ToQp(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }

/// Sets errno and gives the null pointer that a failed creation returns.
inline std::nullptr_t Fail(int error) {
  errno = error;
  return nullptr;
}

/// Unmaps what the daemon shared, where this process still has it.
inline void UnmapOwn(const Session* session, SharedMapping* memory) {
  if (!session->inherited()) memory->Unmap();
}

/// Whether an object whose destruction the daemon answered with `error` may be freed: yes, too, if
/// there is no daemon (or this is a forked child) and nobody else will ever use it.
inline bool IsGone(const Session* session, int error) { return error == 0 || !session->alive(); }

}  // namespace roci::provider
