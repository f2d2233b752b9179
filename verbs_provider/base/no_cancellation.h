// Keeps the calling thread from being cancelled (pthread_cancel(3)) within a scope.
#pragma once

#include <pthread.h>

namespace roci::provider {

/// For code that makes system calls while it holds a mutex, or that has to be done as a whole.
class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
  ~NoCancellation() { pthread_setcancelstate(state_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int state_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace roci::provider
