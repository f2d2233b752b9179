// A completion queue's move to a ring of another size, between its parts.
#pragma once

#include <cstdint>

#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {

struct CompletionQueueMove {
  SharedMemory ring;  // the new one; after the move, the old one
  Fd fd;              // of the new ring, for the program
  uint32_t capacity;  // of the new ring
  uint32_t consumer;  // index of the first unconsumed entry
  uint32_t copied;    // entries that are in the new ring
  uint32_t visible;   // unconsumed entries that the control thread may copy
};

}  // namespace roci::dataplane
