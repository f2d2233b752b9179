// The plugin's half of every verbs object, and the way back from libibverbs' half.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs_provider/completion_ring.h"
#include "verbs_provider/convert.h"
#include "verbs_provider/provider_api.h"
#include "verbs_provider/recv_queue.h"
#include "verbs_provider/send_builder.h"
#include "verbs_provider/send_queue.h"
#include "verbs_provider/session.h"
#include "verbs_provider/shared_mapping.h"
#include "verbs_provider/spin_lock.h"

namespace roci::provider {

struct Td;

struct Device {
  verbs_device vdev;  // first
  char socket_path[4096];
};

/// Allocated by libibverbs (calloc).
struct Context {
  verbs_context vctx;  // first
  Session* session;
  Context* next;  // on the list of contexts
};

/// A protection domain, or a parent domain, which is one with a note for the provider. (The note, a
/// thread domain, allows to leave out locks; they cost too little here for that.)
struct Pd {
  ibv_pd pd;                          // first
  Pd* parent;                         // null for a protection domain
  Td* td;                             // of a parent domain, may be null
  std::atomic<uint32_t> children{0};  // parent domains
};

struct Td {
  ibv_td td;  // first
  std::atomic<uint32_t> users{0};
};

struct Mr {
  verbs_mr vmr;  // first
  ConvertedRanges held;
  uint64_t iova;
  bool may_copy;  // posts may read the memory themselves
  Mr* next;       // of the session's regions
};

struct Ah {
  ibv_ah ah;  // first
};

struct Cq {
  verbs_cq vcq;  // first
  Session* session;
  SharedMapping memory;
  SpinLock lock;
  CompletionRing ring;  // under `lock`
  // Between start_poll and end_poll, which hold `lock` from one to the other.
  const roci_abi_cqe* current;
  uint32_t polled;  // index behind `current`
};

struct Qp {
  verbs_qp vqp;  // first
  Session* session;
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
inline Session* SessionOf(ibv_context* context) { return ToContext(context)->session; }
inline Mr* ToMr(verbs_mr* vmr) { return reinterpret_cast<Mr*>(vmr); }
inline Cq* ToCq(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
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
