#include "dataplane/base/event_writer.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/base/clock.h"

namespace roci::dataplane {
namespace {

// Time between two tries to write to a full socket.
constexpr timespec kRetryPeriod{0, 1'000'000};

uint64_t ProcessorTimeNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Not the priority and the signals of the thread that started this one.
void BecomeOrdinary() {
  pthread_setname_np(pthread_self(), "roci-events");
  const sched_param none{};
  sched_setscheduler(0, SCHED_OTHER, &none);
  sigset_t all;
  sigfillset(&all);  // SIGPIPE, too: a program may close its end
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

struct EventWriter::Queue {
  std::atomic<EventSocket*> first{nullptr};  // newest first
  std::atomic<uint32_t> changes{0};
  std::atomic<bool> stop{false};

  void Notify() {
    changes.fetch_add(1);
    changes.notify_one();
  }

  // The sockets with new events.
  void Take(std::vector<std::shared_ptr<EventSocket>>& out) {
    for (EventSocket* socket = first.exchange(nullptr); socket != nullptr;) {
      EventSocket* const next = socket->next_;
      out.push_back(std::move(socket->self_));
      socket->is_listed_.store(false);  // before its events are read
      socket = next;
    }
  }

  void Run() {
    BecomeOrdinary();
    std::vector<std::shared_ptr<EventSocket>> sockets;  // that may have events
    while (!stop) {
      const uint32_t seen = changes.load();
      try {
        Take(sockets);
      } catch (const std::bad_alloc&) {
        // Its events are lost.
      }
      std::erase_if(sockets, [](const auto& socket) { return !socket->WriteQueued(); });
      if (stop) break;
      if (sockets.empty()) {
        changes.wait(seen);
      } else {
        nanosleep(&kRetryPeriod, nullptr);
      }
    }
    sockets.clear();
    std::vector<std::shared_ptr<EventSocket>> last;
    Take(last);
  }
};

EventWriter::EventWriter() : queue_(std::make_shared<Queue>()) {}

EventWriter::~EventWriter() {
  queue_->stop = true;
  queue_->Notify();
}

bool EventWriter::Start() {
  if (has_thread_) return true;
  try {
    std::thread([queue = queue_] { queue->Run(); }).detach();
    has_thread_ = true;
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  return has_thread_;
}

void EventWriter::Add(EventSocket& socket) {
  if (socket.is_listed_.exchange(true)) return;  // the thread has not read its events yet
  socket.self_ = socket.shared_from_this();
  socket.next_ = queue_->first.load(std::memory_order_relaxed);
  while (!queue_->first.compare_exchange_weak(socket.next_, &socket)) {
  }
  queue_->Notify();
}

EventSocket::Result EventSocket::Write(std::span<const std::byte> event, Counter& slow) {
  if (writer_ == nullptr) return WriteNow(event);
  if (writer_->is_slow()) return Queue(event);
  // One system call, so that a single write tells whether it or a preemption took long.
  const uint64_t ran_ns = ProcessorTimeNs();
  const uint64_t begin_ns = Clock::Monotonic();
  const Result result = WriteNow(event);
  if (Clock::Monotonic() - begin_ns <= EventWriter::kLongWriteNs) [[likely]]
    return result;
  if (ProcessorTimeNs() - ran_ns <= EventWriter::kLongWriteNs) return result;
  slow.Add(1);
  writer_->SetSlow();
  return result;
}

EventSocket::Result EventSocket::WriteNow(std::span<const std::byte> event) const {
  if (write(fd_.get(), event.data(), event.size()) == static_cast<ssize_t>(event.size())) {
    return Result::kWritten;
  }
  return errno == EAGAIN ? Result::kFull : Result::kClosed;
}

EventSocket::Result EventSocket::Queue(std::span<const std::byte> event) {
  assert(event.size() <= kMaxBytes);
  if (is_closed_.load(std::memory_order_relaxed)) return Result::kClosed;
  const uint32_t at = queued_.load(std::memory_order_relaxed);
  if (at - written_.load(std::memory_order_acquire) == kMaxQueued) return Result::kFull;
  Event& slot = events_[at % kMaxQueued];
  std::copy(event.begin(), event.end(), slot.bytes.begin());
  slot.size = event.size();
  queued_.store(at + 1);
  writer_->Add(*this);
  return Result::kWritten;
}

// On the thread. True: the socket is full.
bool EventSocket::WriteQueued() {
  for (uint32_t at = written_.load(std::memory_order_relaxed); at != queued_.load(); ++at) {
    const Event& event = events_[at % kMaxQueued];
    const Result result =
        is_closed_ ? Result::kClosed : WriteNow(std::span(event.bytes).first(event.size));
    if (result == Result::kFull) return true;
    if (result == Result::kClosed) is_closed_ = true;
    written_.store(at + 1, std::memory_order_release);
  }
  return false;
}

}  // namespace roci::dataplane
