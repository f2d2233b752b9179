// Lists a folder in parts, in an order that does not change while entries come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/interop/rpcrdma/nfs/exported_folder.h"

namespace rpcrdma {

struct FolderEntry {
  uint64_t cookie;  // where the listing goes on after this entry
  uint64_t inode;
  std::string name;
};

struct FolderPage {
  std::vector<FolderEntry> entries;  // by cookie
  bool end = false;                  // no entries follow
};

// Reads the first `limit` entries after the cookie `after` (0: from the beginning). A cookie is a
// keyed hash of the entry's name, because positions in a folder are stable in few file systems.
Status ReadPage(const Node& folder, uint64_t parent_inode, const SipKey& key, uint64_t after,
                size_t limit, FolderPage* page);

}  // namespace rpcrdma
