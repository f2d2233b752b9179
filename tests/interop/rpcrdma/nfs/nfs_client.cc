// The calls of the NFS client.
#include "tests/interop/rpcrdma/nfs/nfs_client.h"

#include <algorithm>

#include "tests/interop/rpcrdma/nfs/call_head.h"
#include "tests/interop/rpcrdma/rpc_message.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kProgram = 100003, kVersion = 3;
// Heads of calls with their longest arguments but data (LINK, RENAME: two handles and names).
constexpr size_t kMostCallBytes = 16 << 10;
constexpr size_t kMostResultBytes = 512;  // of all results but data, paths and listings
constexpr size_t kMostPathBytes = NFS3_PATH_BYTES;
constexpr size_t kMostListingBytes = 64 << 10;

// The result of a failure that has no fields.
struct Nothing {};
bool_t xdr_Nothing(XDR*, Nothing*) { return TRUE; }

Handle HandleFor(const RemoteHandle& handle) {
  return {static_cast<u_int>(handle.size()), const_cast<char*>(handle.data())};
}

::Name NameFor(std::string_view name) {
  return {static_cast<u_int>(name.size()), const_cast<char*>(name.data())};
}

Entry EntryFor(const RemoteHandle& folder, std::string_view name) {
  return {HandleFor(folder), NameFor(name)};
}

RemoteHandle Copy(const Handle& handle) { return {handle.Handle_val, handle.Handle_len}; }

[[noreturn]] void Fail(const std::string& what) { throw NfsFailure(what); }

// Checks that the results are those of a failure, and nothing else. Returns `status`.
template <class T>
Status TakeFailure(Status status, XdrRoutine<T> routine, Arguments* results) {
  if (!results->Take(routine) || !results->Rest().empty())
    Fail("a result of failure that does not decode");
  return status;
}

}  // namespace

NfsClient::NfsClient(Client* client, size_t most_bytes, int limit_ms)
    : client_(client), most_bytes_(most_bytes), limit_ms_(limit_ms) {
  const size_t reply_bytes =
      kRpcReplyBytes + kMostResultBytes + std::max(Padded(most_bytes), kMostListingBytes);
  if (client->Allocate(kMostCallBytes + Padded(most_bytes), std::max(most_bytes, kMostPathBytes),
                       reply_bytes, request_) != AllocationResult::kAllocated) {
    Fail("no slot for calls");
  }
}

NfsClient::~NfsClient() {
  // Without an end of the call the server may still write into its memory.
  if (request_->status() == CallStatus::kPending) client_->Close();
  client_->Free(request_);
}

// ---- Messages.

void NfsClient::Begin(Nfs procedure) {
  const std::vector<std::byte> head =
      RootCallHead(0, kProgram, kVersion, static_cast<uint32_t>(procedure));
  std::copy(head.begin(), head.end(), request_->call().begin());
  request_->shape = CallShape();
  request_->shape.message_bytes = head.size();
  request_->shape.most_reply_bytes = kRpcReplyBytes + kMostResultBytes;
}

template <class T>
void NfsClient::Append(XdrRoutine<T> routine, const T& value) {
  const std::span<std::byte> room = request_->call().subspan(request_->shape.message_bytes);
  XDR xdr{};
  xdrmem_create(&xdr, reinterpret_cast<char*>(room.data()), static_cast<u_int>(room.size()),
                XDR_ENCODE);
  // The routines take a pointer to a mutable value also to encode, and only read then.
  if (!routine(&xdr, const_cast<T*>(&value))) Fail("arguments that cannot be encoded");
  request_->shape.message_bytes += xdr_getpos(&xdr);
}

// Bytes that end a call and may be a Read chunk.
void NfsClient::AppendBulk(std::span<const std::byte> data) {
  const size_t offset = request_->shape.message_bytes;
  const size_t padded = Padded(data.size());
  if (padded > request_->call().size() - offset) Fail("more data than the call has room for");
  const std::span<std::byte> room = request_->call().subspan(offset, padded);
  std::fill(std::copy(data.begin(), data.end(), room.begin()), room.end(), std::byte{0});
  if (placement_ == Placement::kDirect) request_->shape.bulk = {offset, data.size()};
  request_->shape.message_bytes += padded;
}

void NfsClient::Send() {
  const CallStatus status = client_->Call(*request_, limit_ms_);
  if (status != CallStatus::kDone) {
    Fail("the call ended with status " + std::to_string(static_cast<int>(status)));
  }
}

