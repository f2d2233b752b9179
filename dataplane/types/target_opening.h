// A program's handle for an XRC receive queue pair.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::dataplane {

class VerbsContext;

// Every opening gets the queue pair's events.
struct TargetOpening {
  VerbsContext* context;
  uint64_t user_handle;
  std::atomic<uint32_t> async_events{0};  // sent so far
};

}  // namespace roci::dataplane
