#include "dataplane/link/wire_time.h"

#include <rte_mbuf.h>

#include <cassert>

#include "roce/types.h"

namespace roci::dataplane {
namespace {

constexpr uint64_t kBpsPerMbps = 1'000'000;

// A queue in front of the link that never drops.
BottleneckSettings SettingsOf(uint32_t rate_mbps) {
  const uint64_t rate_bps = rate_mbps * kBpsPerMbps;
  return {.rate_bps = rate_bps, .queue_bytes = UINT32_MAX};
}

// Instead of the time of the arrival.
constexpr uint64_t kAtOnce = 0;

// rte_mbuf::hash as one number.
void SetArrival(rte_mbuf& frame, uint64_t time_ns) {
  frame.hash.fdir.lo = static_cast<uint32_t>(time_ns);
  frame.hash.fdir.hi = static_cast<uint32_t>(time_ns >> 32);
}
uint64_t ArrivalOf(const rte_mbuf& frame) {
  return uint64_t{frame.hash.fdir.hi} << 32 | frame.hash.fdir.lo;
}

}  // namespace

WireTime::WireTime(uint32_t rate_mbps, uint32_t frames)
    : link_(SettingsOf(rate_mbps)), departures_(frames), arrivals_(frames) {}

// Control threads live in real time, and what they do must not move the programs' packets.
bool WireTime::IsOfControl(const rte_mbuf& frame, LinkDirection direction) {
  return direction == LinkDirection::kOut ? frame.hash.usr == roce::kGsiQpn.value()
                                          : ArrivalOf(frame) == kAtOnce;
}

void WireTime::Depart(rte_mbuf* frame, uint8_t to, uint64_t now_ns) {
  const bool is_of_control = IsOfControl(*frame, LinkDirection::kOut);
  uint64_t left_ns = now_ns;
  if (!is_of_control) left_ns += link_.Enter(frame->pkt_len, 1, now_ns).leaves_ns;
  SetArrival(*frame, is_of_control ? kAtOnce : left_ns + kLatencyNs);
  const bool has_room = departures_.Push(frame, to, left_ns);
  assert(has_room);  // for all frames that there are
}

void WireTime::Arrive(rte_mbuf* frame) {
  const bool has_room = arrivals_.Push(frame, 0, ArrivalOf(*frame));
  assert(has_room);
}

rte_mbuf* WireTime::NextArrived(uint64_t now_ns) {
  uint8_t unused;
  return arrivals_.Pop(now_ns, &unused);
}

}  // namespace roci::dataplane