std::span<const std::byte> NfsClient::Results() const {
  if (request_->status() != CallStatus::kDone) Fail("no reply");
  XdrReader reader(request_->reply());
  uint32_t xid = 0;
  AcceptStatus accepted = AcceptStatus::kSystemError;
  if (!DecodeRpcReply(reader, xid, accepted)) Fail("the reply has no head of an accepted call");
  if (accepted != AcceptStatus::kSuccess) {
    Fail("the server's accept status is " + std::to_string(static_cast<uint32_t>(accepted)));
  }
  return request_->reply().subspan(reader.position());
}

Status NfsClient::TakeStatus(Arguments* results) const {
  const auto word = results->Take(xdr_u_int);
  if (!word) Fail("a reply without a status");
  return static_cast<Status>(*word);
}

std::span<const std::byte> NfsClient::Bulk(uint32_t length, Arguments* results) const {
  const std::span<const std::byte> rest = results->Rest();
  if (plan().write_chunk && rest.empty() && request_->data().size() == length) {
    return request_->data();
  }
  if (plan().write_chunk || rest.size() != Padded(length)) Fail("other data than its length says");
  return rest.first(length);
}

template <class A, class Ok, class Failed, class Take>
Status NfsClient::Run(Nfs procedure, XdrRoutine<A> routine, const A& arguments, XdrRoutine<Ok> ok,
                      XdrRoutine<Failed> failed, Take take) {
  Begin(procedure);
  Append(routine, arguments);
  Send();
  Arguments results(Results());
  const Status status = TakeStatus(&results);
  if (status != Status::kOk) return TakeFailure(status, failed, &results);
  const auto result = results.Take(ok);
  if (!result || !results.Rest().empty()) Fail("a result that does not decode");
  take(*result);
  return status;
}

// ---- Calls about one file.

void NfsClient::Null() {
  Begin(Nfs::kNull);
  Send();
  if (!Results().empty()) Fail("bytes behind the result");
}

Status NfsClient::Getattr(const RemoteHandle& file, Attributes* attributes) {
  return Run(Nfs::kGetattr, xdr_Handle, HandleFor(file), xdr_Attributes, xdr_Nothing,
             [&](const Attributes& result) { *attributes = result; });
}

Status NfsClient::Setattr(const RemoteHandle& file, const SetAttributes& attributes,
                          const Time* changed) {
  SetattrArguments arguments{HandleFor(file), attributes, {}};
  arguments.guard.check = changed != nullptr;
  if (changed != nullptr) arguments.guard.Guard_u.changed = *changed;
  return Run(Nfs::kSetattr, xdr_SetattrArguments, arguments, xdr_WccResult, xdr_WccResult,
             [](const WccResult&) {});
}

Status NfsClient::Lookup(const RemoteHandle& folder, std::string_view name, RemoteHandle* found) {
  return Run(Nfs::kLookup, xdr_Entry, EntryFor(folder, name), xdr_LookupOk, xdr_PostAttributes,
             [&](const LookupOk& result) { *found = Copy(result.object); });
}

Status NfsClient::Access(const RemoteHandle& file, uint32_t wanted, uint32_t* granted) {
  return Run(Nfs::kAccess, xdr_AccessArguments, AccessArguments{HandleFor(file), wanted},
             xdr_AccessOk, xdr_PostAttributes,
             [&](const AccessOk& result) { *granted = result.access; });
}

// The path may be placed directly: it is not decoded with the rest.
Status NfsClient::Readlink(const RemoteHandle& link, std::string* path) {
  Begin(Nfs::kReadlink);
  Append(xdr_Handle, HandleFor(link));
  request_->shape.data_room = kMostPathBytes;
  Send();
  Arguments results(Results());
  const Status status = TakeStatus(&results);
  if (status != Status::kOk) return TakeFailure(status, xdr_PostAttributes, &results);
  if (!results.Take(xdr_PostAttributes)) Fail("a result that does not decode");
  const auto length = results.Take(xdr_u_int);
  if (!length) Fail("a result that does not decode");
  const std::span<const std::byte> bytes = Bulk(*length, &results);
  path->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return status;
}

Status NfsClient::Commit(const RemoteHandle& file, uint64_t offset, uint32_t count,
                         CommitOk* result) {
  return Run(Nfs::kCommit, xdr_CommitArguments, CommitArguments{HandleFor(file), offset, count},
             xdr_CommitOk, xdr_WccData, [&](const CommitOk& ok) { *result = ok; });
}

// ---- Data.

