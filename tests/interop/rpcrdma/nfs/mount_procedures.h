// The procedures of MOUNT version 3 (RFC 1813, appendix I) for one exported folder.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "tests/interop/rpcrdma/nfs/exported_folder.h"
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"
#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {

// Thread-safe.
class MountProcedures {
 public:
  static constexpr uint32_t kProgram = 100005, kVersion = 3;
  static constexpr size_t kMaxMounts = 1024;  // of which DUMP tells; the oldest are forgotten

  // `path`: what clients mount.
  MountProcedures(const ExportedFolder* folder, std::string path);

  // `client`: the name that the caller gives itself.
  Ran Run(uint32_t procedure, const std::string& client, Arguments* in, Reply* out);

 private:
  struct Mount {
    std::string client, path;
    bool operator==(const Mount&) const = default;
  };

  bool Mnt(const std::string& client, Arguments* in, Reply* out);
  bool Umnt(const std::string& client, Arguments* in);
  void Dump(Reply* out);
  void Export(Reply* out);
  bool IsExported(std::string path) const;

  const ExportedFolder* const folder_;
  const std::string path_;
  std::mutex mutex_;
  std::deque<Mount> mounts_;
};

}  // namespace rpcrdma
