// The asynchronous events of one verbs context: a pipe to the program, and a backlog while the pipe
// is full.
#pragma once

#include <cstdint>
#include <memory>

#include "dataplane/base/on_shard.h"
#include "dataplane/base/shared_memory.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

// Members are called on the shard of the context, except the constructor.
class AsyncEvents {
 public:
  // Events in the backlog; the pipe holds 4096 more with Linux's default size.
  static constexpr uint32_t kMaxWaiting = 16384;

  // `pipe`: the writing end, non-blocking.
  explicit AsyncEvents(Fd pipe);

  // Events keep their order. False: the event is lost, because the backlog is full or the program
  // has closed its end.
  bool Send(const OnShard&, uint64_t element, uint32_t type);
  // The backlog is not empty: call Retry from time to time.
  bool waiting() const { return count_ != 0; }
  // Writes as much of the backlog as fits, in a few system calls. Returns how many events are lost
  // because the program has closed its end.
  [[nodiscard]] uint32_t Retry(const OnShard&);

  // Removes the events of `element` from the backlog and returns their number. Writes nothing to
  // the pipe until Release, so that another thread can filter the unread events in the pipe.
  uint32_t Hold(const OnShard&, uint64_t element);
  [[nodiscard]] uint32_t Release(const OnShard&);  // as Retry

 private:
  bool Append(const roci_abi_async_event& event);
  uint32_t Longest() const;

  Fd pipe_;
  // A ring. Its pages are not touched before the pipe is full.
  std::unique_ptr<roci_abi_async_event[]> ring_;
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  bool held_ = false;
};

}  // namespace roci::dataplane
