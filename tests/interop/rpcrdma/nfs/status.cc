// Status codes for errors of system calls.
#include "tests/interop/rpcrdma/nfs/status.h"

#include <cerrno>

namespace rpcrdma {
namespace {

struct Row {
  int error;
  Status status;
};

constexpr Row kRows[] = {
    {EPERM, Status::kNotOwner},
    {ENOENT, Status::kNoEntry},
    {ENXIO, Status::kNoDevice},
    {ENODEV, Status::kNoDevice},
    {EACCES, Status::kAccess},
    {EEXIST, Status::kExists},
    {ENOTDIR, Status::kNotFolder},
    {ELOOP, Status::kNotFolder},  // a symbolic link where a folder must be
    {EISDIR, Status::kIsFolder},
    {EINVAL, Status::kInvalid},
    {EFBIG, Status::kTooBig},
    {EOVERFLOW, Status::kTooBig},
    {ENOSPC, Status::kNoSpace},
    {EROFS, Status::kReadOnly},
    {EMLINK, Status::kTooManyLinks},
    {ENAMETOOLONG, Status::kNameTooLong},
    {ENOTEMPTY, Status::kNotEmpty},
    {EDQUOT, Status::kQuota},
    {EXDEV, Status::kAccess},  // a mount point: what is mounted there is not exported
    {EBUSY, Status::kAccess},
    {EOPNOTSUPP, Status::kNotSupported},
    {EMFILE, Status::kTryLater},
    {ENFILE, Status::kTryLater},
    {ENOMEM, Status::kTryLater},
    {EAGAIN, Status::kTryLater},
};

}  // namespace

Status StatusOf(int error) {
  for (const Row& row : kRows) {
    if (row.error == error) return row.status;
  }
  return Status::kIo;
}

}  // namespace rpcrdma
