// How long a client waits before it connects again: twice as long after each failure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rpcrdma {

class ReconnectDelay {
 public:
  ReconnectDelay(uint32_t first_ms, uint32_t most_ms) : first_ms_(first_ms), most_ms_(most_ms) {}

  // The delay before the next attempt. The first one after Reset() has none.
  uint32_t Next_ms() {
    const uint32_t now_ms = next_ms_;
    next_ms_ = now_ms == 0 ? std::min(first_ms_, most_ms_)
                           : (now_ms > most_ms_ / 2 ? most_ms_ : now_ms * 2);
    return now_ms;
  }
  // The peer has answered a call.
  void Reset() { next_ms_ = 0; }

 private:
  const uint32_t first_ms_;
  const uint32_t most_ms_;
  uint32_t next_ms_ = 0;
};

}  // namespace rpcrdma
