// Event sockets to programs, and a thread for each user whose sockets take long to write to.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "dataplane/base/counters.h"
#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {

class EventSocket;

// The event sockets of one user. write(2) wakes all that watch the socket before it returns, and a
// program may let any number of epoll instances watch it: 20,000 of them take up to 200 ms. After
// one write that has taken long, the user's thread makes all writes to the sockets of the user.
class EventWriter {
 public:
  // Processor time, so that preemption does not count. An ordinary write takes 2 us.
  static constexpr uint64_t kLongWriteNs = 100'000;

  EventWriter();
  // Does not wait for the thread. Events that it has not written are lost.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Control thread. Starts the thread, once. False: it cannot be started.
  bool Start();
  // Any thread.
  bool is_slow() const { return is_slow_.load(std::memory_order_relaxed); }
  void SetSlow() { is_slow_.store(true, std::memory_order_relaxed); }

 private:
  friend class EventSocket;
  struct Queue;  // shared with the thread
  void Add(EventSocket& socket);

  std::atomic<bool> is_slow_{false};
  bool has_thread_ = false;
  std::shared_ptr<Queue> queue_;
};

// The sending end of a program's event socket. One lcore writes at a time.
class EventSocket : public std::enable_shared_from_this<EventSocket> {
 public:
  static constexpr size_t kMaxBytes = 16;  // of an event

  // `fd` is non-blocking. `writer`: of its user, started; null: of a user whose writes may take
  // long.
  EventSocket(Fd fd, std::shared_ptr<EventWriter> writer)
      : fd_(std::move(fd)), writer_(std::move(writer)) {}

  // kFull: try again later. kClosed: the program has closed its end. `slow` counts writes that took
  // long here.
  enum class Result : uint8_t { kWritten, kFull, kClosed };
  Result Write(std::span<const std::byte> event, Counter& slow);

  // False: the thread has written all events that Write has passed to it. Any thread.
  bool has_pending() const { return written_.load() != queued_; }

 private:
  friend class EventWriter;
  static constexpr uint32_t kMaxQueued = 16;
  struct Event {
    std::array<std::byte, kMaxBytes> bytes;
    size_t size;
  };
  Result WriteNow(std::span<const std::byte> event) const;
  Result Queue(std::span<const std::byte> event);
  bool WriteQueued();

  const Fd fd_;
  const std::shared_ptr<EventWriter> writer_;
  std::atomic<bool> is_closed_{false};
  // Events for the thread: written by the lcore, read by the thread.
  std::array<Event, kMaxQueued> events_;
  std::atomic<uint32_t> queued_{0};
  std::atomic<uint32_t> written_{0};
  // Whether the socket is in the thread's list. The thread that changes it to true sets the
  // next two members.
  std::atomic<bool> is_listed_{false};
  std::shared_ptr<EventSocket> self_;
  EventSocket* next_ = nullptr;
};

}  // namespace roci::dataplane
