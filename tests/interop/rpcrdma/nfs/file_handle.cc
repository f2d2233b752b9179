// File handles with a message authentication code.
#include "tests/interop/rpcrdma/nfs/file_handle.h"

#include <cstring>

namespace rpcrdma {
namespace {

constexpr size_t kCodedBytes = 16;

uint64_t CodeOf(const SipKey& key, const FileHandle& handle) {
  return SipHash(key, std::as_bytes(std::span(handle).first(kCodedBytes)));
}

}  // namespace

FileHandle MakeHandle(const SipKey& key, const FileId& id) {
  FileHandle handle{};
  std::memcpy(handle.data(), &id.inode, 8);
  std::memcpy(handle.data() + 8, &id.generation, 8);
  const uint64_t code = CodeOf(key, handle);
  std::memcpy(handle.data() + kCodedBytes, &code, 8);
  return handle;
}

std::optional<FileId> ReadHandle(const SipKey& key, std::span<const char> handle) {
  if (handle.size() != kHandleBytes) return std::nullopt;
  FileId id;
  std::memcpy(&id.inode, handle.data(), 8);
  std::memcpy(&id.generation, handle.data() + 8, 8);
  const FileHandle right = MakeHandle(key, id);
  if (std::memcmp(right.data(), handle.data(), kHandleBytes) != 0) return std::nullopt;
  return id;
}

}  // namespace rpcrdma
