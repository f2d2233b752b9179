// Statuses and the errnos that verbs return for them.
#include "control/loop/errno_status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace roci::control {
namespace {

TEST(ErrnoTest, StatusesBecomeTheErrnosOfVerbs) {
  EXPECT_EQ(ErrnoOf(absl::OkStatus()), 0);
  EXPECT_EQ(ErrnoOf(absl::InvalidArgumentError("")), EINVAL);
  EXPECT_EQ(ErrnoOf(absl::NotFoundError("")), ENOENT);
  EXPECT_EQ(ErrnoOf(absl::FailedPreconditionError("")), EBUSY);
  EXPECT_EQ(ErrnoOf(absl::ResourceExhaustedError("")), ENOMEM);
  EXPECT_EQ(ErrnoOf(absl::UnimplementedError("")), EOPNOTSUPP);
  EXPECT_EQ(ErrnoOf(absl::PermissionDeniedError("")), EPERM);
  EXPECT_EQ(ErrnoOf(absl::DeadlineExceededError("")), ETIMEDOUT);
  EXPECT_EQ(ErrnoOf(absl::OutOfRangeError("")), EFAULT);
  EXPECT_EQ(ErrnoOf(absl::InternalError("")), EIO);
  for (const int error : {ENODEV, ENETUNREACH, EMFILE, EPROTO, ESRCH}) {
    EXPECT_EQ(ErrnoOf(StatusFromErrno(error, "x")), error);
  }
}

}  // namespace
}  // namespace roci::control
