// An exact fault of completions of a device: a work request that has succeeded completes with an
// error, and its queue pair goes to ERR.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "dataplane/types/completion_fault_settings.h"

namespace roci::dataplane {

struct CompletionFault {
  // `now_ns`: in the lcores' time.
  CompletionFault(uint32_t number, const CompletionFaultSettings& asked, uint64_t now_ns)
      : id(number), settings(asked), began_ns(now_ns) {}

  // Any lcore. Whether this completion, which is a success so far, is hit.
  bool Hits(roce::Qpn qpn, roce::CompletionOpcode opcode, uint64_t now_ns) {
    const uint64_t age_ns = now_ns > began_ns ? now_ns - began_ns : 0;
    return settings.opcodes.test(static_cast<size_t>(opcode)) && settings.when.IsInTime(age_ns) &&
           (settings.qpns.empty() ||
            std::ranges::find(settings.qpns, qpn) != settings.qpns.end()) &&
           settings.when.Count(matched, hit);
  }

  const uint32_t id;
  const CompletionFaultSettings settings;
  const uint64_t began_ns;
  std::atomic<uint64_t> matched{0};
  std::atomic<uint64_t> hit{0};
};

}  // namespace roci::dataplane
