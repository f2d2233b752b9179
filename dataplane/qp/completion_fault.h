// An exact fault of completions of a device: what becomes of a work request that has succeeded.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/types/completion_fault_settings.h"

namespace roci::dataplane {

struct CompletionFault {
  // `now_ns`: in the lcores' time.
  CompletionFault(uint32_t number, const CompletionFaultSettings& asked, uint64_t now_ns)
      : id(number),
        settings(asked),
        named(asked.qpns.size()),
        began_ns(now_ns),
        choice(settings.queue_pair) {
    for (size_t i = 0; i < named.size(); ++i) named[i] = asked.qpns[i].value();
  }

  // Any lcore. Whether this completion, which is a success so far, is hit. `raises_event`: its
  // program waits for an event that it raises.
  bool Hits(roce::Qpn qpn, const QueuePairOrigin& origin, roce::CompletionOpcode opcode,
            bool raises_event, uint64_t now_ns) {
    const uint64_t age_ns = now_ns > began_ns ? now_ns - began_ns : 0;
    return settings.opcodes.test(static_cast<size_t>(opcode)) && settings.when.IsInTime(age_ns) &&
           (named.empty() || Names(qpn)) && choice.Takes(&origin) &&
           (raises_event || !settings.loses_event) && settings.when.Count(matched, hit);
  }

  bool Names(roce::Qpn qpn) const {
    return std::ranges::any_of(named, [qpn](const std::atomic<uint32_t>& each) {
      return each.load(std::memory_order_relaxed) == qpn.value();
    });
  }
  // Control thread: a queue pair is gone, and its number may be used again. True: it was the last
  // one that the fault names.
  bool Forget(roce::Qpn qpn) {
    if (!Names(qpn)) return false;
    for (std::atomic<uint32_t>& each : named) {
      if (each == qpn.value()) each = kGone;
    }
    return std::ranges::all_of(named, [](const auto& each) { return each == kGone; });
  }

  static constexpr uint32_t kGone = UINT32_MAX;
  const uint32_t id;
  const CompletionFaultSettings settings;
  std::vector<std::atomic<uint32_t>> named;  // the queue pairs of the settings, or kGone
  const uint64_t began_ns;
  QueuePairChoice choice;
  std::atomic<uint64_t> matched{0};
  std::atomic<uint64_t> hit{0};
};

}  // namespace roci::dataplane
