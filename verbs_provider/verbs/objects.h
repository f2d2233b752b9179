// The plugin's half of every verbs object, and conversions from libibverbs' half. Members marked
// "first" make a pointer to libibverbs' half a pointer to the object.
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

struct VerbsDevice {
  verbs_device vdev;  // first
  char socket_path[4096];
  HeldFile socket;    // an O_PATH descriptor of the socket, constant until UninitDevice
  VerbsDevice* next;  // on the list of devices
};

/// Allocated by libibverbs (calloc), after the other members of its verbs_context
/// (Generation::context_offset).
struct Context {
  ibv_context ibcontext;  // first
  std::atomic<VerbsSession*> session;
  Context* next;  // on the list of contexts
};

/// In a forked child: opens a session of its own that shares the context with the parent's
/// (context.cc). Returns the inherited session, which fails with EIO, if that is impossible.
VerbsSession* SessionOfChild(Context* context);

/// A protection domain, or a parent domain: a protection domain with an optional thread domain,
/// whose objects need no locks, and an optional allocator (domain.h).
struct Pd {
  ibv_pd pd;                           // first
  Pd* parent;                          // null for a protection domain
  Td* td;                              // of a parent domain; may be null
  std::atomic<uint32_t> ref_count{0};  // parent domains, or objects created with a parent domain
  void* (*allocate)(ibv_pd*, void*, size_t, size_t, uint64_t);
  void (*release)(ibv_pd*, void*, void*, uint64_t);
  void* app_context;  // argument of both
};

struct Td {
  ibv_td td;  // first
  std::atomic<uint32_t> ref_count{0};
};

/// Which allocator an object's memory is from (domain.h).
struct MemorySource {
  Pd* domain = nullptr;  // the parent domain with which the object was created, or null
  bool from_app = false;
};

struct Mr {
  verbs_mr vmr;  // first
  ConvertedRanges held;
  uint64_t iova;
  bool may_copy;  // posts may copy from the memory
  Mr* next;       // on the session's list of regions
  Mr** link;      // the pointer to this region on that list
};

struct Dm {
  ibv_dm dm;              // first
  VerbsSession* session;  // that mapped it
  SharedMapping memory;
  std::byte* data;
  uint64_t length;  // bytes, as allocated by the program
  bool imported;
  Dm* next;  // on the session's list
};

// `in_daemon` holds a copy of the handle in `ah`, which the program can overwrite.
struct Ah : AhHead {
  AhKey key;
  ParkedAhs::Parked in_daemon;
};

struct Cq {
  verbs_cq vcq;  // first
  VerbsSession* session;
  MemorySource source;
  uint32_t handle;  // copy of the handle in `vcq`, which the program can overwrite
  SharedMapping memory;
  SpinLock lock;
  CompletionRing ring;  // under `lock`; its memory changes under `lock` and `arm_lock`
  // For requests of an event, which a program may make between start_poll and end_poll. Lock order:
  // `lock` before `arm_lock`.
  SpinLock arm_lock;
  // Valid between start_poll and end_poll, which hold `lock` meanwhile.
  const roci_abi_cqe* current;
  uint64_t wall_offset;  // ns from CLOCK_MONOTONIC to CLOCK_REALTIME, as last used
  uint32_t polled;       // index of the entry after `current`
};

struct Srq {
  verbs_srq vsrq;  // first
  VerbsSession* session;
  SharedMapping memory;
  SharedRecvQueue queue;
  // Tag matching only.
  SharedMapping tag_memory;
  TagOps tags;
};

inline constexpr int kDropPosts = -1;
/// Return value of a refused post; kDropPosts: 0, without any effect.
inline int PostResult(int refusal) { return refusal == kDropPosts ? 0 : refusal; }

/// `sq` and `rq` of an XRC target queue pair, and `rq` of a queue pair with a shared receive queue,
/// accept no requests.
struct Qp {
  static constexpr uint32_t kEceNotSet = UINT32_MAX;
  verbs_qp vqp;  // first
  VerbsSession* session;
  MemorySource source;
  SharedMapping memory;
  /// 0 if the QP's state accepts posts, else the error that every post returns: EINVAL, or
  /// kDropPosts, for a post that does nothing and returns 0.
  std::atomic<int> send_refusal{EINVAL};
  std::atomic<int> recv_refusal{EINVAL};
  /// Options that ibv_set_ece has set since the last RESET, among those that the device offers.
  std::atomic<uint32_t> ece_options{kEceNotSet};
  int sq_sig_all;
  ibv_qp_cap cap;  // granted
  SendQueue sq;
  RecvQueue rq;
  SendBuilder builder;  // under sq.lock
};

inline VerbsDevice* ToDevice(ibv_device* device) { return reinterpret_cast<VerbsDevice*>(device); }
inline Context* ToContext(ibv_context* context) { return reinterpret_cast<Context*>(context); }
/// The session for calls that create or query objects. A forked child gets its own.
inline VerbsSession* SessionOf(ibv_context* ibcontext) {
  Context* context = ToContext(ibcontext);
  VerbsSession* session = context->session.load(std::memory_order_acquire);
  return session->inherited() ? SessionOfChild(context) : session;
}
/// The session for calls that destroy objects: does not open a new session in a forked child that
/// only cleans up.
inline VerbsSession* PresentSessionOf(ibv_context* context) {
  return ToContext(context)->session.load(std::memory_order_acquire);
}
inline Mr* ToMr(verbs_mr* vmr) { return reinterpret_cast<Mr*>(vmr); }
inline Cq* ToCq(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
inline Srq* ToSrq(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }
inline verbs_xrcd* ToXrcd(ibv_xrcd* xrcd) { return reinterpret_cast<verbs_xrcd*>(xrcd); }
inline Qp* ToQp(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }

/// Sets errno and returns null, for a failed creation.
inline std::nullptr_t Fail(int error) {
  errno = error;
  return nullptr;
}

/// Unmaps the daemon's memory, unless this is a forked child, which does not have the mapping.
inline void UnmapOwn(const VerbsSession* session, SharedMapping* memory) {
  if (!session->inherited()) memory->Unmap();
}

/// Whether the plugin may free an object after the daemon has answered its destruction with
/// `error`: on success, and also if the session has ended or is inherited.
inline bool IsGone(const VerbsSession* session, int error) {
  return error == 0 || !session->alive();
}

}  // namespace roci::provider
