#include "control/session/memory_status.h"

#include "control/session/session_decoder.h"

namespace roci::control {

absl::Status StatusOfMemory(memory::MemoryStatus status) {
  switch (status) {
    case memory::MemoryStatus::kOk:
      return absl::OkStatus();
    case memory::MemoryStatus::kTableFull:
      return absl::ResourceExhaustedError("keys");
    case memory::MemoryStatus::kInUse:
      return absl::FailedPreconditionError("memory region in use");
    case memory::MemoryStatus::kBadKey:
      return absl::NotFoundError("key");
    case memory::MemoryStatus::kFault:
      return absl::OutOfRangeError("memory cannot be reached");
    default:
      return absl::InvalidArgumentError(memory::MemoryStatusName(status));
  }
}

memory::Access AccessOf(uint32_t flags) {
  constexpr auto kHint = static_cast<uint32_t>(memory::Access::kRelaxedOrdering);
  return static_cast<memory::Access>(flags & ~(kOptionalAccess & ~kHint));
}

}  // namespace roci::control
