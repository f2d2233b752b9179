// An NFS version 3 client: one call at a time over an RPC-over-RDMA connection.
#pragma once

#include <nfs3.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/interop/rpcrdma/client.h"
#include "tests/interop/rpcrdma/nfs/nfs_numbers.h"
#include "tests/interop/rpcrdma/nfs/status.h"
#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {

// A call without a result: no reply in time, an RPC or transport error, or a reply that does not
// decode.
class NfsFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether the data of READ and WRITE may be placed directly (RFC 8267, section 4), by Write and
// Read chunks. Otherwise it belongs to the message, which long calls and Reply chunks convey.
enum class Placement { kDirect, kInMessage };

// A server's handle: opaque, at most NFS3_HANDLE_BYTES bytes.
using RemoteHandle = std::string;

struct RemoteEntry {
  uint64_t file_id = 0;
  uint64_t cookie = 0;
  std::string name;
  // Of READDIRPLUS, if the server gives them.
  std::optional<Attributes> attributes;
  std::optional<RemoteHandle> handle;
};

// A part of a listing. `verifier` and the last entry's cookie continue it.
struct RemoteListing {
  std::string verifier = std::string(8, '\0');
  std::vector<RemoteEntry> entries;
  bool end = false;
};

struct ReadResult {
  std::span<const std::byte> data;  // until the next call
  bool end = false;                 // of the file
};

// Calls return the server's status, and fill in results if it is kOk. They throw NfsFailure.
class NfsClient {
 public:
  // Takes one of the connection's slots. `most_bytes`: of one READ or WRITE. `limit_ms`: for each
  // call, with all transmissions.
  NfsClient(Client* client, size_t most_bytes, int limit_ms);
  ~NfsClient();
  NfsClient(const NfsClient&) = delete;
  NfsClient& operator=(const NfsClient&) = delete;

  void SetPlacement(Placement placement) { placement_ = placement; }
  // Which chunks the latest call used.
  const MarshalPlan& plan() const { return request_->plan(); }

  void Null();
  Status Getattr(const RemoteHandle& file, Attributes* attributes);
  // `changed`: do nothing unless the file changed then.
  Status Setattr(const RemoteHandle& file, const SetAttributes& attributes,
                 const Time* changed = nullptr);
  Status Lookup(const RemoteHandle& folder, std::string_view name, RemoteHandle* found);
  Status Access(const RemoteHandle& file, uint32_t wanted, uint32_t* granted);
  Status Readlink(const RemoteHandle& link, std::string* path);
  Status Read(const RemoteHandle& file, uint64_t offset, uint32_t count, ReadResult* result);
  Status Write(const RemoteHandle& file, uint64_t offset, std::span<const std::byte> data,
               uint32_t stable, WriteOk* result);
  Status Create(const RemoteHandle& folder, std::string_view name, const CreateHow& how,
                RemoteHandle* made);
  Status Mkdir(const RemoteHandle& folder, std::string_view name, const SetAttributes& attributes,
               RemoteHandle* made);
  Status Symlink(const RemoteHandle& folder, std::string_view name, std::string_view target,
                 RemoteHandle* made);
  Status Remove(const RemoteHandle& folder, std::string_view name);
  Status Rmdir(const RemoteHandle& folder, std::string_view name);
  Status Rename(const RemoteHandle& from, std::string_view name, const RemoteHandle& to,
                std::string_view new_name);
  Status Link(const RemoteHandle& file, const RemoteHandle& folder, std::string_view name);
  // Parts of a listing after the entry of `cookie` (0: from the begin), of at most `bytes` bytes,
  // 64 KiB at most.
  Status Readdir(const RemoteHandle& folder, uint64_t cookie, uint32_t bytes,
                 RemoteListing* listing);
  Status Readdirplus(const RemoteHandle& folder, uint64_t cookie, uint32_t bytes,
                     RemoteListing* listing);
  Status Fsstat(const RemoteHandle& root, FsstatOk* result);
  Status Fsinfo(const RemoteHandle& root, FsinfoOk* result);
  Status Pathconf(const RemoteHandle& root, PathconfOk* result);
  Status Commit(const RemoteHandle& file, uint64_t offset, uint32_t count, CommitOk* result);

  // ---- READ and WRITE in parts, for several at a time: Prepare, Client::Send() of request() until
  // it is sent, Progress() until it has ended, Finish.
  ClientRequest& request() { return *request_; }
  void PrepareRead(const RemoteHandle& file, uint64_t offset, uint32_t count);
  Status FinishRead(ReadResult* result);
  void PrepareWrite(const RemoteHandle& file, uint64_t offset, std::span<const std::byte> data,
                    uint32_t stable);
  Status FinishWrite(WriteOk* result);

 private:
  void Begin(Nfs procedure);
  template <class T>
  void Append(XdrRoutine<T> routine, const T& value);
  void AppendBulk(std::span<const std::byte> data);
  void Send();
  // Checks the reply's head and takes the status. Leaves `results` behind it.
  Status TakeStatus(Arguments* results) const;
  std::span<const std::byte> Results() const;
  // The `length` bytes that end a result: placed directly, or the rest of the message.
  std::span<const std::byte> Bulk(uint32_t length, Arguments* results) const;

  // A whole call: `take(const Ok&)` gets a result of success.
  template <class A, class Ok, class Failed, class Take>
  Status Run(Nfs procedure, XdrRoutine<A> routine, const A& arguments, XdrRoutine<Ok> ok,
             XdrRoutine<Failed> failed, Take take);
  template <class A>
  Status Make(Nfs procedure, XdrRoutine<A> routine, const A& arguments, RemoteHandle* made);
  template <class A, class TakeEntry>
  Status List(Nfs procedure, XdrRoutine<A> routine, const A& arguments, uint32_t bytes,
              RemoteListing* listing, TakeEntry take_entry);

  Client* const client_;
  const size_t most_bytes_;
  const int limit_ms_;
  ClientRequest* request_ = nullptr;
  Placement placement_ = Placement::kDirect;
};

}  // namespace rpcrdma
