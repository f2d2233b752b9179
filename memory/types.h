// Words that every part of memory/ shares: access rights, the status of a memory operation, who is
// asking.
#pragma once

#include <cstdint>

namespace roci::memory {

/// Access rights of a memory region, and the rights an operation needs. The bits are those of the
/// verbs API (IBV_ACCESS_*), so a number that the session decoder has bounded by kAccessMask
/// converts by a cast.
enum class Access : uint32_t {
  kNone = 0,  ///< What a local read needs: every region may be read locally.
  kLocalWrite = 1U << 0,
  kRemoteWrite = 1U << 1,
  kRemoteRead = 1U << 2,
  kRemoteAtomic = 1U << 3,
  kWindowBind = 1U << 4,
  kZeroBased = 1U << 5,
  kOnDemand = 1U << 6,
  kHugeTlb = 1U << 7,
  kFlushGlobal = 1U << 8,
  kFlushPersistent = 1U << 9,
  kRelaxedOrdering = 1U << 20,
};

constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr Access operator&(Access a, Access b) {
  return static_cast<Access>(static_cast<uint32_t>(a) & static_cast<uint32_t>(b));
}
constexpr Access operator~(Access a) { return static_cast<Access>(~static_cast<uint32_t>(a)); }
/// True when `have` holds every right in `need`.
constexpr bool Includes(Access have, Access need) { return (have & need) == need; }

/// Every bit that means something here; a session decoder refuses the others.
inline constexpr uint32_t kAccessMask = 0x3FFU | (1U << 20);

/// Outcome of a lookup, a registration or a copy. Anything but kOk leaves the app's memory
/// untouched, except kFault, after which part of the bytes may have been copied.
enum class MemoryStatus : uint8_t {
  kOk = 0,
  kBadKey,        ///< No such key, or one that has been deregistered.
  kWrongPd,       ///< The key belongs to another protection domain.
  kWrongQp,       ///< A type 2 memory window bound to another QP.
  kNoPermission,  ///< The region does not grant a right that the operation needs.
  kOutOfBounds,   ///< Some byte of the range lies outside the region.
  kFault,         ///< The memory could not be touched: unmapped, truncated, or the process is gone.
  kTooManySegments,  ///< The range has more pieces than a SegmentList or CopyBatch holds.
  kMisaligned,       ///< An atomic on an address that is not a multiple of 8, or not of length 8.
  kTableFull,        ///< Registration: the advertised number of keys is in use.
  kInvalidArgument,  ///< Registration: range wraps, extents do not cover it, or rights contradict
                     ///< each other.
  kInUse,            ///< Deregistration: something else still refers to the key.
  kNotYet,           ///< An atomic: under way, to be asked for again.
};

/// A short lower-case word for `status`, for counters and messages. Static storage.
const char* MemoryStatusName(MemoryStatus status);

/// Kinds of memory windows (IBTA vol 1, 10.6.7.2). Type 1: any QP of the protection domain may use
/// it. Type 2 (variant B): the protection domain and the QP that bound it alone.
enum class WindowType : uint8_t { kType1 = 1, kType2 = 2 };

/// Who asks for memory: the protection domain of the queue pair and its number.
struct AccessContext {
  uint32_t pd;   ///< PD number, as given at registration.
  uint32_t qpn;  ///< 24-bit QP number; only type 2 memory windows look at it.
};

}  // namespace roci::memory
