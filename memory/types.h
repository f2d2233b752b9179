// Types that all parts of memory/ share: access rights, status of an operation, accessing queue
// pair.
#pragma once

#include <cstdint>

namespace roci::memory {

/// A key: an index in the upper bits, and a variant that changes at each reuse of the index.
inline constexpr uint32_t kKeyVariantBits = 8;
constexpr uint32_t IndexOfKey(uint32_t key) { return key >> kKeyVariantBits; }

/// Access rights of a memory region, and the rights that an operation needs. The bits are those of
/// the verbs API (IBV_ACCESS_*): a number that the session decoder has checked against kAccessMask
/// can be cast.
enum class Access : uint32_t {
  kNone = 0,  ///< Right of a local read: every region is locally readable.
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
/// Whether `have` has every right in `need`.
constexpr bool Includes(Access have, Access need) { return (have & need) == need; }

/// All supported bits; the session decoder refuses the others.
inline constexpr uint32_t kAccessMask = 0x3FFU | (1U << 20);

/// Result of a lookup, a registration or a copy. With any status but kOk and kFault, program memory
/// is unchanged; after kFault a part of the bytes may have been copied.
enum class MemoryStatus : uint8_t {
  kOk = 0,
  kBadKey,        ///< No such key, or one that has been deregistered.
  kWrongPd,       ///< The key belongs to another protection domain.
  kWrongQp,       ///< A type 2 memory window bound to another QP.
  kNoPermission,  ///< The region does not grant a right that the operation needs.
  kOutOfBounds,   ///< Some byte of the range lies outside the region.
  kFault,         ///< The memory is not accessible: unmapped, truncated, or the process has ended.
  kTooManySegments,  ///< The range has more segments than a SegmentList or CopyBatch holds.
  kMisaligned,       ///< An atomic on an address that is not a multiple of 8, or not of length 8.
  kTableFull,        ///< Registration: the advertised number of keys is in use.
  kInvalidArgument,  ///< Registration: range wraps, extents do not cover it, or rights contradict
                     ///< each other.
  kInUse,            ///< Deregistration: another object still refers to the key.
  kNotYet,           ///< Atomic: in progress, call again.
};

/// A short lower-case text for `status`, for counters and messages. Static storage.
const char* MemoryStatusName(MemoryStatus status);

/// Kinds of memory windows (IBTA vol 1, 10.6.7.2). Type 1: any QP of the protection domain may use
/// it. Type 2 (variant B): only the QP that bound it.
enum class WindowType : uint8_t { kType1 = 1, kType2 = 2 };

/// The queue pair that accesses memory.
struct AccessContext {
  uint32_t pd;   ///< PD number, as given at registration.
  uint32_t qpn;  ///< 24-bit QP number; checked for type 2 memory windows only.
};

}  // namespace roci::memory
