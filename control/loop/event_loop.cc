#include "control/loop/event_loop.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "control/loop/errno_status.h"
#include "control/loop/log.h"

namespace roci::control {
namespace {

// Programs that create objects send request after request. Polling for a while costs less than a
// wake-up for each.
constexpr roce::TimeNs kStayAwakeNs = 50'000;

}  // namespace

roce::TimeNs MonotonicNow() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<roce::TimeNs>(time.tv_sec) * roce::kNsPerSecond +
         static_cast<roce::TimeNs>(time.tv_nsec);
}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return StatusFromErrno(errno, "epoll_create1");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

absl::StatusOr<EventLoop::Watch> EventLoop::Add(int fd, uint32_t epoll_events, Handler handler) {
  const Watch watch = ++last_watch_;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = watch;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return StatusFromErrno(errno, "epoll_ctl");
  }
  entries_.emplace(watch, Entry{fd, std::make_shared<Handler>(std::move(handler))});
  return watch;
}

void EventLoop::Change(Watch watch, uint32_t epoll_events) {
  const auto it = entries_.find(watch);
  assert(it != entries_.end());
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = watch;
  const int result = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, it->second.fd, &event);
  assert(result == 0);
  (void)result;
}

void EventLoop::Forget(Watch watch) {
  const auto it = entries_.find(watch);
  if (it == entries_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  entries_.erase(it);
}

void EventLoop::AddDeadline(std::function<roce::TimeNs()> next,
                            std::function<void(roce::TimeNs now)> run) {
  deadlines_.push_back({std::move(next), std::move(run)});
}

int EventLoop::WaitMs() const {
  roce::TimeNs next = roce::kNever;
  for (const Deadline& deadline : deadlines_) next = std::min(next, deadline.next());
  if (next == roce::kNever) return -1;
  const roce::TimeNs now = MonotonicNow();
  if (next <= now) return 0;
  // Rounded up. A later deadline is looked at again.
  constexpr roce::TimeNs kLongestWaitMs = 60'000;
  return static_cast<int>(
      std::min((next - now + roce::kNsPerMs - 1) / roce::kNsPerMs, kLongestWaitMs));
}

// A handler that fails for lack of memory must not end the daemon.
template <class Work>
void EventLoop::Attempt(Work&& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    Log(LogArea::kDaemon, LogLevel::kWarning, "out of memory, an event was not handled completely");
  }
}

void EventLoop::RunDeadlines() {
  const roce::TimeNs now = MonotonicNow();
  for (const Deadline& deadline : deadlines_) {
    if (deadline.next() <= now) Attempt([&] { deadline.run(now); });
  }
}

void EventLoop::RunTasks() {
  while (!tasks_.empty()) {
    for (const std::function<void()>& task : std::exchange(tasks_, {})) Attempt(task);
  }
}

int EventLoop::TakePriority(dataplane::RealtimeUse use) {
  priority_.Take(use, dataplane::kControlPriority, MonotonicNow());
  return priority_.realtime_priority();
}

int EventLoop::PollUntil(std::span<epoll_event> events, roce::TimeNs end) {
  const auto size = static_cast<int>(events.size());
  int count = epoll_wait(epoll_.get(), events.data(), size, 0);
  roce::TimeNs now = MonotonicNow();
  while (count == 0 && now < end && yields_.Allows(now)) {
    priority_.NoteRound();
    priority_.Lower(now);
    sched_yield();
    const roce::TimeNs begin = std::exchange(now, MonotonicNow());
    yields_.Took(begin, now);
    count = epoll_wait(epoll_.get(), events.data(), size, 0);
  }
  return count;
}

int EventLoop::Sleep(std::span<epoll_event> events) {
  const roce::TimeNs begin = MonotonicNow();
  priority_.Raise(begin);
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), WaitMs());
  priority_.NoteSleep(begin, MonotonicNow());
  return count;
}

// A real-time thread that is always busy must yield its processor at times.
void EventLoop::BoundPriority() {
  priority_.NoteRound();
  if (priority_.realtime_priority() != 0 && priority_.Adjust(MonotonicNow(), true)) sched_yield();
}

void EventLoop::Run() {
  std::array<epoll_event, 64> events;
  roce::TimeNs awake_until = 0;
  while (!stopped_) {
    BoundPriority();
    int count = PollUntil(events, awake_until);
    if (count == 0) count = Sleep(events);
    priority_.RaiseUnlessBounded(MonotonicNow());
    assert(count >= 0 || errno == EINTR);
    if (count > 0) awake_until = MonotonicNow() + kStayAwakeNs;
    for (int i = 0; i < count && !stopped_; ++i) {
      // Copied: the kernel's structure is packed, and find() takes a reference.
      const epoll_event event = events[static_cast<size_t>(i)];
      const uint64_t key = event.data.u64;
      // An earlier handler of this iteration may have removed the watch.
      const auto it = entries_.find(key);
      if (it == entries_.end()) continue;
      const std::shared_ptr<Handler> handler = it->second.handler;
      Attempt([&] { (*handler)(event.events); });
      RunTasks();
    }
    RunDeadlines();
    RunTasks();
  }
}

}  // namespace roci::control
