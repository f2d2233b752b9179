#include "memory/list_bytes.h"

#include "memory/app_memory.h"

namespace roci::memory {

MemoryStatus ListBytes::CopyOut(uint64_t offset, std::span<std::byte> bytes) const {
  return keys_->CopyRuns(*list_, false, Direction::kFromApp, offset, bytes);
}

MemoryStatus ListBytes::CopyIn(uint64_t offset, std::span<const std::byte> bytes) const {
  // The buffer is only read in this direction.
  const std::span<std::byte> from(const_cast<std::byte*>(bytes.data()), bytes.size());
  return keys_->CopyRuns(*list_, false, Direction::kToApp, offset, from);
}

}  // namespace roci::memory
