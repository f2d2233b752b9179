// Which procedure has which number, and what several procedures use.
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"

#include <cstring>
#include <iterator>
#include <string_view>

#include "tests/interop/rpcrdma/nfs/attributes.h"
#include "tests/interop/rpcrdma/nfs/nfs_conversions.h"

namespace rpcrdma {

NfsProcedures::NfsProcedures(ExportedFolder* folder, const std::array<char, 8>& verifier)
    : folder_(folder), verifier_(verifier) {
  constexpr std::string_view kWhat = "listing";
  const uint64_t hash = SipHash(folder->key(), std::as_bytes(std::span(kWhat)));
  std::memcpy(listing_verifier_.data(), &hash, sizeof hash);
}

Ran NfsProcedures::Run(uint32_t procedure, Arguments* in, Reply* out) {
  static constexpr Procedure kProcedures[] = {
      &NfsProcedures::Null,   &NfsProcedures::Getattr, &NfsProcedures::Setattr,
      &NfsProcedures::Lookup, &NfsProcedures::Access,  &NfsProcedures::Readlink,
      &NfsProcedures::Read,   &NfsProcedures::Write,   &NfsProcedures::Create,
      &NfsProcedures::Mkdir,  &NfsProcedures::Symlink, &NfsProcedures::Mknod,
      &NfsProcedures::Remove, &NfsProcedures::Rmdir,   &NfsProcedures::Rename,
      &NfsProcedures::Link,   &NfsProcedures::Readdir, &NfsProcedures::Readdirplus,
      &NfsProcedures::Fsstat, &NfsProcedures::Fsinfo,  &NfsProcedures::Pathconf,
      &NfsProcedures::Commit,
  };
  if (procedure >= std::size(kProcedures)) return Ran::kNoSuchProcedure;
  return (this->*kProcedures[procedure])(in, out) ? Ran::kYes : Ran::kGarbageArguments;
}

bool NfsProcedures::IsRepeatable(uint32_t procedure) {
  enum : uint32_t { kSetattr = 2, kCreate = 8, kLink = 15 };
  return procedure != kSetattr && (procedure < kCreate || procedure > kLink);
}

bool NfsProcedures::Null(Arguments*, Reply*) { return true; }

PostAttributes NfsProcedures::Post(const Node& node) const {
  return PostOf(node, folder_->file_system());
}

WccData NfsProcedures::Wcc(const Node& node) const { return WccOf(node, folder_->file_system()); }

NfsProcedures::Target NfsProcedures::Find(const Entry& entry) {
  Target target;
  target.name = NameOf(entry.name);
  target.status = folder_->OpenFolder(BytesOf(entry.folder), &target.folder);
  if (target.status == Status::kOk) target.status = CheckName(target.name);
  return target;
}

void NfsProcedures::PutMade(Status status, const Target& target, const Node& made, Reply* out) {
  out->PutStatus(status);
  if (status != Status::kOk) return out->Put(xdr_WccData, Wcc(target.folder));
  FileHandle handle = folder_->HandleOf(made.id(), target.folder.id(), target.name);
  out->Put(xdr_CreateOk, CreateOk{PresentHandle(&handle), Post(made), Wcc(target.folder)});
}

}  // namespace rpcrdma
