// The one place where absl::Status becomes the errno that a program sees, and back.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace roci::control {

// What Linux verbs answer: InvalidArgument EINVAL, NotFound ENOENT, FailedPrecondition EBUSY,
// ResourceExhausted ENOMEM, Unimplemented EOPNOTSUPP, PermissionDenied EPERM, DeadlineExceeded
// ETIMEDOUT, Unavailable EHOSTUNREACH, OutOfRange EFAULT, others EIO. 0 for OK. A status made by
// StatusFromErrno gives the errno it was made from.
int ErrnoOf(const absl::Status& status);

// "WHAT: TEXT" with a fitting code that remembers `error`. `error` > 0.
absl::Status StatusFromErrno(int error, absl::string_view what);

}  // namespace roci::control
