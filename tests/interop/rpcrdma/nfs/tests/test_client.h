// A client for tests: makes calls as XDR bytes to a service that exports a temporary folder.
#pragma once

#include <nfs3.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/interop/rpcrdma/nfs/file_handle.h"
#include "tests/interop/rpcrdma/nfs/nfs_numbers.h"
#include "tests/interop/rpcrdma/nfs/nfs_service.h"
#include "tests/interop/rpcrdma/nfs/status.h"
#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {

// The head of a call. `credential`: the body of an AUTH_SYS credential; empty: AUTH_NONE.
struct CallHead {
  uint32_t xid = 1, direction = 0, rpc_version = 2, program = 100003, version = 3, procedure = 0;
};

// What came back of an accepted call.
class Answered {
 public:
  explicit Answered(RpcReply reply);
  // The word of the accept_stat (RFC 5531, 9).
  uint32_t accept() const { return accept_; }
  // The result's next word, as a status.
  Status TakeStatus();
  Arguments& results() { return results_; }
  const RpcReply& reply() const { return reply_; }
  std::string_view bulk() const;

 private:
  RpcReply reply_;
  uint32_t accept_;
  Arguments results_;
};

std::vector<std::byte> Words(std::initializer_list<uint32_t> words);
// A call without arguments, with AUTH_NONE.
std::vector<std::byte> HeadOf(const CallHead& head);

class TestClient {
 public:
  // Exports a new folder, with an empty folder beside it.
  TestClient();
  ~TestClient();

  // A service as after a restart, with the same key or another.
  void Restart(bool same_key = true);
  NfsService& service() { return *service_; }
  std::string PathOf(const std::string& name) const { return folder_ + "/export/" + name; }
  std::string Outside(const std::string& name) const { return folder_ + "/outside/" + name; }

  template <class T>
  std::vector<std::byte> Encode(Nfs procedure, XdrRoutine<T> routine, const T& arguments,
                                std::string_view data = {}) {
    Reply call;
    CallHead head;
    head.xid = ++xid_;
    head.procedure = static_cast<uint32_t>(procedure);
    const auto words = HeadOf(head);
    std::copy(words.begin(), words.end(), call.Extend(words.size()));
    call.Put(routine, arguments);
    std::copy_n(reinterpret_cast<const std::byte*>(data.data()), data.size(),
                call.Extend(Padded(data.size())));
    return call.Take().message;
  }
  template <class T>
  Answered Call(Nfs procedure, XdrRoutine<T> routine, const T& arguments,
                std::string_view data = {}) {
    return Answered(service_->Answer(Encode(procedure, routine, arguments, data)));
  }

  FileHandle Root();
  // The handle of a path below the root, by LOOKUP of each name. Fails the test if there is none.
  FileHandle At(const std::string& path);
  Status Lookup(FileHandle folder, std::string_view name, FileHandle* found);
  Attributes Getattr(FileHandle file);
  Status Write(FileHandle file, uint64_t offset, std::string_view data,
               uint32_t stable = NFS3_UNSTABLE);
  std::string Read(FileHandle file, uint64_t offset, uint32_t count, bool* end = nullptr);
  Status Create(FileHandle folder, std::string_view name, FileHandle* made);

 private:
  std::string folder_;
  std::unique_ptr<NfsService> service_;
  uint32_t xid_ = 0;
};

// Arguments that point to what they are made of.
Handle ToHandle(const FileHandle& handle);
Entry ToEntry(const FileHandle& folder, std::string_view name);

std::string ContentOf(const std::string& path);
void Put(const std::string& path, std::string_view content);

}  // namespace rpcrdma
