// Names of statuses.
#include "memory/types.h"

namespace roci::memory {

const char* MemoryStatusName(MemoryStatus status) {
  switch (status) {
    case MemoryStatus::kOk:
      return "ok";
    case MemoryStatus::kBadKey:
      return "bad key";
    case MemoryStatus::kWrongPd:
      return "wrong protection domain";
    case MemoryStatus::kWrongQp:
      return "wrong queue pair";
    case MemoryStatus::kNoPermission:
      return "no permission";
    case MemoryStatus::kOutOfBounds:
      return "out of bounds";
    case MemoryStatus::kFault:
      return "fault";
    case MemoryStatus::kTooManySegments:
      return "too many segments";
    case MemoryStatus::kMisaligned:
      return "misaligned";
    case MemoryStatus::kTableFull:
      return "table full";
    case MemoryStatus::kInvalidArgument:
      return "invalid argument";
    case MemoryStatus::kInUse:
      return "in use";
    case MemoryStatus::kNotYet:
      return "not yet";
  }
  return "unknown";
}

}  // namespace roci::memory