void NfsClient::PrepareRead(const RemoteHandle& file, uint64_t offset, uint32_t count) {
  if (count > most_bytes_) Fail("more data than the reply has room for");
  Begin(Nfs::kRead);
  Append(xdr_ReadArguments, ReadArguments{HandleFor(file), offset, count});
  if (placement_ == Placement::kDirect) {
    request_->shape.data_room = count;
  } else {
    request_->shape.most_reply_bytes += Padded(count);
  }
}

Status NfsClient::FinishRead(ReadResult* result) {
  Arguments results(Results());
  const Status status = TakeStatus(&results);
  if (status != Status::kOk) return TakeFailure(status, xdr_PostAttributes, &results);
  const auto head = results.Take(xdr_ReadHead);
  if (!head || head->count != head->length) Fail("a result that does not decode");
  *result = {Bulk(head->length, &results), head->end_of_file != 0};
  return status;
}

Status NfsClient::Read(const RemoteHandle& file, uint64_t offset, uint32_t count,
                       ReadResult* result) {
  PrepareRead(file, offset, count);
  Send();
  return FinishRead(result);
}

void NfsClient::PrepareWrite(const RemoteHandle& file, uint64_t offset,
                             std::span<const std::byte> data, uint32_t stable) {
  Begin(Nfs::kWrite);
  const auto length = static_cast<uint32_t>(data.size());
  Append(xdr_WriteHead, WriteHead{HandleFor(file), offset, length, stable, length});
  AppendBulk(data);
}

Status NfsClient::FinishWrite(WriteOk* result) {
  Arguments results(Results());
  const Status status = TakeStatus(&results);
  if (status != Status::kOk) return TakeFailure(status, xdr_WccData, &results);
  const auto ok = results.Take(xdr_WriteOk);
  if (!ok || !results.Rest().empty()) Fail("a result that does not decode");
  *result = *ok;
  return status;
}

Status NfsClient::Write(const RemoteHandle& file, uint64_t offset, std::span<const std::byte> data,
                        uint32_t stable, WriteOk* result) {
  PrepareWrite(file, offset, data, stable);
  Send();
  return FinishWrite(result);
}

// ---- Names.

template <class A>
Status NfsClient::Make(Nfs procedure, XdrRoutine<A> routine, const A& arguments,
                       RemoteHandle* made) {
  return Run(procedure, routine, arguments, xdr_CreateOk, xdr_WccData, [&](const CreateOk& result) {
    if (!result.object.follow) Fail("no handle of what was made");
    *made = Copy(result.object.PostHandle_u.handle);
  });
}

Status NfsClient::Create(const RemoteHandle& folder, std::string_view name, const CreateHow& how,
                         RemoteHandle* made) {
  return Make(Nfs::kCreate, xdr_CreateArguments, CreateArguments{EntryFor(folder, name), how},
              made);
}

Status NfsClient::Mkdir(const RemoteHandle& folder, std::string_view name,
                        const SetAttributes& attributes, RemoteHandle* made) {
  return Make(Nfs::kMkdir, xdr_MkdirArguments, MkdirArguments{EntryFor(folder, name), attributes},
              made);
}

// The target may be a Read chunk.
Status NfsClient::Symlink(const RemoteHandle& folder, std::string_view name,
                          std::string_view target, RemoteHandle* made) {
  Begin(Nfs::kSymlink);
  Append(xdr_Entry, EntryFor(folder, name));
  Append(xdr_SetAttributes, SetAttributes{});
  Append(xdr_u_int, static_cast<u_int>(target.size()));
  AppendBulk(std::as_bytes(std::span(target)));
  Send();
  Arguments results(Results());
  const Status status = TakeStatus(&results);
  if (status != Status::kOk) return TakeFailure(status, xdr_WccData, &results);
  const auto ok = results.Take(xdr_CreateOk);
  if (!ok || !ok->object.follow || !results.Rest().empty()) Fail("a result that does not decode");
  *made = Copy(ok->object.PostHandle_u.handle);
  return status;
}

Status NfsClient::Remove(const RemoteHandle& folder, std::string_view name) {
  return Run(Nfs::kRemove, xdr_Entry, EntryFor(folder, name), xdr_WccResult, xdr_WccResult,
             [](const WccResult&) {});
}

Status NfsClient::Rmdir(const RemoteHandle& folder, std::string_view name) {
  return Run(Nfs::kRmdir, xdr_Entry, EntryFor(folder, name), xdr_WccResult, xdr_WccResult,
             [](const WccResult&) {});
}

Status NfsClient::Rename(const RemoteHandle& from, std::string_view name, const RemoteHandle& to,
                         std::string_view new_name) {
  return Run(Nfs::kRename, xdr_RenameArguments,
             RenameArguments{EntryFor(from, name), EntryFor(to, new_name)}, xdr_RenameResult,
             xdr_RenameResult, [](const RenameResult&) {});
}

