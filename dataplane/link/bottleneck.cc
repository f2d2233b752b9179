#include "dataplane/link/bottleneck.h"

#include <algorithm>

#include "roce/work.h"

namespace roci::dataplane {
namespace {

constexpr uint64_t kNever = UINT64_MAX;

}  // namespace

Bottleneck::Bottleneck(const BottleneckSettings& settings)
    : rate_bps_(settings.rate_bps),
      queue_ticks_(TicksOf(settings.queue_bytes)),
      ecn_ticks_(settings.ecn_bytes == 0 ? kNever : TicksOf(settings.ecn_bytes)),
      ecn_all_ticks_(settings.ecn_bytes == 0 ? kNever : TicksOf(settings.ecn_all_bytes)) {}

// Rounded up, so that the rate is never exceeded. In floating point, because the product of a long
// queue exceeds 64 bits; the error is less than a tick per frame.
uint64_t Bottleneck::TicksOf(uint64_t bytes) const {
  constexpr double kMostTicks = 1e18;
  constexpr double kTicksPerS = double{roce::kNsPerSecond} * double{kTicksPerNs};
  const double ticks = static_cast<double>(bytes * 8) * kTicksPerS / static_cast<double>(rate_bps_);
  return static_cast<uint64_t>(std::min(ticks, kMostTicks)) + 1;
}

Chance Bottleneck::ChanceOfMark(uint64_t backlog_ticks) const {
  if (backlog_ticks < ecn_ticks_) [[likely]]
    return 0;
  if (backlog_ticks >= ecn_all_ticks_) return kAlways;
  const double part = static_cast<double>(backlog_ticks - ecn_ticks_) /
                      static_cast<double>(ecn_all_ticks_ - ecn_ticks_);
  return static_cast<Chance>(part * double{BottleneckSettings::kMostMarked});
}

Bottleneck::Passage Bottleneck::Enter(uint32_t frame_bytes, uint32_t copies, uint64_t now_ns) {
  const uint64_t on_wire = std::max(frame_bytes + kOverheadBytes, kLeastWireBytes);
  const uint64_t takes = TicksOf(on_wire * copies);
  const uint64_t now = now_ns * kTicksPerNs;
  uint64_t free_at = free_at_.load(std::memory_order_relaxed);
  uint64_t begins;
  do {
    begins = std::max(free_at, now);
    if (begins != now && begins - now + takes > queue_ticks_) return {};
  } while (!free_at_.compare_exchange_weak(free_at, begins + takes, std::memory_order_relaxed));
  const uint64_t leaves = begins + takes - now;
  return {.fits = true,
          .waits = begins != now,
          .marked = ChanceOfMark(begins - now),
          .leaves_ns = (leaves + kTicksPerNs - 1) / kTicksPerNs};
}

}  // namespace roci::dataplane
