#include "dataplane/shard/port_waits.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "dataplane/base/clock.h"
#include "dataplane/shard/device_lane.h"

namespace roci::dataplane {
namespace {

// A descriptor that wakes the lcore so often without a frame is not waited for during a second, so
// that a driver or peer that keeps it readable does not keep the lcore awake.
constexpr uint32_t kMostEmptyWakes = 64;
constexpr uint64_t kDistrustNs = kNsPerSecond;
// Sleeps that no descriptor ended although frames waited; after them, descriptors are not waited
// for any more. A single such frame may have come as the sleep ended.
constexpr uint32_t kMostMissed = 3;
// Some drivers enable interrupts that never come (DPDK 22.11 on e1000e). A port is polled until its
// first interrupt, and not waited for any more when frames came so often without one.
constexpr uint32_t kMostUnheard = 64;

bool IsInterrupt(const RxWait& wait) { return wait.is_interrupt; }

}  // namespace

void PortWaits::Add(const OnShard& shard, DeviceLane& lane) {
  if (!lane.HasPort()) return;
  std::optional<std::vector<RxWait>> waits = lane.RxWaits(shard);
  Port port{.lane = &lane};
  const bool offers_waits = waits.has_value();
  if (offers_waits) port.waits = *std::move(waits);
  port.is_proven = std::none_of(port.waits.begin(), port.waits.end(), IsInterrupt);
  has_interrupts_ |= !port.is_proven;
  misses_enabling_ = enabled_ && has_interrupts_;
  ports_.push_back(std::move(port));
  if (!offers_waits || !Watch(ports_.back())) {
    Poll(ports_.back());
  } else {
    NotePolled(ports_.back());
  }
}

void PortWaits::Remove(const OnShard&, DeviceLane& lane) {
  const auto port = std::find_if(ports_.begin(), ports_.end(),
                                 [&](const Port& each) { return each.lane == &lane; });
  if (port == ports_.end()) return;
  if (port->distrusted_until_ns != 0) --distrusted_;
  if (IsPolled(*port)) --polled_;
  Unwatch(*port);
  ports_.erase(port);
}

bool PortWaits::IsPolled(const Port& port) {
  return port.is_polled || !port.is_proven || port.distrusted_until_ns != 0;
}

void PortWaits::NotePolled(Port& port) {
  port.lane->SetPolled(IsPolled(port));
  polled_ = static_cast<uint32_t>(std::count_if(ports_.begin(), ports_.end(), IsPolled));
}

// No thread reads the descriptors of interrupts, so these are edge triggered.
bool PortWaits::Watch(const Port& port) const {
  for (const RxWait& wait : port.waits) {
    epoll_event event{};
    event.events = wait.is_interrupt ? EPOLLIN | EPOLLET : EPOLLIN;
    event.data.ptr = port.lane;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wait.fd, &event) != 0) return false;
  }
  return true;
}

void PortWaits::Unwatch(const Port& port) const {
  for (const RxWait& wait : port.waits) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, wait.fd, nullptr);
}

bool PortWaits::Enable(const OnShard& shard, uint64_t now_ns) {
  if (distrusted_ != 0) TrustAgain(now_ns);
  if (enabled_ && !misses_enabling_) return true;
  misses_enabling_ = false;
  enabled_ = true;
  if (!has_interrupts_) return true;
  for (const Port& port : ports_) {
    if (!port.waits.empty()) port.lane->SetRxInterrupts(shard, true);
  }
  // The next round reads the rings after it has enabled the interrupts.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return false;
}

void PortWaits::Disable(const OnShard& shard) {
  enabled_ = false;
  misses_enabling_ = false;
  if (!has_interrupts_) return;
  for (const Port& port : ports_) {
    if (!port.waits.empty()) port.lane->SetRxInterrupts(shard, false);
  }
}

void PortWaits::NoteEvent(const OnShard&, const DeviceLane& lane) {
  for (Port& port : ports_) port.woke |= port.lane == &lane;
}

void PortWaits::Judge(const OnShard& shard, Ended ended, uint64_t frames, uint64_t now_ns) {
  // Frames of a polled port may wait at the end of any sleep.
  if (frames != 0 && !MustPoll(shard)) missed_ = ended == Ended::kByTime ? missed_ + 1 : 0;
  const bool is_deaf = missed_ >= kMostMissed;
  for (Port& port : ports_) {
    const bool woke = port.woke;
    port.woke = false;
    if (port.waits.empty() || port.distrusted_until_ns != 0) continue;
    if (woke) port.empty_wakes = frames == 0 ? port.empty_wakes + 1 : 0;
    if (!port.is_proven && frames != 0) {
      port.is_proven = woke;
      if (ended == Ended::kByTime) ++port.unheard;
      NotePolled(port);
    }
    if (is_deaf || port.unheard >= kMostUnheard) {
      Poll(port);
    } else if (port.empty_wakes >= kMostEmptyWakes) {
      Distrust(port, now_ns + kDistrustNs);
    }
  }
}

void PortWaits::Poll(Port& port) {
  Unwatch(port);
  port.waits.clear();
  port.is_polled = true;
  NotePolled(port);
}

void PortWaits::Distrust(Port& port, uint64_t until_ns) {
  Unwatch(port);
  port.empty_wakes = 0;
  port.distrusted_until_ns = until_ns;
  ++distrusted_;
  NotePolled(port);
}

void PortWaits::TrustAgain(uint64_t now_ns) {
  for (Port& port : ports_) {
    if (port.distrusted_until_ns == 0 || now_ns < port.distrusted_until_ns) continue;
    if (!Watch(port)) continue;
    port.distrusted_until_ns = 0;
    --distrusted_;
    NotePolled(port);
  }
}

}  // namespace roci::dataplane
