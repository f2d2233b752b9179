#include "dataplane/qp/async_events.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "dataplane/base/async_event.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kMask = AsyncEvents::kMaxWaiting - 1;
static_assert((AsyncEvents::kMaxWaiting & kMask) == 0);

// A pipe takes so many bytes atomically.
constexpr uint32_t kEventsPerWrite = PIPE_BUF / sizeof(roci_abi_async_event);
constexpr int kWritesPerRetry = 4;

}  // namespace

AsyncEvents::AsyncEvents(Fd pipe)
    : pipe_(std::move(pipe)),
      ring_(std::make_unique_for_overwrite<roci_abi_async_event[]>(kMaxWaiting)) {}

bool AsyncEvents::Send(const OnShard&, uint64_t element, uint32_t type) {
  const roci_abi_async_event event{element, type, 0};
  if (count_ != 0 || held_) return Append(event);
  if (write(pipe_.get(), &event, sizeof(event)) == sizeof(event)) return true;
  return errno == EAGAIN && Append(event);
}

// Every queue pair may raise this event. It uses half of the backlog at most, so that a program
// with thousands of queue pairs that does not read its events still learns of faults.
bool AsyncEvents::Append(const roci_abi_async_event& event) {
  const uint32_t limit =
      event.type == kEventCommunicationEstablished ? kMaxWaiting / 2 : kMaxWaiting;
  if (count_ >= limit) return false;
  ring_[(first_ + count_) & kMask] = event;
  ++count_;
  return true;
}

// Events that are contiguous in the ring and fit one write.
uint32_t AsyncEvents::Longest() const {
  return std::min({count_, kMaxWaiting - first_, kEventsPerWrite});
}

uint32_t AsyncEvents::Retry(const OnShard&) {
  for (int i = 0; i < kWritesPerRetry && count_ != 0 && !held_; ++i) {
    const uint32_t events = Longest();
    const ssize_t size = static_cast<ssize_t>(events * sizeof(roci_abi_async_event));
    const ssize_t written = write(pipe_.get(), &ring_[first_], static_cast<size_t>(size));
    if (written != size) {
      // The program has closed its end.
      return errno != EAGAIN ? std::exchange(count_, 0) : 0;
    }
    first_ = (first_ + events) & kMask;
    count_ -= events;
  }
  return 0;
}

uint32_t AsyncEvents::Hold(const OnShard&, uint64_t element) {
  held_ = true;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const roci_abi_async_event event = ring_[(first_ + i) & kMask];
    if (event.element == element) continue;
    ring_[(first_ + kept) & kMask] = event;
    ++kept;
  }
  const uint32_t taken = count_ - kept;
  count_ = kept;
  return taken;
}

uint32_t AsyncEvents::Release(const OnShard& shard) {
  held_ = false;
  return Retry(shard);
}

}  // namespace roci::dataplane
