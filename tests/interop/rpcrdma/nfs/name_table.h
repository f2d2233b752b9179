// Remembers a name of each file that clients have a handle of.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tests/interop/rpcrdma/nfs/file_handle.h"

namespace rpcrdma {

// Thread-safe. A name is a hint: the file may have another one meanwhile.
class NameTable {
 public:
  static constexpr size_t kMaxNames = 1 << 18;  // some 40 MB; beyond that the table begins anew

  struct Place {
    FileId folder;
    std::string name;
  };

  explicit NameTable(const FileId& root) : root_(root) {}
  void Remember(const FileId& file, const FileId& folder, const std::string& name);
  std::optional<Place> Find(const FileId& file) const;
  // The path from the root, without "/" in front; "." for the root. Nothing if a name is unknown,
  // or the path too long.
  std::optional<std::string> PathOf(FileId file) const;

 private:
  const FileId root_;
  mutable std::mutex mutex_;
  std::map<FileId, Place> places_;
};

}  // namespace rpcrdma
