// Runs functions of other threads on an lcore, one at a time, between two bursts.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "dataplane/base/on_shard.h"

namespace roci::dataplane {

class Mailbox {
 public:
  using Function = void (*)(const OnShard& shard, void* argument);

  // Any thread but the lcore: blocks until the lcore has run `function` with `argument`. Calls
  // `wake` after the letter was posted.
  template <class Wake>
  void Post(Function function, void* argument, Wake&& wake) {
    Letter letter{function, argument, {}};
    Push(letter);
    wake();
    Await(letter);
  }

  // The lcore: runs the posted functions and returns their number. Costs one load if there are
  // none.
  uint32_t Serve(const OnShard& shard) {
    if (first_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return 0;
    return ServeAll(shard);
  }
  bool Pending() const { return first_.load(std::memory_order_seq_cst) != nullptr; }

 private:
  struct Letter {
    Function function;
    void* argument;
    std::atomic<uint32_t> done;
    Letter* next = nullptr;
  };

  void Push(Letter& letter);
  uint32_t ServeAll(const OnShard& shard);
  static void Await(Letter& letter);

  std::atomic<Letter*> first_{nullptr};  // newest first
};

}  // namespace roci::dataplane
