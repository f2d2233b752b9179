// Names of files.
#include "tests/interop/rpcrdma/nfs/name_table.h"

#include <climits>

namespace rpcrdma {

void NameTable::Remember(const FileId& file, const FileId& folder, const std::string& name) {
  if (file == root_) return;
  const std::scoped_lock lock(mutex_);
  if (places_.size() >= kMaxNames) places_.clear();
  places_[file] = {folder, name};
}

std::optional<NameTable::Place> NameTable::Find(const FileId& file) const {
  const std::scoped_lock lock(mutex_);
  const auto found = places_.find(file);
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> NameTable::PathOf(FileId file) const {
  if (file == root_) return ".";
  const std::scoped_lock lock(mutex_);
  std::string path;
  // (The length also ends a cycle, which renames beside this server can leave in the table.)
  while (file != root_) {
    const auto found = places_.find(file);
    if (found == places_.end()) return std::nullopt;
    path = path.empty() ? found->second.name : found->second.name + "/" + path;
    if (path.size() >= PATH_MAX) return std::nullopt;
    file = found->second.folder;
  }
  return path;
}

}  // namespace rpcrdma
