#include "control/device/blocking_calls.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "control/loop/errno_status.h"

namespace roci::control {

// One job list and one set of threads per user. Users are identified by a number, since a helper
// thread must not own the last reference to a User.
struct BlockingCalls::Queue {
  struct Job {
    uint64_t number;
    std::function<void()> call;
  };
  using Jobs = std::list<Job>;  // jobs are spliced, so that finishing one does not allocate
  struct Account {
    Jobs jobs;
    std::condition_variable wake;
    size_t threads = 0;
    size_t idle_threads = 0;
  };

  explicit Queue(UniqueFd event) : finished_event(std::move(event)) {}

  // False, with nothing queued: no thread exists and none can be started.
  static bool Add(const std::shared_ptr<Queue>& queue, uintptr_t user, Jobs& job) {
    const std::lock_guard guard(queue->mutex);
    Account& account = queue->accounts[user];
    if (account.jobs.size() >= account.idle_threads && account.threads < kThreadsOfUser) {
      StartThread(queue, user, account);
    }
    if (account.threads == 0) {
      queue->accounts.erase(user);
      return false;
    }
    account.jobs.splice(account.jobs.end(), job);
    account.wake.notify_one();
    return true;
  }

  static void StartThread(const std::shared_ptr<Queue>& queue, uintptr_t user, Account& account) {
    try {
      std::thread([queue, user] { queue->Run(user); }).detach();
      ++account.threads;
    } catch (const std::system_error&) {
      // The existing threads run the job; see Add().
    }
  }

  // A thread waits for more calls before it ends, since calls come in groups.
  void Run(uintptr_t user) {
    constexpr std::chrono::milliseconds kIdle(200);
    pthread_setname_np(pthread_self(), "rocid-calls");
    std::unique_lock lock(mutex);
    Account& account = accounts.at(user);
    for (;;) {
      ++account.idle_threads;
      const bool has_job =
          account.wake.wait_for(lock, kIdle, [&] { return !account.jobs.empty(); });
      --account.idle_threads;
      if (!has_job) break;
      Jobs job;
      job.splice(job.end(), account.jobs, account.jobs.begin());
      lock.unlock();
      try {
        job.front().call();
      } catch (const std::bad_alloc&) {
        // The call's results stay unchanged.
      }
      lock.lock();
      finished.splice(finished.end(), job);
      constexpr uint64_t kOne = 1;
      [[maybe_unused]] const ssize_t n = write(finished_event.get(), &kOne, sizeof(kOne));
    }
    if (--account.threads == 0) accounts.erase(user);
  }

  const UniqueFd finished_event;  // semaphore with the size of `finished`
  std::mutex mutex;
  std::map<uintptr_t, Account> accounts;
  Jobs finished;
};

absl::StatusOr<std::unique_ptr<BlockingCalls>> BlockingCalls::Create(EventLoop& loop) {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  if (!event.valid()) return StatusFromErrno(errno, "eventfd");
  auto queue = std::make_shared<Queue>(std::move(event));
  std::unique_ptr<BlockingCalls> calls(new BlockingCalls(loop, std::move(queue)));
  BlockingCalls* const self = calls.get();
  const absl::StatusOr<EventLoop::Watch> watch =
      loop.Add(self->queue_->finished_event.get(), EPOLLIN, [self](uint32_t) { self->Deliver(); });
  if (!watch.ok()) return watch.status();
  self->watch_ = *watch;
  return calls;
}

BlockingCalls::BlockingCalls(EventLoop& loop, std::shared_ptr<Queue> queue)
    : loop_(loop), queue_(std::move(queue)) {}

BlockingCalls::~BlockingCalls() {
  loop_.Forget(watch_);
  Queue::Jobs dropped;
  const std::lock_guard guard(queue_->mutex);
  for (auto& [user, account] : queue_->accounts) dropped.splice(dropped.end(), account.jobs);
  dropped.splice(dropped.end(), queue_->finished);
}

uint64_t BlockingCalls::Run(std::shared_ptr<User> user, uint64_t descriptors,
                            std::function<void()> call, std::function<void()> done) {
  const uint64_t number = ++last_number_;
  const auto account = reinterpret_cast<uintptr_t>(user.get());
  QuotaShare share = QuotaShare::Forced(user->descriptors, descriptors);
  const auto kept =
      pending_.emplace(number, Pending{std::move(user), std::move(share), std::move(done)}).first;
  absl::Cleanup undo = [&] { pending_.erase(kept); };
  Queue::Jobs job;
  job.push_back({number, std::move(call)});
  if (!Queue::Add(queue_, account, job)) return 0;
  std::move(undo).Cancel();
  return number;
}

size_t BlockingCalls::ThreadsOf(const User& user) const {
  const std::lock_guard guard(queue_->mutex);
  const auto account = queue_->accounts.find(reinterpret_cast<uintptr_t>(&user));
  return account != queue_->accounts.end() ? account->second.threads : 0;
}

void BlockingCalls::Forget(uint64_t number) {
  const auto it = pending_.find(number);
  if (it == pending_.end()) return;
  it->second.done = nullptr;
  Queue::Jobs dropped;
  const auto user = reinterpret_cast<uintptr_t>(it->second.user.get());
  {
    const std::lock_guard guard(queue_->mutex);
    const auto account = queue_->accounts.find(user);
    if (account == queue_->accounts.end()) return;
    Queue::Jobs& jobs = account->second.jobs;
    for (auto job = jobs.begin(); job != jobs.end(); ++job) {
      if (job->number != number) continue;
      dropped.splice(dropped.end(), jobs, job);
      break;
    }
  }
  if (!dropped.empty()) pending_.erase(it);
}

void BlockingCalls::Deliver() {
  uint64_t count;
  if (read(queue_->finished_event.get(), &count, sizeof(count)) != sizeof(count)) return;
  Queue::Jobs job;
  {
    const std::lock_guard guard(queue_->mutex);
    job.splice(job.end(), queue_->finished, queue_->finished.begin());
  }
  const auto it = pending_.find(job.front().number);
  const std::function<void()> done = std::move(it->second.done);
  pending_.erase(it);
  if (done) done();
}

}  // namespace roci::control
