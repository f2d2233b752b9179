// Converts absl::Status to the errno that a program sees, and errno to absl::Status.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace roci::control {

// The errno that Linux verbs return: InvalidArgument EINVAL, NotFound ENOENT, FailedPrecondition
// EBUSY, ResourceExhausted ENOMEM, Unimplemented EOPNOTSUPP, PermissionDenied EPERM,
// DeadlineExceeded ETIMEDOUT, Unavailable EHOSTUNREACH, OutOfRange EFAULT, others EIO. 0 for OK. A
// status from StatusFromErrno returns the original errno.
int ErrnoOf(const absl::Status& status);

// A status "WHAT: TEXT" with the code of absl::ErrnoToStatusCode; ErrnoOf returns `error`, > 0.
absl::Status StatusFromErrno(int error, absl::string_view what);

// EINVAL.
inline absl::Status Invalid(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace roci::control
