// Procedures that list folders: READDIR, READDIRPLUS.
#include <algorithm>
#include <cstring>

#include "tests/interop/rpcrdma/nfs/attributes.h"
#include "tests/interop/rpcrdma/nfs/folder_page.h"
#include "tests/interop/rpcrdma/nfs/nfs_conversions.h"
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"

namespace rpcrdma {
namespace {

// XDR bytes of the smallest entry: TRUE, file ID, length of the name, a name, cookie.
constexpr size_t kMinEntryBytes = 4 + 8 + 4 + 4 + 8;
// FALSE for the end of the list, and whether the folder ends.
constexpr size_t kTailBytes = 8;
// A list without entries: attributes, verifier, tail.
constexpr size_t kEmptyListBytes = 4 + 84 + 8 + kTailBytes;
constexpr size_t kStatusBytes = 4;  // not counted by the limits of a call

ReaddirEntry EntryFor(FolderEntry* entry) {
  return {
      entry->inode, {static_cast<u_int>(entry->name.size()), entry->name.data()}, entry->cookie};
}

// Appends the entry unless the reply would then have more than `end` bytes.
template <class T>
bool PutEntry(XdrRoutine<T> routine, const T& entry, size_t end, Reply* out) {
  const size_t before = out->size();
  out->PutWord(TRUE);
  out->Put(routine, entry);
  if (out->size() + kTailBytes <= end) return true;
  out->Truncate(before);
  return false;
}

}  // namespace

ReaddirplusEntry NfsProcedures::Describe(const Node& folder, const FolderEntry& entry,
                                         FileHandle* handle) {
  ReaddirplusEntry described{};
  // Not the parent's: it may lie outside of the export.
  struct statx attributes {};
  if (entry.name == ".." || folder_->StatEntry(folder, entry.name, &attributes) != Status::kOk)
    return described;
  *handle = folder_->HandleOf(IdOf(attributes), folder.id(), entry.name);
  described.handle = PresentHandle(handle);
  described.attributes = Present(AttributesOf(attributes, folder_->file_system()));
  return described;
}

template <class Put>
void NfsProcedures::PutListing(Status status, const Node& folder, FolderPage* page, size_t limit,
                               Reply* out, Put put) {
  const size_t begin = out->size();
  if (status == Status::kOk && limit >= kEmptyListBytes) {
    out->PutStatus(status);
    ReaddirHead head{Post(folder), {}};
    std::copy(listing_verifier_.begin(), listing_verifier_.end(), head.verifier);
    out->Put(xdr_ReaddirHead, head);
    size_t written = 0;
    while (written < page->entries.size() &&
           put(&page->entries[written], begin + kStatusBytes + limit))
      ++written;
    const bool end = page->end && written == page->entries.size();
    out->PutWord(FALSE);
    out->PutWord(end ? TRUE : FALSE);
    if (end || written > 0) return;
  }
  out->Truncate(begin);
  out->PutStatus(status == Status::kOk ? Status::kTooSmall : status);
  out->Put(xdr_PostAttributes, Post(folder));
}

Status NfsProcedures::ReadListing(const Handle& handle, uint64_t cookie, const Verifier& verifier,
                                  size_t limit, Node* folder, FolderPage* page) {
  const Status status = folder_->OpenFolder(BytesOf(handle), folder);
  if (status != Status::kOk) return status;
  if (cookie != 0 && std::memcmp(verifier, listing_verifier_.data(), listing_verifier_.size()) != 0)
    return Status::kBadCookie;
  return ReadPage(*folder, folder_->ParentOf(folder->id()).inode, folder_->key(), cookie,
                  limit / kMinEntryBytes, page);
}

bool NfsProcedures::Readdir(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_ReaddirArguments);
  if (!arguments) return false;
  const size_t limit = std::min(arguments->count, kMaxListingBytes);
  Node folder;
  FolderPage page;
  const Status status =
      ReadListing(arguments->folder, arguments->cookie, arguments->verifier, limit, &folder, &page);
  PutListing(status, folder, &page, limit, out, [&](FolderEntry* entry, size_t end) {
    return PutEntry(xdr_ReaddirEntry, EntryFor(entry), end, out);
  });
  return true;
}

bool NfsProcedures::Readdirplus(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_ReaddirplusArguments);
  if (!arguments) return false;
  const size_t limit = std::min(arguments->maximal_count, kMaxListingBytes);
  Node folder;
  FolderPage page;
  const Status status =
      ReadListing(arguments->folder, arguments->cookie, arguments->verifier, limit, &folder, &page);
  size_t names = 0;  // bytes of entries without attributes and handles
  PutListing(status, folder, &page, limit, out, [&](FolderEntry* entry, size_t end) {
    const bool first = names == 0;
    names += kMinEntryBytes - 8 + Padded(entry->name.size());
    if (!first && names > arguments->folder_count) return false;
    FileHandle handle;
    ReaddirplusEntry described = Describe(folder, *entry, &handle);
    described.entry = EntryFor(entry);
    return PutEntry(xdr_ReaddirplusEntry, described, end, out);
  });
  return true;
}

}  // namespace rpcrdma
