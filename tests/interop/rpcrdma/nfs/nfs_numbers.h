// The numbers of NFS version 3's procedures (RFC 1813, 3.3).
#pragma once

#include <cstdint>

namespace rpcrdma {

enum class Nfs : uint32_t {
  kNull,
  kGetattr,
  kSetattr,
  kLookup,
  kAccess,
  kReadlink,
  kRead,
  kWrite,
  kCreate,
  kMkdir,
  kSymlink,
  kMknod,
  kRemove,
  kRmdir,
  kRename,
  kLink,
  kReaddir,
  kReaddirplus,
  kFsstat,
  kFsinfo,
  kPathconf,
  kCommit,
};
inline constexpr uint32_t kNfsProcedures = 22;

}  // namespace rpcrdma
