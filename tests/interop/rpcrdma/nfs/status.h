// Status codes of NFS version 3 (RFC 1813, 2.6), and those for errors of system calls.
#pragma once

#include <cstdint>

namespace rpcrdma {

enum class Status : uint32_t {
  kOk = 0,
  kNotOwner = 1,
  kNoEntry = 2,
  kIo = 5,
  kNoDevice = 6,
  kAccess = 13,
  kExists = 17,
  kOtherDevice = 18,
  kNotFolder = 20,
  kIsFolder = 21,
  kInvalid = 22,
  kTooBig = 27,
  kNoSpace = 28,
  kReadOnly = 30,
  kTooManyLinks = 31,
  kNameTooLong = 63,
  kNotEmpty = 66,
  kQuota = 69,
  kStale = 70,
  kBadHandle = 10001,
  kNotSync = 10002,
  kBadCookie = 10003,
  kNotSupported = 10004,
  kTooSmall = 10005,
  kServerFault = 10006,
  kTryLater = 10008,
};

// The status for an errno.
Status StatusOf(int error);

}  // namespace rpcrdma