Status NfsClient::Link(const RemoteHandle& file, const RemoteHandle& folder,
                       std::string_view name) {
  return Run(Nfs::kLink, xdr_LinkArguments, LinkArguments{HandleFor(file), EntryFor(folder, name)},
             xdr_LinkResult, xdr_LinkResult, [](const LinkResult&) {});
}

// ---- Listings.

// `take_entry` decodes one entry.
template <class A, class TakeEntry>
Status NfsClient::List(Nfs procedure, XdrRoutine<A> routine, const A& arguments, uint32_t bytes,
                       RemoteListing* listing, TakeEntry take_entry) {
  if (bytes > kMostListingBytes) Fail("a longer listing than the reply has room for");
  Begin(procedure);
  Append(routine, arguments);
  request_->shape.most_reply_bytes += bytes;
  Send();
  Arguments results(Results());
  const Status status = TakeStatus(&results);
  if (status != Status::kOk) return TakeFailure(status, xdr_PostAttributes, &results);
  const auto head = results.Take(xdr_ReaddirHead);
  if (!head) Fail("a listing that does not decode");
  listing->verifier.assign(head->verifier, sizeof head->verifier);
  listing->entries.clear();
  const auto take_flag = [&results] {
    const auto flag = results.Take(xdr_bool);
    if (!flag) Fail("a listing that does not decode");
    return *flag != 0;
  };
  while (take_flag()) listing->entries.push_back(take_entry(&results));
  listing->end = take_flag();
  if (!results.Rest().empty()) Fail("bytes behind the listing");
  return status;
}

Status NfsClient::Readdir(const RemoteHandle& folder, uint64_t cookie, uint32_t bytes,
                          RemoteListing* listing) {
  ReaddirArguments arguments{HandleFor(folder), cookie, {}, bytes};
  std::copy_n(listing->verifier.begin(), sizeof arguments.verifier, arguments.verifier);
  return List(Nfs::kReaddir, xdr_ReaddirArguments, arguments, bytes, listing,
              [](Arguments* results) {
                const auto entry = results->Take(xdr_ReaddirEntry);
                if (!entry) Fail("an entry that does not decode");
                return RemoteEntry{entry->file_id,
                                   entry->cookie,
                                   {entry->name.Name_val, entry->name.Name_len},
                                   std::nullopt,
                                   std::nullopt};
              });
}

Status NfsClient::Readdirplus(const RemoteHandle& folder, uint64_t cookie, uint32_t bytes,
                              RemoteListing* listing) {
  ReaddirplusArguments arguments{HandleFor(folder), cookie, {}, bytes, bytes};
  std::copy_n(listing->verifier.begin(), sizeof arguments.verifier, arguments.verifier);
  return List(Nfs::kReaddirplus, xdr_ReaddirplusArguments, arguments, bytes, listing,
              [](Arguments* results) {
                const auto entry = results->Take(xdr_ReaddirplusEntry);
                if (!entry) Fail("an entry that does not decode");
                const ::Name& name = entry->entry.name;
                RemoteEntry taken{entry->entry.file_id,
                                  entry->entry.cookie,
                                  {name.Name_val, name.Name_len},
                                  std::nullopt,
                                  std::nullopt};
                if (entry->attributes.follow)
                  taken.attributes = entry->attributes.PostAttributes_u.attributes;
                if (entry->handle.follow) taken.handle = Copy(entry->handle.PostHandle_u.handle);
                return taken;
              });
}

// ---- The file system.

Status NfsClient::Fsstat(const RemoteHandle& root, FsstatOk* result) {
  return Run(Nfs::kFsstat, xdr_Handle, HandleFor(root), xdr_FsstatOk, xdr_PostAttributes,
             [&](const FsstatOk& ok) { *result = ok; });
}

Status NfsClient::Fsinfo(const RemoteHandle& root, FsinfoOk* result) {
  return Run(Nfs::kFsinfo, xdr_Handle, HandleFor(root), xdr_FsinfoOk, xdr_PostAttributes,
             [&](const FsinfoOk& ok) { *result = ok; });
}

Status NfsClient::Pathconf(const RemoteHandle& root, PathconfOk* result) {
  return Run(Nfs::kPathconf, xdr_Handle, HandleFor(root), xdr_PathconfOk, xdr_PostAttributes,
             [&](const PathconfOk& ok) { *result = ok; });
}

}  // namespace rpcrdma
