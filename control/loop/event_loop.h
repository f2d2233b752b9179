// The control thread's loop: file descriptors and deadlines, one epoll_wait.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "control/loop/loop_share.h"
#include "control/loop/unique_fd.h"
#include "dataplane/base/thread_priority.h"
#include "roce/work.h"
#include "verbs_provider/abi/yield_judge.h"

namespace roci::control {

// CLOCK_MONOTONIC.
roce::TimeNs MonotonicNow();

// Not thread-safe. Handlers may add and remove any watch, their own included, and stop the loop.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;
  using Watch = uint64_t;  // never 0

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();

  // Calls `handler` when `fd` has one of `epoll_events`. `fd` must stay open until Forget(). With a
  // share, handlers take turns with those of other shares (LoopShare); except for EPOLLHUP and
  // EPOLLERR. ResourceExhausted: epoll's limit is reached.
  absl::StatusOr<Watch> Add(int fd, uint32_t epoll_events, Handler handler,
                            std::shared_ptr<LoopShare> share = nullptr);
  void Change(Watch watch, uint32_t epoll_events);
  void Forget(Watch watch);

  // Runs `task` once, after the current handler. Tasks may post tasks.
  void Post(std::function<void()> task) { tasks_.push_back(std::move(task)); }

  // Calls `run` at the time that `next` returns (kNever: not now). `next` is called before every
  // wait. Both are kept until the loop is destroyed.
  void AddDeadline(std::function<roce::TimeNs()> next, std::function<void(roce::TimeNs now)> run);

  // Gives the calling thread real-time priority if permitted; the same thread must call Run().
  // Returns the priority; 0: none.
  int TakePriority(dataplane::RealtimeUse use);
  // For the priority guard; before TakePriority().
  dataplane::ThreadPriority& priority() { return priority_; }

  // Returns after Stop().
  void Run();
  void Stop() { stopped_ = true; }

 private:
  struct Entry {
    int fd;
    uint32_t events;
    std::shared_ptr<Handler> handler;
    std::shared_ptr<LoopShare> share;  // or null
    bool waits = false;                // for its turn; epoll does not report `events` meanwhile
    uint64_t place = 0;                // among those that wait, until the handler is called
  };
  struct Deadline {
    std::function<roce::TimeNs()> next;
    std::function<void(roce::TimeNs)> run;
  };

  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  template <class Work>
  void Attempt(Work&& work);
  void SetEvents(Watch watch, const Entry& entry, uint32_t epoll_events);
  // True: a handler with a share was called.
  bool Dispatch(const epoll_event& event);
  // False: not now, since memory lacks.
  bool LetWait(Watch watch, Entry& entry);
  void StartRound();
  void WakeSome(LoopShare& share);
  void RunDeadlines();
  void RunTasks();
  int WaitMs() const;
  int PollUntil(std::span<epoll_event> events, roce::TimeNs end);
  // Blocks until a descriptor is ready or a deadline has come.
  int Sleep(std::span<epoll_event> events);
  void BoundPriority();

  UniqueFd epoll_;
  bool stopped_ = false;
  dataplane::ThreadPriority priority_;
  abi::YieldJudge yields_;
  Watch last_watch_ = 0;
  std::map<Watch, Entry> entries_;
  std::vector<Deadline> deadlines_;
  std::vector<std::function<void()>> tasks_;
  uint64_t round_ = 0;                            // see LoopShare
  std::set<std::shared_ptr<LoopShare>> waiting_;  // those with watches that wait
};

}  // namespace roci::control
