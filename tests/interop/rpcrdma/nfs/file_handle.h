// File handles (nfs_fh3 of RFC 1813): which file, and a code that only this server can make.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tests/interop/rpcrdma/nfs/siphash.h"

namespace rpcrdma {

// A file of the exported file system. The generation differs for later files with the same inode
// number.
struct FileId {
  uint64_t inode = 0;
  uint64_t generation = 0;
  auto operator<=>(const FileId&) const = default;
};

inline constexpr size_t kHandleBytes = 24;
using FileHandle = std::array<char, kHandleBytes>;

FileHandle MakeHandle(const SipKey& key, const FileId& id);
// The file of a handle; nothing if MakeHandle() did not make it with this key.
std::optional<FileId> ReadHandle(const SipKey& key, std::span<const char> handle);

}  // namespace rpcrdma
