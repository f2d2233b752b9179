// The program's half of a completion queue ring. Calls nothing in libibverbs.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

/// Status of an entry of a destroyed or reset QP; polling skips the entry. Not a value of
/// ibv_wc_status; only the plugin writes it.
inline constexpr uint8_t kSkippedStatus = 0xFF;

/// Callers hold the CQ's lock.
struct CompletionRing {
  roci_abi_cq* shared = nullptr;
  roci_abi_cqe* entries = nullptr;
  uint32_t mask = 0;      // capacity - 1
  uint32_t shift = 0;     // log2(capacity)
  uint32_t consumer = 0;  // free-running

  /// Sets the ring's memory, and the consumer index to 0. `capacity` is a power of two.
  void Use(roci_abi_cq* header, roci_abi_cqe* first, uint32_t capacity) {
    shared = header;
    entries = first;
    mask = capacity - 1;
    shift = static_cast<uint32_t>(__builtin_ctz(capacity));
    consumer = 0;
  }

  /// Entry `index` if the daemon has written it, else null. The entry is valid until a larger
  /// consumer index is published.
  roci_abi_cqe* At(uint32_t index) const {
    roci_abi_cqe* entry = &entries[index & mask];
    const uint32_t generation =
        std::atomic_ref<uint32_t>(entry->generation).load(std::memory_order_acquire);
    return generation == (index >> shift) + 1 ? entry : nullptr;
  }

  void PublishConsumer(uint32_t index) {
    consumer = index;
    std::atomic_ref<uint32_t>(shared->consumer).store(index, std::memory_order_release);
  }

  /// Makes polling skip every entry for which `matches(entry)` is true. Calls `before_skip(entry)`
  /// for each.
  template <class Predicate, class Visit>
  void SkipEntries(Predicate&& matches, Visit&& before_skip) {
    // At most one round: the daemon does not overwrite entries that were not consumed.
    for (uint32_t index = consumer; index - consumer <= mask; ++index) {
      roci_abi_cqe* entry = At(index);
      if (entry == nullptr) return;
      if (entry->status == kSkippedStatus || !matches(*entry)) continue;
      before_skip(*entry);
      entry->status = kSkippedStatus;
    }
  }

  /// ibv_req_notify_cq. A request for solicited completions does not replace a pending request for
  /// any completion (IBTA vol 1, 11.4.2.2).
  void RequestNotification(bool solicited_only);
};

/// Flags of an entry that ibv_wc has too, with equal values.
inline constexpr unsigned kCompletionFlags = IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_WITH_INV |
                                             IBV_WC_IP_CSUM_OK | IBV_WC_TM_SYNC_REQ |
                                             IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
static_assert(int{ROCI_ABI_CQE_IP_CHECKSUM_OK} == IBV_WC_IP_CSUM_OK &&
              int{ROCI_ABI_CQE_TAG_SYNC_REQUEST} == IBV_WC_TM_SYNC_REQ &&
              int{ROCI_ABI_CQE_TAG_MATCH} == IBV_WC_TM_MATCH &&
              int{ROCI_ABI_CQE_TAG_DATA_VALID} == IBV_WC_TM_DATA_VALID);

inline void FillCompletion(const roci_abi_cqe& entry, ibv_wc* wc) {
  wc->wr_id = entry.wr_id;
  wc->status = static_cast<ibv_wc_status>(entry.status);
  wc->opcode = static_cast<ibv_wc_opcode>(entry.opcode);
  wc->vendor_err = entry.vendor_error;
  wc->byte_len = entry.byte_length;
  wc->imm_data = entry.immediate;
  wc->qp_num = entry.qpn;
  wc->src_qp = entry.source_qpn;
  wc->wc_flags = entry.flags & kCompletionFlags;
  wc->pkey_index = entry.pkey_index;
  wc->slid = 0;
  wc->sl = entry.sl;
  wc->dlid_path_bits = 0;
}

}  // namespace roci::provider
