// The procedures of NFS version 3 (RFC 1813, 3.3) over an exported folder.
#pragma once

#include <nfs3.h>

#include <array>
#include <cstdint>
#include <string>

#include "tests/interop/rpcrdma/nfs/exported_folder.h"
#include "tests/interop/rpcrdma/nfs/folder_page.h"
#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {

inline constexpr uint32_t kMaxIoBytes = 1 << 20;       // of one READ or WRITE
inline constexpr uint32_t kMaxListingBytes = 1 << 16;  // of one READDIR or READDIRPLUS

// How a call of a procedure ended (RFC 5531, accept_stat).
enum class Ran { kYes, kNoSuchProcedure, kGarbageArguments };

// Thread-safe. Callers act as the user that runs the server (as with the option all_squash of
// Linux's server).
class NfsProcedures {
 public:
  static constexpr uint32_t kProgram = 100003, kVersion = 3;

  // `verifier`: another one after each start of the server (RFC 1813, 3.3.7).
  NfsProcedures(ExportedFolder* folder, const std::array<char, 8>& verifier);

  Ran Run(uint32_t procedure, Arguments* in, Reply* out);
  // Whether a procedure that runs twice fails or does another thing the second time.
  static bool IsRepeatable(uint32_t procedure);

 private:
  // False: the arguments are garbage, and nothing is done.
  using Procedure = bool (NfsProcedures::*)(Arguments*, Reply*);

  // A folder and a name in it, for procedures that change the folder.
  struct Target {
    Node folder;
    std::string name;
    Status status;
  };

  bool Null(Arguments* in, Reply* out);
  bool Getattr(Arguments* in, Reply* out);
  bool Setattr(Arguments* in, Reply* out);
  bool Lookup(Arguments* in, Reply* out);
  bool Access(Arguments* in, Reply* out);
  bool Readlink(Arguments* in, Reply* out);
  bool Read(Arguments* in, Reply* out);
  bool Write(Arguments* in, Reply* out);
  bool Create(Arguments* in, Reply* out);
  bool Mkdir(Arguments* in, Reply* out);
  bool Symlink(Arguments* in, Reply* out);
  bool Mknod(Arguments* in, Reply* out);
  bool Remove(Arguments* in, Reply* out);
  bool Rmdir(Arguments* in, Reply* out);
  bool Rename(Arguments* in, Reply* out);
  bool Link(Arguments* in, Reply* out);
  bool Readdir(Arguments* in, Reply* out);
  bool Readdirplus(Arguments* in, Reply* out);
  bool Fsstat(Arguments* in, Reply* out);
  bool Fsinfo(Arguments* in, Reply* out);
  bool Pathconf(Arguments* in, Reply* out);
  bool Commit(Arguments* in, Reply* out);

  PostAttributes Post(const Node& node) const;
  // Answers a call whose only argument is a handle: put(node) puts the result.
  template <class Put>
  bool AboutNode(Arguments* in, Reply* out, Put&& put);
  WccData Wcc(const Node& node) const;
  Status ReadBytes(const ReadArguments& arguments, const Node& node, size_t place, Reply* out);
  Target Find(const Entry& entry);
  Status MakeFile(const CreateArguments& arguments, const Target& target, Node* file);
  Status MakeExclusive(const Target& target, const Verifier& verifier, Node* file);
  // Appends the result of a procedure that made `made` under the target's name.
  void PutMade(Status status, const Target& target, const Node& made, Reply* out);
  Status ReadListing(const Handle& handle, uint64_t cookie, const Verifier& verifier, size_t limit,
                     Node* folder, FolderPage* page);
  ReaddirplusEntry Describe(const Node& folder, const FolderEntry& entry, FileHandle* handle);
  // Appends a list of at most `limit` bytes. `put` appends an entry and returns true, or false if
  // the reply would be longer than its second argument.
  template <class Put>
  void PutListing(Status status, const Node& folder, FolderPage* page, size_t limit, Reply* out,
                  Put put);
  bool RemoveEntry(Arguments* in, Reply* out, int flags);

  ExportedFolder* const folder_;
  const std::array<char, 8> verifier_;
  std::array<char, 8> listing_verifier_;  // changes with the key of the cookies
};

}  // namespace rpcrdma
