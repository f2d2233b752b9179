#include "dataplane/qp/async_events.h"

#include <utility>

#include "dataplane/base/async_event.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kSize = AsyncEvents::kMaxWaiting + AsyncEvents::kMaxReturned;
constexpr uint32_t kMask = kSize - 1;
static_assert((kSize & kMask) == 0);

constexpr int kWritesPerRetry = 8;

}  // namespace

AsyncEvents::AsyncEvents(std::shared_ptr<EventSocket> socket)
    : socket_(std::move(socket)),
      ring_(std::make_unique_for_overwrite<roci_abi_async_event[]>(kSize)) {}

bool AsyncEvents::Send(const OnShard&, uint64_t element, uint32_t type) {
  const roci_abi_async_event event{element, type, 0};
  if (count_ != 0 || held_) return Append(event);
  const EventSocket::Result result = Write(event);
  return result == EventSocket::Result::kWritten ||
         (result == EventSocket::Result::kFull && Append(event));
}

EventSocket::Result AsyncEvents::Write(const roci_abi_async_event& event) {
  if (socket_ == nullptr) return EventSocket::Result::kClosed;
  return socket_->Write(std::as_bytes(std::span(&event, 1)), *slow_);
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

uint32_t AsyncEvents::Retry(const OnShard&) {
  for (int i = 0; i < kWritesPerRetry && count_ != 0 && !held_; ++i) {
    const roci_abi_async_event& event = ring_[first_];
    const EventSocket::Result result = Write(event);
    if (result == EventSocket::Result::kFull) return 0;
    if (result == EventSocket::Result::kClosed) return std::exchange(count_, 0);
    first_ = (first_ + 1) & kMask;
    --count_;
  }
  return 0;
}

uint32_t AsyncEvents::Withdraw(const OnShard&, uint64_t element) {
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

uint32_t AsyncEvents::Return(const OnShard& shard, std::span<const roci_abi_async_event> events,
                             bool hold) {
  held_ = hold;
  size_t left = events.size();
  for (; left != 0 && count_ < kSize; --left, ++count_) {
    first_ = (first_ - 1) & kMask;
    ring_[first_] = events[left - 1];
  }
  return static_cast<uint32_t>(left) + Retry(shard);
}

}  // namespace roci::dataplane
