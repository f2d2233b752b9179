// The plugin's half of a region of rocidv.h, shared by the files direct*.cc.
#pragma once

#include "verbs_provider/abi/list_mr.h"
#include "verbs_provider/include/infiniband/rocidv.h"
#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

struct ListMr {
  rocidv_mr mr;  // first
  VerbsSession* session;
  uint32_t handle;
  uint32_t count;  // runs of the last mapping; 0: none
  SharedMapping memory;
  roci_abi_sge* runs;
  bool has_signature;
  roci_abi_signature* signature;  // null without a signature
  roci_abi_sge* protection;
};

inline ListMr* ToListMr(rocidv_mr* mr) { return reinterpret_cast<ListMr*>(mr); }
inline const ListMr* ToListMr(const rocidv_mr* mr) { return reinterpret_cast<const ListMr*>(mr); }

inline constexpr uint64_t kMaxListBytes = uint64_t{1} << 46;

/// The sum of the lengths of `count` runs; `run(i)` returns run i. 0 if a run is empty.
template <class RunAt>
uint64_t BytesOf(uint32_t count, RunAt&& run) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const roci_abi_sge element = run(i);
    if (element.length == 0) return 0;
    total += element.length;
  }
  return total;
}

/// Whether a region may have `bytes` bytes from `iova` on.
inline bool IsRange(uint64_t iova, uint64_t bytes) {
  return bytes != 0 && bytes <= kMaxListBytes && iova + (bytes - 1) >= iova;
}

inline roci_abi_sge ToRun(const ibv_sge& sge) { return {sge.addr, sge.length, sge.lkey}; }

/// Creates a region, with or without a signature. Null with errno on failure.
ListMr* MakeListMr(ibv_pd* pd, uint32_t max_entries, bool has_signature,
                   uint32_t max_protection_entries);

/// direct_signatures.cc: the functions of rocidv.h with corresponding names.
rocidv_mr* AllocMrIntegrity(ibv_pd* pd, uint32_t max_entries, uint32_t max_protection_entries);
int MapMrSgIntegrity(rocidv_mr* mr, const ibv_sge* data, uint32_t data_count,
                     const ibv_sge* protection, uint32_t protection_count,
                     const rocidv_sig_attr* attr, uint64_t iova);
int CheckMrStatus(rocidv_mr* mr, rocidv_sig_error* error);

/// direct_flush.cc: likewise.
void WrFlush(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, size_t length, uint32_t type,
             uint32_t level);
int PostFlush(ibv_qp* qp, uint32_t rkey, uint64_t address, size_t length, uint32_t type,
              uint32_t level, uint64_t wr_id, unsigned send_flags);

}  // namespace roci::provider
