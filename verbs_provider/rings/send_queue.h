// The app's half of a send queue ring: judges work requests and writes them into slots.
// Sans libibverbs calls: it needs the ring's memory and nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/base/prefetch.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/spin_lock.h"
#include "verbs_provider/memory/mr_keys.h"
#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

/// Which operations a type of QP has: a bit per enum ibv_wr_opcode.
struct SendOpcodes {
  uint32_t served = 0;
  /// Operations that the type has in the IBTA's tables but this device has not: EOPNOTSUPP instead
  /// of EINVAL.
  uint32_t not_served = 0;
};
SendOpcodes SendOpcodesOf(ibv_qp_type type);

/// Flags of ibv_post_send that a type of QP has and that go into the slot. `fills_checksums`: the
/// daemon knows IBV_SEND_IP_CSUM.
unsigned SlotFlagsOf(ibv_qp_type type, bool fills_checksums);

struct SendQueue {
  // Fixed at creation.
  roci_abi_queue* shared = nullptr;
  std::byte* slots = nullptr;
  const MrKeys* keys = nullptr;
  Doorbells bells;
  uint32_t handle = 0;       // of the QP
  uint32_t mask = 0;         // slots - 1
  uint32_t stride = 0;       // bytes
  uint32_t limit = 0;        // entries that may be outstanding, <= slots
  uint32_t max_sge = 0;      // fit in a slot
  uint32_t max_inline = 0;   // bytes, fit in a slot
  uint32_t auto_inline = 0;  // bytes up to which SENDs and WRITEs are copied unasked, fit in a slot
  uint32_t pd = 0;
  SendOpcodes opcodes;
  uint32_t slot_flags = 0;  // see SlotFlagsOf
  bool is_datagram = false;
  bool may_restart = false;

  alignas(64) SpinLock lock;
  uint32_t head = 0;      // index of the next entry; under the lock
  uint32_t restarts = 0;  // under the lock

  /// Entries that the app may write over. Stored by whoever polls the CQ, under the CQ's lock.
  alignas(64) std::atomic<uint32_t> tail{0};

  static constexpr uint32_t kPrefetchAhead = 4;
  void PrefetchSlot(uint32_t index) const {
    PrefetchForWrite(Slot(index));
    PrefetchForWrite(Slot(index) + 64);
  }
  std::byte* Slot(uint32_t index) const {
    return slots + static_cast<size_t>(index & mask) * stride;
  }
  /// Everything posted is completed: the next entry goes to the first slot again, which is still in
  /// the caches where the queue pair is used now and then. Under the lock. Counts with the next
  /// Publish.
  void RestartIfEmpty() {
    if (tail.load(std::memory_order_acquire) != head || (head & mask) == 0 || !may_restart) return;
    head = (head + mask) & ~mask;
    // Nothing is outstanding, so that nobody else stores it.
    tail.store(head, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(shared->start).store(head, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(shared->restarts).store(++restarts, std::memory_order_relaxed);
  }
  /// The lines of the header that a post will touch, which are cold where there are thousands of
  /// queues.
  void PrefetchHeader() const {
    PrefetchForWrite(&shared->producer);
    __builtin_prefetch(&shared->armed);
  }
  /// The first lines of the next slot, and of one that will be written soon: the daemon's processor
  /// has read them, and a store that waits for them holds up every store after it. Under the lock.
  void PrefetchSlots() const {
    PrefetchSlot(head);
    PrefetchSlot(head + kPrefetchAhead);
  }
  bool IsFull(uint32_t index) const {
    return index - tail.load(std::memory_order_acquire) >= limit;
  }
};

/// Writes `wr` as entry `index`, which the daemon does not see yet. 0, ENOMEM (queue full), EINVAL
/// or EOPNOTSUPP as ibv_post_send(3).
int WriteSend(SendQueue& queue, uint32_t index, const ibv_send_wr& wr);

/// ibv_post_send: the entries before the first bad one are posted, `*bad` is that one.
int PostSendList(SendQueue& queue, ibv_send_wr* list, ibv_send_wr** bad);

}  // namespace roci::provider
