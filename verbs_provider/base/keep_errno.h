// What a call of ours that succeeds leaves in errno: what was there. Callers that undo after an
// error, as librdmacm does, report that one afterwards.
#pragma once

#include <cerrno>

namespace roci::provider {

/// Puts errno back when it goes out of scope.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

/// `error`, 0 or a positive errno, which errno has too if it is one: some callers look there only.
inline int SetErrno(int error) {
  if (error != 0) [[unlikely]] {
    errno = error;
  }
  return error;
}

}  // namespace roci::provider
