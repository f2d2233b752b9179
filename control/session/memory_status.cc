#include "control/session/memory_status.h"

#include "control/session/session_decoder.h"

namespace roci::control {

absl::Status StatusOfMemory(memory::MemoryStatus status) {
  switch (status) {
    case memory::MemoryStatus::kOk:
      return absl::OkStatus();
    case memory::MemoryStatus::kTableFull:
      return absl::ResourceExhaustedError("the key table is full");
    case memory::MemoryStatus::kInUse:
      return absl::FailedPreconditionError("the memory region is in use");
    case memory::MemoryStatus::kBadKey:
      return absl::NotFoundError("no such key");
    case memory::MemoryStatus::kFault:
      return absl::OutOfRangeError("memory is not accessible");
    default:
      return absl::InvalidArgumentError(memory::MemoryStatusName(status));
  }
}

memory::Access AccessOf(uint32_t flags) {
  constexpr auto kHint = static_cast<uint32_t>(memory::Access::kRelaxedOrdering);
  return static_cast<memory::Access>(flags & ~(kOptionalAccess & ~kHint));
}

}  // namespace roci::control
