// Port descriptors that wake an lcore: they are in its epoll set. Interrupts of ports are enabled
// only while the lcore sleeps.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/port/rx_wait.h"

namespace roci::dataplane {

class DeviceLane;

// On the lcore, or in its place.
class PortWaits {
 public:
  // `epoll_fd` is the lcore's. The data of the events of a port points to its lane; other events of
  // the set have none.
  explicit PortWaits(int epoll_fd) : epoll_fd_(epoll_fd) {}

  void Add(const OnShard& shard, DeviceLane& lane);
  // The port may close its descriptors afterwards.
  void Remove(const OnShard&, DeviceLane& lane);

  // Whether some port must be polled at intervals: its driver has no descriptor, its interrupts
  // have not been seen yet, or it cannot be trusted now.
  bool MustPoll(const OnShard&) const { return polled_ != 0; }

  // Enables the interrupts of all ports. False: they were disabled, so the caller looks at the
  // ports once more before it sleeps: frames that came before cause no interrupt.
  bool Enable(const OnShard& shard, uint64_t now_ns);
  void Disable(const OnShard& shard);
  bool are_enabled(const OnShard&) const { return enabled_; }
  // A port was added while the interrupts were enabled.
  bool MissesEnabling(const OnShard&) const { return misses_enabling_; }

  // The lcore was woken by the descriptor of `lane`.
  void NoteEvent(const OnShard&, const DeviceLane& lane);
  // The lcore has slept, which `ended` it, and its next round has received `frames`.
  enum class Ended : uint8_t { kByPort, kByTime, kByOther };
  void Judge(const OnShard&, Ended ended, uint64_t frames, uint64_t now_ns);

 private:
  struct Port {
    DeviceLane* lane;
    std::vector<RxWait> waits{};  // empty: it must be polled, or this lcore reads no queue of it
    bool is_polled = false;       // its driver offers nothing to wait for, or that never fires
    bool is_proven = true;        // no interrupts, or one has come
    uint32_t unheard = 0;         // sleeps that ended by time with frames, before it was proven
    bool woke = false;            // since the last Judge
    uint32_t empty_wakes = 0;     // without a frame, one after the other
    uint64_t distrusted_until_ns = 0;  // 0: it is trusted
  };
  static bool IsPolled(const Port& port);
  void NotePolled(Port& port);
  bool Watch(const Port& port) const;
  void Unwatch(const Port& port) const;
  void Poll(Port& port);
  void Distrust(Port& port, uint64_t until_ns);
  void TrustAgain(uint64_t now_ns);

  const int epoll_fd_;
  std::vector<Port> ports_;
  uint32_t polled_ = 0;      // ports that must be polled now
  uint32_t distrusted_ = 0;  // of these: until a time
  uint32_t missed_ = 0;      // sleeps that ended by time although frames had come
  bool has_interrupts_ = false;
  bool enabled_ = false;
  bool misses_enabling_ = false;
};

}  // namespace roci::dataplane
