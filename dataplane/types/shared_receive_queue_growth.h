// A shared receive queue's move to larger memory, between its parts.
#pragma once

#include <cstddef>

#include "dataplane/base/shared_memory.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

struct SharedReceiveQueueGrowth {
  SharedMemory memory;  // the new one; after the move, the old one
  Fd fd;                // of the new memory, for the program
  roci_abi_srq_layout layout;
  size_t copied;  // bytes of the slots that are in the new memory
};

}  // namespace roci::dataplane
