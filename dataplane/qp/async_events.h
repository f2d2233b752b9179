// The asynchronous events of one verbs context: a socket to the program, and a backlog while the
// socket is full.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/base/event_writer.h"
#include "dataplane/base/on_shard.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

// Members are called on the shard of the context, except the constructor.
class AsyncEvents {
 public:
  // Events in the backlog, beside those in the socket.
  static constexpr uint32_t kMaxWaiting = 16256;
  // Events that were in the socket and come back (Return), in addition.
  static constexpr uint32_t kMaxReturned = 128;

  // `socket`: null: all events are lost.
  explicit AsyncEvents(std::shared_ptr<EventSocket> socket);
  // Counts writes that took long. Before the first event.
  void CountSlowIn(Counter& slow) { slow_ = &slow; }

  // Events keep their order. False: the event is lost, because the backlog is full or the program
  // has closed its end.
  bool Send(const OnShard&, uint64_t element, uint32_t type);
  // The backlog is not empty: call Retry from time to time.
  bool waiting(const OnShard&) const { return count_ != 0; }
  // Writes as much of the backlog as fits, in a few system calls. Returns how many events are lost
  // because the program has closed its end.
  [[nodiscard]] uint32_t Retry(const OnShard&);

  // Removes the events of `element` from the backlog and returns their number.
  uint32_t Withdraw(const OnShard&, uint64_t element);
  // Sends `events`, which the program's plugin has received and returned, before the backlog.
  // `hold`: sends nothing before the next call without it, so that the plugin can receive unread
  // events and return them in their order. Returns how many events are lost: the backlog is full,
  // or as Retry.
  [[nodiscard]] uint32_t Return(const OnShard&, std::span<const roci_abi_async_event> events,
                                bool hold);

 private:
  bool Append(const roci_abi_async_event& event);
  EventSocket::Result Write(const roci_abi_async_event& event);

  std::shared_ptr<EventSocket> socket_;
  Counter own_slow_;
  Counter* slow_ = &own_slow_;
  // A ring. Its pages are not touched before the socket is full.
  std::unique_ptr<roci_abi_async_event[]> ring_;
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  bool held_ = false;
};

}  // namespace roci::dataplane
