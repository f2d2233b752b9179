// T10 protection information (SBC-3, 4.22): the eight bytes that guard a block, how they are made,
// checked and carried over from one side of a region to the other. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace roci::memory {

inline constexpr uint32_t kDifBytes = 8;

/// What guards the data. kCrc: the CRC of T10 (polynomial 0x8BB7). kChecksum: the Internet checksum
/// (RFC 1071).
enum class GuardKind : uint8_t { kCrc, kChecksum };

/// Which blocks are not checked: none, those with application tag 0xFFFF (types 1 and 2), or those
/// whose reference tag is 0xFFFFFFFF as well (type 3).
enum class DifEscape : uint8_t { kNone, kApplicationTag, kBothTags };

/// What protection information looks like on one side of a region.
struct DifDomain {
  bool is_present = false;  ///< False: this side has none, and nothing below means anything.
  GuardKind guard = GuardKind::kCrc;
  DifEscape escape = DifEscape::kNone;
  bool reference_counts = false;  ///< The reference tag grows by 1 with each block.
  uint16_t seed = 0;              ///< What the guard begins with.
  uint16_t application_tag = 0;
  uint16_t application_mask = 0xFFFF;  ///< The bits of it that are checked.
  uint32_t reference_tag = 0;          ///< Of the first block.
};

/// Which fields are checked.
struct DifChecks {
  bool guard = false;
  bool application_tag = false;
  bool reference_tag = false;
};

struct Dif {
  uint16_t guard = 0;
  uint16_t application_tag = 0;
  uint32_t reference_tag = 0;
  bool operator==(const Dif&) const = default;
};

/// As it lies behind a block: big-endian.
using DifImage = std::array<std::byte, kDifBytes>;
DifImage EncodeDif(const Dif& dif);
Dif DecodeDif(const DifImage& image);

/// The guard of a block whose bytes come in pieces.
class Guard {
 public:
  Guard() : Guard(GuardKind::kCrc, 0) {}
  Guard(GuardKind kind, uint16_t seed) : kind_(kind), sum_(seed) {}
  void Update(std::span<const std::byte> bytes);
  uint16_t value() const;

 private:
  GuardKind kind_;
  bool is_odd_ = false;  // the sum ends in the middle of a word
  uint32_t sum_;         // a checksum of less than 64 KiB does not overflow
};

/// Of the data of one block on that side.
uint16_t GuardOf(const DifDomain& domain, std::span<const std::byte> data);

enum class DifFault : uint8_t { kNone, kGuard, kReferenceTag, kApplicationTag };

struct DifMismatch {
  DifFault fault = DifFault::kNone;
  uint32_t expected = 0;
  uint32_t actual = 0;
};

/// What is wrong with `dif` of block `number`, whose data has `guard` in this domain. The guard is
/// looked at first, then the reference tag, then the application tag. The numbers are whole fields.
DifMismatch CheckDif(const DifDomain& domain, DifChecks checks, uint64_t number, uint16_t guard,
                     const Dif& dif);

/// New protection information.
Dif MakeDif(const DifDomain& domain, uint64_t number, uint16_t guard);

/// Whether a guard stays as it is on the way from one side to the other.
bool GuardIsCopied(const DifDomain& from, const DifDomain& to);

/// What becomes of `dif` on its way to a side that has protection information too: a field for
/// which both sides say the same stays as it is, right or wrong; another one is made anew. `guard`:
/// of the data in `to`; not looked at where it is copied.
Dif CarryDif(const DifDomain& from, const DifDomain& to, uint64_t number, uint16_t guard,
             const Dif& dif);

/// What a signature region is told when it is registered.
struct IntegrityAttributes {
  DifDomain memory;
  DifDomain wire;
  DifChecks checks;         ///< Of what comes: from memory as it is read, from the wire else.
  uint32_t block_size = 0;  ///< Bytes of data that one Dif guards.
};

inline constexpr std::array<uint32_t, 5> kIntegrityBlockSizes = {512, 520, 4048, 4096, 4160};
inline constexpr uint32_t kMaxIntegrityBlock = 4160;
bool IsIntegrityBlockSize(uint32_t size);

/// The first check of a region that failed.
struct IntegrityError {
  DifMismatch what;     ///< fault == kNone: there was none.
  uint64_t offset = 0;  ///< Of the block's first byte in the region, as on the wire.
  uint32_t key = 0;     ///< Of the region.
};

}  // namespace roci::memory
