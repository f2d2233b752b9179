// The program's half of a send queue ring: checks work requests and writes them into slots. Calls
// nothing in libibverbs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/prefetch.h"
#include "verbs_provider/abi/rings.h"
#include "verbs_provider/abi/send_opcodes.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/spin_lock.h"
#include "verbs_provider/memory/mr_keys.h"
#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

/// Flags of ibv_post_send that a QP type supports and that are copied to the slot.
/// `fills_checksums`: the daemon supports IBV_SEND_IP_CSUM.
unsigned SlotFlagsOf(ibv_qp_type type, bool fills_checksums);

struct VerbsSession;

/// An address handle as the send path uses it.
struct AhHead {
  ibv_ah ah;              ///< first
  VerbsSession* session;  ///< to which the handle belongs
};

struct SendQueue {
  // Fixed at creation.
  roci_abi_queue* shared = nullptr;
  std::byte* slots = nullptr;
  const MrKeys* keys = nullptr;
  const VerbsSession* session = nullptr;  // of the QP
  Doorbells bells;
  uint32_t handle = 0;       // of the QP
  uint32_t mask = 0;         // slots - 1
  uint32_t stride = 0;       // bytes
  uint32_t limit = 0;        // most outstanding entries, <= slots
  uint32_t max_sge = 0;      // fit in a slot
  uint32_t max_inline = 0;   // bytes, fit in a slot
  uint32_t auto_inline = 0;  // bytes up to which TryCopy copies, fit in a slot
  uint32_t pd = 0;
  abi::SendOpcodesOfType opcodes;
  uint32_t slot_flags = 0;  // see SlotFlagsOf
  bool is_datagram = false;
  bool may_restart = false;

  alignas(ROCI_ABI_CACHE_LINE) SpinLock lock;
  uint32_t head = 0;      // index of the next entry; under the lock
  uint32_t restarts = 0;  // under the lock

  /// Entries before this index may be overwritten. Stored by poll, under the CQ's lock.
  alignas(ROCI_ABI_CACHE_LINE) std::atomic<uint32_t> tail{0};

  static constexpr uint32_t kPrefetchAhead = 4;
  void PrefetchSlot(uint32_t index) const {
    abi::PrefetchForWrite(Slot(index));
    abi::PrefetchForWrite(Slot(index) + ROCI_ABI_CACHE_LINE);
  }
  std::byte* Slot(uint32_t index) const {
    return slots + static_cast<size_t>(index & mask) * stride;
  }
  /// If all entries are completed, skips to the index of the first slot, which is still in the
  /// caches if the queue pair is rarely used. Called with the lock held. The next Publish makes it
  /// visible to the daemon.
  void RestartIfEmpty() {
    if (tail.load(std::memory_order_acquire) != head || (head & mask) == 0 || !may_restart) return;
    head = (head + mask) & ~mask;
    // No other thread stores `tail`, because no entry is outstanding.
    tail.store(head, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(shared->start).store(head, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(shared->restarts).store(++restarts, std::memory_order_relaxed);
  }
  /// Prefetches the header's lines that a post accesses; with thousands of queues they are cold.
  void PrefetchHeader() const {
    abi::PrefetchForWrite(&shared->producer);
    __builtin_prefetch(&shared->armed);
  }
  /// Prefetches the first lines of the next slot and of a later one. The daemon's processor has
  /// read them, and a store that misses the cache stalls the stores after it. Called with the lock
  /// held.
  void PrefetchSlots() const {
    PrefetchSlot(head);
    PrefetchSlot(head + kPrefetchAhead);
  }
  bool IsFull(uint32_t index) const {
    return index - tail.load(std::memory_order_acquire) >= limit;
  }
};

/// Writes `wr` as entry `index`, which is not published yet. 0, ENOMEM (queue full), EINVAL or
/// EOPNOTSUPP as ibv_post_send(3).
int WriteSend(SendQueue& queue, uint32_t index, const ibv_send_wr& wr);

/// ibv_post_send. On an error `*bad` is the first bad request; the requests before it are posted.
int PostSendList(SendQueue& queue, ibv_send_wr* list, ibv_send_wr** bad);

}  // namespace roci::provider
