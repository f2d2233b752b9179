// The exported folder: opens files by handle or by name, and nothing outside of the folder.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/interop/rpcrdma/nfs/descriptor.h"
#include "tests/interop/rpcrdma/nfs/file_handle.h"
#include "tests/interop/rpcrdma/nfs/name_table.h"
#include "tests/interop/rpcrdma/nfs/siphash.h"
#include "tests/interop/rpcrdma/nfs/status.h"

namespace rpcrdma {

FileId IdOf(const struct statx& attributes);

// A file of the export: an O_PATH descriptor, which gives no access to the data, and the attributes
// at the time of opening.
struct Node {
  Descriptor descriptor;
  struct statx attributes {};

  FileId id() const { return IdOf(attributes); }
  bool IsFolder() const { return S_ISDIR(attributes.stx_mode); }
  bool IsRegular() const { return S_ISREG(attributes.stx_mode); }
};

// Thread-safe. The kernel keeps every access below the folder and out of other mounts (openat2(2):
// RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV).
class ExportedFolder {
 public:
  // Throws std::system_error if the folder cannot be opened.
  ExportedFolder(const std::string& path, const SipKey& key);

  Status Open(std::span<const char> handle, Node* node);
  // As Open(), for folders only.
  Status OpenFolder(std::span<const char> handle, Node* node);
  // Opens an entry of the folder: the entry itself if it is a symbolic link. "." and ".." are
  // allowed; the root's ".." is the root (RFC 1813, 3.3.3).
  Status OpenEntry(const Node& folder, const std::string& name, Node* node);
  // Attributes of an entry, for listings. An error for a mount point.
  Status StatEntry(const Node& folder, const std::string& name, struct statx* attributes) const;
  // The handle of a file that has that name in the folder.
  FileHandle HandleOf(const FileId& file, const FileId& folder, const std::string& name);
  FileHandle RootHandle() const { return MakeHandle(key_, root_id_); }
  // The folder that contains `folder`; the root for the root.
  FileId ParentOf(const FileId& folder) const;
  const SipKey& key() const { return key_; }
  // What all files report as their file system (fsid).
  uint64_t file_system() const { return file_system_; }

 private:
  Status OpenId(const FileId& id, Node* node);
  bool OpenPath(const std::string& path, const FileId& id, Node* node) const;
  bool Search(const FileId& id);
  bool SearchFolder(const std::string& path, const FileId& id, std::vector<std::string>* folders,
                    size_t* left);

  const SipKey key_;
  const Descriptor root_;
  const FileId root_id_;
  const uint64_t file_system_;
  NameTable names_;
};

// Refreshes the attributes.
Status Stat(Node* node);
// Opens a regular file for reading or writing.
Status OpenData(const Node& node, int flags, Descriptor* data);
// Opens a folder for reading its entries.
Status OpenEntries(const Node& folder, Descriptor* entries);
// Checks a name for an entry (not "." or "..").
Status CheckName(std::string_view name);

}  // namespace rpcrdma
