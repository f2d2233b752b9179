// Writes one receive work request into a slot of a receive queue or a shared receive queue.
#pragma once

#include <cerrno>
#include <cstddef>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

/// 0 or EINVAL (more than `max_sge` elements).
inline int WriteReceive(std::byte* slot, uint32_t max_sge, const ibv_recv_wr& wr) {
  // A negative num_sge becomes a large number.
  if (static_cast<uint32_t>(wr.num_sge) > max_sge) [[unlikely]] {
    return EINVAL;
  }
  auto* entry = reinterpret_cast<roci_abi_recv_wqe*>(slot);
  *entry = {wr.wr_id, static_cast<uint32_t>(wr.num_sge), 0};
  auto* out = reinterpret_cast<roci_abi_sge*>(entry + 1);
  for (int i = 0; i < wr.num_sge; ++i) {
    out[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  }
  return 0;
}

}  // namespace roci::provider
