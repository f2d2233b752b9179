// MOUNT version 3.
#include "tests/interop/rpcrdma/nfs/mount_procedures.h"

#include <mount3.h>

#include <utility>

namespace rpcrdma {
namespace {

// mountstat3
enum class MountStatus : uint32_t { kOk = 0, kNoEntry = 2 };

constexpr size_t kMaxClient = MOUNT3_NAME_BYTES;

std::string TextOf(const MountPath& path) { return {path.MountPath_val, path.MountPath_len}; }

MountPath PathFor(const std::string& path) {
  return {static_cast<u_int>(path.size()), const_cast<char*>(path.data())};
}

MountName NameFor(const std::string& name) {
  return {static_cast<u_int>(name.size()), const_cast<char*>(name.data())};
}

}  // namespace

MountProcedures::MountProcedures(const ExportedFolder* folder, std::string path)
    : folder_(folder), path_(std::move(path)) {}

Ran MountProcedures::Run(uint32_t procedure, const std::string& client, Arguments* in, Reply* out) {
  enum : uint32_t { kNull, kMnt, kDump, kUmnt, kUmntAll, kExport };
  switch (procedure) {
    case kNull:
      return Ran::kYes;
    case kMnt:
      return Mnt(client, in, out) ? Ran::kYes : Ran::kGarbageArguments;
    case kDump:
      Dump(out);
      return Ran::kYes;
    case kUmnt:
      return Umnt(client, in) ? Ran::kYes : Ran::kGarbageArguments;
    case kUmntAll: {
      const std::scoped_lock lock(mutex_);
      std::erase_if(mounts_, [&](const Mount& mount) { return mount.client == client; });
      return Ran::kYes;
    }
    case kExport:
      Export(out);
      return Ran::kYes;
    default:
      return Ran::kNoSuchProcedure;
  }
}

bool MountProcedures::IsExported(std::string path) const {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path == path_;
}

bool MountProcedures::Mnt(const std::string& client, Arguments* in, Reply* out) {
  const auto path = in->Take(xdr_MountPath);
  if (!path) return false;
  if (!IsExported(TextOf(*path))) {
    out->PutWord(static_cast<uint32_t>(MountStatus::kNoEntry));
    return true;
  }
  FileHandle root = folder_->RootHandle();
  u_int flavors[] = {AUTH_SYS, AUTH_NONE};
  out->PutWord(static_cast<uint32_t>(MountStatus::kOk));
  out->Put(xdr_MountOk, MountOk{{kHandleBytes, root.data()}, {2, flavors}});
  const Mount mount{client.substr(0, kMaxClient), path_};
  const std::scoped_lock lock(mutex_);
  std::erase(mounts_, mount);
  mounts_.push_back(mount);
  if (mounts_.size() > kMaxMounts) mounts_.pop_front();
  return true;
}

bool MountProcedures::Umnt(const std::string& client, Arguments* in) {
  const auto path = in->Take(xdr_MountPath);
  if (!path) return false;
  if (!IsExported(TextOf(*path))) return true;  // UMNT has no result
  const std::scoped_lock lock(mutex_);
  std::erase(mounts_, Mount{client.substr(0, kMaxClient), path_});
  return true;
}

void MountProcedures::Dump(Reply* out) {
  const std::scoped_lock lock(mutex_);
  for (const Mount& mount : mounts_) {
    out->PutWord(TRUE);
    out->Put(xdr_MountEntry, MountEntry{NameFor(mount.client), PathFor(mount.path)});
  }
  out->PutWord(FALSE);
}

void MountProcedures::Export(Reply* out) {
  out->PutWord(TRUE);
  out->Put(xdr_MountPath, PathFor(path_));
  out->PutWord(FALSE);  // no groups: every client may mount it
  out->PutWord(FALSE);
}

}  // namespace rpcrdma
