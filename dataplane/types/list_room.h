// The capacity of a list region.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/list_mr.h"

namespace roci::dataplane {

struct ListRoom {
  uint32_t max_runs = 0;
  uint32_t max_protection_runs = 0;
  bool has_signature = false;

  uint32_t all_runs() const { return max_runs + max_protection_runs; }
  // Size of its memory in bytes.
  size_t Bytes() const {
    return (has_signature ? sizeof(roci_abi_signature) : 0) +
           size_t{all_runs()} * sizeof(roci_abi_sge);
  }
};

}  // namespace roci::dataplane
