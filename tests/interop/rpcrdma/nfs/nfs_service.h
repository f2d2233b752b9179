// Answers RPC calls for NFS and MOUNT (RFC 5531).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "tests/interop/rpcrdma/nfs/exported_folder.h"
#include "tests/interop/rpcrdma/nfs/mount_procedures.h"
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"
#include "tests/interop/rpcrdma/nfs/reply_cache.h"
#include "tests/interop/rpcrdma/nfs/siphash.h"
#include "tests/interop/rpcrdma/rpc_service.h"

namespace rpcrdma {

struct NfsCounters {
  std::atomic<uint64_t> calls = 0;
  std::atomic<uint64_t> repeated = 0;  // answered by the reply of the first time
  std::atomic<uint64_t> not_a_call = 0;
  std::atomic<uint64_t> rpc_version_mismatch = 0;
  std::atomic<uint64_t> bad_credential = 0;
  std::atomic<uint64_t> no_such_program = 0;
  std::atomic<uint64_t> program_version_mismatch = 0;
  std::atomic<uint64_t> no_such_procedure = 0;
  std::atomic<uint64_t> garbage_arguments = 0;
};

// Thread-safe.
class NfsService : public RpcService {
 public:
  // Serves the folder at `path`. Handles and cookies of one `key` stay valid over restarts. Throws
  // std::system_error if the folder cannot be opened.
  NfsService(const std::string& path, const SipKey& key);

  RpcReply Answer(std::span<const std::byte> call) override;
  const NfsCounters& counters() const { return counters_; }
  // What clients mount: the folder's absolute path.
  const std::string& path() const { return path_; }

 private:
  struct Caller {
    uint32_t flavor;
    std::string name;
  };
  struct Target {
    uint32_t xid, program, version, procedure;
  };

  bool ReadCaller(Arguments* in, Caller* caller) const;
  RpcReply AnswerCall(std::span<const std::byte> call);
  RpcReply Accept(const Target& target, const Caller& caller, Arguments* in);
  uint32_t Run(const Target& target, const Caller& caller, Arguments* in, Reply* out);

  const std::string path_;
  ExportedFolder folder_;
  NfsProcedures nfs_;
  MountProcedures mount_;
  NfsCounters counters_;
  std::mutex mutex_;  // of calls that must not run twice, and their replies
  ReplyCache replies_;
};

}  // namespace rpcrdma
