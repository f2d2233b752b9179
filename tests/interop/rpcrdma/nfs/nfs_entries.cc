// Procedures that change folders: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tests/interop/rpcrdma/nfs/attributes.h"
#include "tests/interop/rpcrdma/nfs/nfs_conversions.h"
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"

namespace rpcrdma {
namespace {

constexpr mode_t kFileMode = 0600, kFolderMode = 0700;  // until the attributes are set

bool IsDots(const std::string& name) { return name == "." || name == ".."; }

// O_EXCL: follows no symbolic link, and opens nothing that exists.
Status MakeNew(const Node& folder, const std::string& name) {
  const Descriptor file(openat(folder.descriptor.get(), name.c_str(),
                               O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kFileMode));
  return file ? Status::kOk : StatusOf(errno);
}

Status ResultOf(int result) { return result == 0 ? Status::kOk : StatusOf(errno); }

}  // namespace

Status NfsProcedures::MakeExclusive(const Target& target, const Verifier& verifier, Node* file) {
  const Status made = MakeNew(target.folder, target.name);
  if (made != Status::kOk && made != Status::kExists) return made;
  const Status status = folder_->OpenEntry(target.folder, target.name, file);
  if (status != Status::kOk) return status;
  if (made == Status::kOk) return StoreVerifier(*file, verifier);
  // The same call again, because the client has not got the first answer.
  return HasVerifier(*file, verifier) ? Status::kOk : Status::kExists;
}

Status NfsProcedures::MakeFile(const CreateArguments& arguments, const Target& target, Node* file) {
  const CreateHow& how = arguments.how;
  if (how.mode == NFS3_EXCLUSIVE) return MakeExclusive(target, how.CreateHow_u.verifier, file);
  SetAttributes attributes = how.CreateHow_u.attributes;
  const Status made = MakeNew(target.folder, target.name);
  if (made != Status::kOk && (made != Status::kExists || how.mode == NFS3_GUARDED)) return made;
  Status status = folder_->OpenEntry(target.folder, target.name, file);
  if (status != Status::kOk) return status;
  if (made == Status::kExists) {
    if (!file->IsRegular()) return Status::kExists;
    // An existing file keeps its other attributes, as with open(2).
    return attributes.size.set ? SetSizeOf(*file, attributes.size.SetSize_u.value) : Status::kOk;
  }
  return Apply(*file, attributes);
}

bool NfsProcedures::Create(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_CreateArguments);
  if (!arguments) return false;
  const Target target = Find(arguments->where);
  Status status = target.status;
  Node made;
  if (status == Status::kOk)
    status = IsDots(target.name) ? Status::kExists : MakeFile(*arguments, target, &made);
  PutMade(status, target, made, out);
  return true;
}

bool NfsProcedures::Mkdir(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_MkdirArguments);
  if (!arguments) return false;
  const Target target = Find(arguments->where);
  Status status = target.status;
  Node made;
  if (status == Status::kOk)
    status = ResultOf(mkdirat(target.folder.descriptor.get(), target.name.c_str(), kFolderMode));
  if (status == Status::kOk) status = folder_->OpenEntry(target.folder, target.name, &made);
  if (status == Status::kOk) status = Apply(made, arguments->attributes);
  PutMade(status, target, made, out);
  return true;
}

bool NfsProcedures::Symlink(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_SymlinkArguments);
  if (!arguments) return false;
  const Target target = Find(arguments->where);
  const std::string path = PathOf(arguments->target);
  Status status = target.status;
  Node made;
  if (status == Status::kOk && path.find('\0') != path.npos) status = Status::kInvalid;
  // Any path may be stored: only clients follow it.
  if (status == Status::kOk)
    status = ResultOf(symlinkat(path.c_str(), target.folder.descriptor.get(), target.name.c_str()));
  if (status == Status::kOk) status = folder_->OpenEntry(target.folder, target.name, &made);
  if (status == Status::kOk) status = Apply(made, arguments->attributes);
  PutMade(status, target, made, out);
  return true;
}

bool NfsProcedures::Mknod(Arguments* in, Reply* out) {
  const auto where = in->Take(xdr_Entry);
  if (!where) return false;
  const Target target = Find(*where);
  PutMade(target.status == Status::kOk ? Status::kNotSupported : target.status, target, Node{},
          out);
  return true;
}

bool NfsProcedures::RemoveEntry(Arguments* in, Reply* out, int flags) {
  const auto where = in->Take(xdr_Entry);
  if (!where) return false;
  const Target target = Find(*where);
  Status status = target.status;
  if (status == Status::kOk && IsDots(target.name)) status = Status::kInvalid;
  if (status == Status::kOk)
    status = ResultOf(unlinkat(target.folder.descriptor.get(), target.name.c_str(), flags));
  out->PutStatus(status);
  out->Put(xdr_WccResult, WccResult{Wcc(target.folder)});
  return true;
}

bool NfsProcedures::Remove(Arguments* in, Reply* out) { return RemoveEntry(in, out, 0); }
bool NfsProcedures::Rmdir(Arguments* in, Reply* out) { return RemoveEntry(in, out, AT_REMOVEDIR); }

bool NfsProcedures::Rename(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_RenameArguments);
  if (!arguments) return false;
  const Target from = Find(arguments->from), to = Find(arguments->to);
  Status status = from.status != Status::kOk ? from.status : to.status;
  if (status == Status::kOk && (IsDots(from.name) || IsDots(to.name))) status = Status::kInvalid;
  Node moved;
  if (status == Status::kOk) status = folder_->OpenEntry(from.folder, from.name, &moved);
  if (status == Status::kOk) {
    status = ResultOf(renameat(from.folder.descriptor.get(), from.name.c_str(),
                               to.folder.descriptor.get(), to.name.c_str()));
  }
  if (status == Status::kOk) folder_->HandleOf(moved.id(), to.folder.id(), to.name);
  out->PutStatus(status);
  out->Put(xdr_RenameResult, RenameResult{Wcc(from.folder), Wcc(to.folder)});
  return true;
}

bool NfsProcedures::Link(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_LinkArguments);
  if (!arguments) return false;
  Node file;
  Status status = folder_->Open(BytesOf(arguments->file), &file);
  const Target target = Find(arguments->link);
  if (status == Status::kOk) status = target.status;
  if (status == Status::kOk && file.IsFolder()) status = Status::kIsFolder;
  // (By its path in /proc, because a descriptor needs a capability to be linked.)
  if (status == Status::kOk) {
    status =
        ResultOf(linkat(AT_FDCWD, file.descriptor.ProcPath().c_str(),
                        target.folder.descriptor.get(), target.name.c_str(), AT_SYMLINK_FOLLOW));
  }
  out->PutStatus(status);
  out->Put(xdr_LinkResult, LinkResult{Post(file), Wcc(target.folder)});
  return true;
}

}  // namespace rpcrdma
