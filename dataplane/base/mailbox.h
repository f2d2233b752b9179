// Runs functions of other threads on an lcore, one at a time, between two bursts.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace roci::dataplane {

class Mailbox {
 public:
  // Any thread but the lcore: waits until the lcore has run function(argument). `wake` is called
  // once the letter lies there.
  template <class Wake>
  void Post(void (*function)(void*), void* argument, Wake&& wake) {
    Letter letter{function, argument, {}};
    Push(letter);
    wake();
    Await(letter);
  }

  // The lcore: one load if there is nothing. Returns how many functions were run.
  uint32_t Serve() {
    if (first_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return 0;
    return ServeAll();
  }
  bool Pending() const { return first_.load(std::memory_order_seq_cst) != nullptr; }

 private:
  struct Letter {
    void (*function)(void*);
    void* argument;
    std::atomic<uint32_t> done;
    Letter* next = nullptr;
  };

  void Push(Letter& letter);
  uint32_t ServeAll();
  static void Await(Letter& letter);

  std::atomic<Letter*> first_{nullptr};  // newest first
};

}  // namespace roci::dataplane
