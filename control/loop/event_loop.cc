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

// A share that has not delayed others owes nothing.
constexpr uint64_t kRoundsOfIdleness = uint64_t{1} << 30;

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

absl::StatusOr<EventLoop::Watch> EventLoop::Add(int fd, uint32_t epoll_events, Handler handler,
                                                std::shared_ptr<LoopShare> share) {
  const Watch watch = ++last_watch_;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = watch;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return StatusFromErrno(errno, "epoll_ctl");
  }
  entries_.emplace(watch, Entry{.fd = fd,
                                .events = epoll_events,
                                .handler = std::make_shared<Handler>(std::move(handler)),
                                .share = std::move(share)});
  return watch;
}

void EventLoop::SetEvents(Watch watch, const Entry& entry, uint32_t epoll_events) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = watch;
  const int result = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry.fd, &event);
  assert(result == 0);
  (void)result;
}

void EventLoop::Change(Watch watch, uint32_t epoll_events) {
  const auto it = entries_.find(watch);
  assert(it != entries_.end());
  it->second.events = epoll_events;
  if (!it->second.waits) SetEvents(watch, it->second, epoll_events);
}

void EventLoop::Forget(Watch watch) {
  const auto it = entries_.find(watch);
  if (it == entries_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  if (it->second.waits) it->second.share->waiting_.erase(it->second.place);
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
    Log(LogArea::kDaemon, LogLevel::kWarning, "out of memory: the handler of an event was aborted");
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

// A watch that was woken but not called keeps its place.
bool EventLoop::LetWait(Watch watch, Entry& entry) {
  LoopShare& share = *entry.share;
  if (entry.place == 0) entry.place = ++share.last_place_;
  try {
    waiting_.insert(entry.share);
    share.waiting_.emplace(entry.place, watch);
  } catch (const std::bad_alloc&) {
    return false;
  }
  entry.waits = true;
  SetEvents(watch, entry, 0);
  return true;
}

void EventLoop::WakeSome(LoopShare& share) {
  for (size_t left = std::min(share.waiting_.size(), share.wakes_); left > 0; --left) {
    const Watch watch = share.waiting_.begin()->second;
    share.waiting_.erase(share.waiting_.begin());
    Entry& entry = entries_.at(watch);
    entry.waits = false;
    SetEvents(watch, entry, entry.events);
  }
}

// In the next round in which a share may run.
void EventLoop::StartRound() {
  uint64_t next = UINT64_MAX;
  for (const auto& share : waiting_) {
    // As many watches are woken as use up the quantum.
    const bool has_time_left = share->MayRun(round_);
    share->wakes_ =
        std::clamp<size_t>(has_time_left ? 2 * share->wakes_ : share->wakes_ / 2, 4, 64);
    next = std::min(next, has_time_left ? round_ + 1 : share->NextRound());
  }
  round_ = next;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if ((*it)->MayRun(round_)) WakeSome(**it);
    it = (*it)->waiting_.empty() ? waiting_.erase(it) : std::next(it);
  }
}

bool EventLoop::Dispatch(const epoll_event& event) {
  // Copied: the kernel's structure is packed, and find() takes a reference.
  const Watch watch = event.data.u64;
  // An earlier handler of this iteration may have removed the watch.
  const auto it = entries_.find(watch);
  if (it == entries_.end()) return false;
  const std::shared_ptr<LoopShare> share = it->second.share;
  const bool has_ended = (event.events & (EPOLLHUP | EPOLLERR)) != 0;
  if (share != nullptr && !has_ended && !share->MayRun(round_) && LetWait(watch, it->second)) {
    return false;
  }
  if (!it->second.waits) it->second.place = 0;
  const std::shared_ptr<Handler> handler = it->second.handler;
  const roce::TimeNs begin = share != nullptr ? MonotonicNow() : 0;
  Attempt([&] { (*handler)(event.events); });
  RunTasks();
  if (share != nullptr) share->Charge(std::max<roce::TimeNs>(MonotonicNow() - begin, 1));
  return share != nullptr;
}

void EventLoop::Run() {
  std::array<epoll_event, 64> events;
  roce::TimeNs awake_until = 0;
  while (!stopped_) {
    BoundPriority();
    int count = PollUntil(events, waiting_.empty() ? awake_until : 0);
    if (count == 0 && waiting_.empty()) {
      round_ += kRoundsOfIdleness;
      count = Sleep(events);
    }
    priority_.RaiseUnlessBounded(MonotonicNow());
    assert(count >= 0 || errno == EINTR);
    if (count > 0) awake_until = MonotonicNow() + kStayAwakeNs;
    bool has_run = false;
    for (int i = 0; i < count && !stopped_; ++i) {
      has_run = Dispatch(events[static_cast<size_t>(i)]) || has_run;
    }
    RunDeadlines();
    RunTasks();
    if (!has_run && !waiting_.empty()) StartRound();
  }
}

}  // namespace roci::control
