// The asynchronous events of one session on their way to the app: a pipe, and a backlog for as long
// as the pipe is full.
#pragma once

#include <cstdint>
#include <memory>

#include "dataplane/base/shared_memory.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

// On the lcore of the session, except the constructor.
class AsyncEvents {
 public:
  // Events that wait besides those that are in the pipe (4096 with Linux's default size).
  static constexpr uint32_t kMaxWaiting = 16384;

  // `pipe`: the writing end, non-blocking.
  explicit AsyncEvents(Fd pipe);

  // Events stay in their order. False: this one is lost, since too many wait already or the app has
  // closed its end.
  bool Send(uint64_t element, uint32_t type);
  // Some did not go yet: Retry has to be called now and then.
  bool waiting() const { return count_ != 0; }
  // Writes what there is room for, as much as a few system calls do. Returns how many are lost, for
  // the app has closed its end.
  [[nodiscard]] uint32_t Retry();

  // Takes back those of `element` that wait here, returns how many there were, and writes nothing
  // to the pipe until Release, so that another thread may take out what is unread and put some of
  // it back.
  uint32_t Hold(uint64_t element);
  [[nodiscard]] uint32_t Release();  // as Retry

 private:
  bool Append(const roci_abi_async_event& event);
  uint32_t Longest() const;

  Fd pipe_;
  // A ring. Its memory is not touched, and costs nothing, before it is needed.
  std::unique_ptr<roci_abi_async_event[]> ring_;
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  bool held_ = false;
};

}  // namespace roci::dataplane
