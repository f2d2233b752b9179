// Completions of tagged buffers that end in an error.
#pragma once

#include <cstdint>

#include "roce/work.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

// Makes `entry` report `status` and no data.
inline void FailTagCompletion(roci_abi_cqe& entry, roce::CompletionStatus status) {
  entry.status = static_cast<uint8_t>(status);
  entry.flags &= static_cast<uint16_t>(~ROCI_ABI_CQE_TAG_DATA_VALID);
  entry.byte_length = 0;
}

}  // namespace roci::dataplane
