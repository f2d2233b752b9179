// Procedures that look at files or set attributes: GETATTR, SETATTR, LOOKUP, ACCESS, READLINK,
// FSSTAT, FSINFO, PATHCONF.
#include <fcntl.h>
#include <limits.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>

#include "tests/interop/rpcrdma/nfs/attributes.h"
#include "tests/interop/rpcrdma/nfs/nfs_conversions.h"
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"

namespace rpcrdma {
namespace {

// Bits of ACCESS (RFC 1813, 3.3.4).
enum AccessBit : uint32_t {
  kMayRead = 0x01,
  kMayLookup = 0x02,
  kMayModify = 0x04,
  kMayExtend = 0x08,
  kMayDelete = 0x10,
  kMayExecute = 0x20,
};

bool May(const Node& node, int access) {
  return faccessat(node.descriptor.get(), "", access, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

// What the server's user may do. Entries are deleted with the permission for their folder.
uint32_t AccessTo(const Node& node) {
  uint32_t access = 0;
  if (May(node, R_OK)) access |= kMayRead;
  if (May(node, W_OK)) access |= kMayModify | kMayExtend | (node.IsFolder() ? kMayDelete : 0u);
  if (May(node, X_OK)) access |= node.IsFolder() ? kMayLookup : kMayExecute;
  return access;
}

// Properties of FSINFO (RFC 1813, 3.3.19).
enum Property : uint32_t {
  kLinks = 0x01,
  kSymbolicLinks = 0x02,
  kHomogeneous = 0x08,
  kCanSetTime = 0x10
};

bool Matches(const Guard& guard, const Node& node) {
  if (!guard.check) return true;
  const Time now = TimeOf(node.attributes.stx_ctime), wanted = guard.Guard_u.changed;
  return now.seconds == wanted.seconds && now.nanoseconds == wanted.nanoseconds;
}

}  // namespace

bool NfsProcedures::Getattr(Arguments* in, Reply* out) {
  const auto handle = in->Take(xdr_Handle);
  if (!handle) return false;
  Node node;
  const Status status = folder_->Open(BytesOf(*handle), &node);
  out->PutStatus(status);
  if (status == Status::kOk)
    out->Put(xdr_Attributes, AttributesOf(node.attributes, folder_->file_system()));
  return true;
}

bool NfsProcedures::Setattr(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_SetattrArguments);
  if (!arguments) return false;
  Node node;
  Status status = folder_->Open(BytesOf(arguments->object), &node);
  if (status == Status::kOk && !Matches(arguments->guard, node)) status = Status::kNotSync;
  if (status == Status::kOk) status = Apply(node, arguments->attributes);
  out->PutStatus(status);
  out->Put(xdr_WccResult, WccResult{Wcc(node)});
  return true;
}

bool NfsProcedures::Lookup(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_Entry);
  if (!arguments) return false;
  const std::string name = NameOf(arguments->name);
  Node folder, found;
  Status status = folder_->OpenFolder(BytesOf(arguments->folder), &folder);
  if (status == Status::kOk) status = folder_->OpenEntry(folder, name, &found);
  out->PutStatus(status);
  if (status != Status::kOk) {
    out->Put(xdr_PostAttributes, Post(folder));
    return true;
  }
  FileHandle handle = folder_->HandleOf(found.id(), folder.id(), name);
  out->Put(xdr_LookupOk, LookupOk{HandleFor(&handle), Post(found), Post(folder)});
  return true;
}

bool NfsProcedures::Access(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_AccessArguments);
  if (!arguments) return false;
  Node node;
  const Status status = folder_->Open(BytesOf(arguments->object), &node);
  out->PutStatus(status);
  if (status == Status::kOk) {
    out->Put(xdr_AccessOk, AccessOk{Post(node), arguments->access & AccessTo(node)});
  } else {
    out->Put(xdr_PostAttributes, Post(node));
  }
  return true;
}

bool NfsProcedures::Readlink(Arguments* in, Reply* out) {
  const auto handle = in->Take(xdr_Handle);
  if (!handle) return false;
  Node node;
  Status status = folder_->Open(BytesOf(*handle), &node);
  char path[NFS3_PATH_BYTES];
  ssize_t length = 0;
  if (status == Status::kOk) {
    // EINVAL for what is no symbolic link, as RFC 1813, 3.3.5 wants it; the kernel says ENOENT for
    // an empty path.
    length = readlinkat(node.descriptor.get(), "", path, sizeof path);
    if (length < 0) status = errno == ENOENT ? Status::kInvalid : StatusOf(errno);
  }
  out->PutStatus(status);
  if (status != Status::kOk) {
    out->Put(xdr_PostAttributes, Post(node));
    return true;
  }
  out->Put(xdr_ReadlinkOk, ReadlinkOk{Post(node), {static_cast<u_int>(length), path}});
  out->SetBulk(out->size() - Padded(static_cast<size_t>(length)), static_cast<size_t>(length));
  return true;
}

bool NfsProcedures::Fsstat(Arguments* in, Reply* out) {
  const auto handle = in->Take(xdr_Handle);
  if (!handle) return false;
  Node node;
  struct statvfs system {};
  Status status = folder_->Open(BytesOf(*handle), &node);
  if (status == Status::kOk && fstatvfs(node.descriptor.get(), &system) != 0)
    status = StatusOf(errno);
  out->PutStatus(status);
  if (status != Status::kOk) {
    out->Put(xdr_PostAttributes, Post(node));
    return true;
  }
  const uint64_t block = system.f_frsize;
  out->Put(xdr_FsstatOk,
           FsstatOk{Post(node), block * system.f_blocks, block * system.f_bfree,
                    block * system.f_bavail, system.f_files, system.f_ffree, system.f_favail, 0});
  return true;
}

template <class Put>
bool NfsProcedures::AboutNode(Arguments* in, Reply* out, Put&& put) {
  const auto handle = in->Take(xdr_Handle);
  if (!handle) return false;
  Node node;
  const Status status = folder_->Open(BytesOf(*handle), &node);
  out->PutStatus(status);
  if (status == Status::kOk) {
    put(node);
  } else {
    out->Put(xdr_PostAttributes, Post(node));
  }
  return true;
}

bool NfsProcedures::Fsinfo(Arguments* in, Reply* out) {
  return AboutNode(in, out, [this, out](const Node& node) {
    FsinfoOk info{};
    info.attributes = Post(node);
    info.read_maximum = info.read_preferred = info.write_maximum = info.write_preferred =
        kMaxIoBytes;
    info.read_multiple = info.write_multiple = 4096;
    info.folder_preferred = kMaxListingBytes;
    info.file_maximum = std::numeric_limits<int64_t>::max();
    info.time_step = {0, 1};
    info.properties = kLinks | kSymbolicLinks | kHomogeneous | kCanSetTime;
    out->Put(xdr_FsinfoOk, info);
  });
}

bool NfsProcedures::Pathconf(Arguments* in, Reply* out) {
  return AboutNode(in, out, [this, out](const Node& node) {
    const long links = fpathconf(node.descriptor.get(), _PC_LINK_MAX);
    out->Put(xdr_PathconfOk,
             PathconfOk{Post(node), links > 0 ? static_cast<u_int>(links) : _POSIX_LINK_MAX,
                        NAME_MAX, TRUE, TRUE, FALSE, TRUE});
  });
}

}  // namespace rpcrdma
