// Keeps errno unchanged in calls that succeed: callers such as librdmacm clean up after an error
// and then report its errno.
#pragma once

#include <cerrno>

namespace roci::provider {

/// The destructor restores errno.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

/// Returns `error` (0 or a positive errno), and stores it in errno if it is not 0: some callers
/// read only errno.
inline int SetErrno(int error) {
  if (error != 0) [[unlikely]] {
    errno = error;
  }
  return error;
}

}  // namespace roci::provider
