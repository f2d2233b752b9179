// Timing of a device's end of the built-in wire in virtual time: frames leave one after the other
// at the device's rate, and arrive some time after they have left.
#pragma once

#include <cstdint>

#include "dataplane/link/bottleneck.h"
#include "dataplane/link/delay_queue.h"
#include "dataplane/types/frame_filter.h"

struct rte_mbuf;

namespace roci::dataplane {

// Of the only lane of a device. A leaving frame carries the time of its arrival in
// `rte_mbuf::hash`, which copies of it carry, too. On the shard.
class WireTime {
 public:
  static constexpr uint64_t kLatencyNs = 1'000;

  // No end holds more than `frames`.
  WireTime(uint32_t rate_mbps, uint32_t frames);

  // Whether a frame, before it departs or after it has arrived, is of a control thread. It takes no
  // time.
  static bool IsOfControl(const rte_mbuf& frame, LinkDirection direction);

  // Takes ownership of a frame to send.
  void Depart(rte_mbuf* frame, uint8_t to, uint64_t now_ns);
  // The next frame that has left, or null.
  rte_mbuf* NextDeparted(uint64_t now_ns, uint8_t* to) { return departures_.Pop(now_ns, to); }
  // Takes ownership of a frame that another end has sent.
  void Arrive(rte_mbuf* frame);
  // The next frame that has arrived, or null.
  rte_mbuf* NextArrived(uint64_t now_ns);

  uint64_t next_departure() const { return departures_.next_due(); }
  uint64_t next_arrival() const { return arrivals_.next_due(); }

 private:
  Bottleneck link_;
  DelayQueue departures_;
  DelayQueue arrivals_;
};

}  // namespace roci::dataplane
