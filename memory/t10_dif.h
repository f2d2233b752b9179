// T10 protection information (SBC-3, 4.22), eight bytes per block: generation, checks, and
// conversion between the two sides of a signature region (memory and wire). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace roci::memory {

inline constexpr uint32_t kDifBytes = 8;

/// Kind of the guard field. kCrc: the CRC of T10 (polynomial 0x8BB7). kChecksum: the Internet
/// checksum (RFC 1071).
enum class GuardKind : uint8_t { kCrc, kChecksum };

/// Blocks that are not checked: none; those with application tag 0xFFFF (types 1 and 2); those
/// whose reference tag is 0xFFFFFFFF as well (type 3).
enum class DifEscape : uint8_t { kNone, kApplicationTag, kBothTags };

/// Format of the protection information on one side of a region.
struct DifDomain {
  bool is_present = false;  ///< False: this side has none; the fields below are ignored.
  GuardKind guard = GuardKind::kCrc;
  DifEscape escape = DifEscape::kNone;
  bool reference_counts = false;  ///< The reference tag increases by 1 per block.
  uint16_t seed = 0;              ///< Initial value of the guard.
  uint16_t application_tag = 0;
  uint16_t application_mask = 0xFFFF;  ///< Checked bits of the application tag.
  uint32_t reference_tag = 0;          ///< Of the first block.
};

/// Checked fields.
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

/// As stored after a block: big-endian.
using DifImage = std::array<std::byte, kDifBytes>;
DifImage EncodeDif(const Dif& dif);
Dif DecodeDif(const DifImage& image);

/// Computes the guard of a block from its bytes in pieces.
class Guard {
 public:
  Guard() : Guard(GuardKind::kCrc, 0) {}
  Guard(GuardKind kind, uint16_t seed) : kind_(kind), sum_(seed) {}
  void Update(std::span<const std::byte> bytes);
  uint16_t value() const;

 private:
  GuardKind kind_;
  bool is_odd_ = false;  // the bytes so far end in the middle of a word
  uint32_t sum_;         // a checksum of less than 64 KiB does not overflow
};

/// The guard of one block's data on the side `domain`.
uint16_t GuardOf(const DifDomain& domain, std::span<const std::byte> data);

enum class DifFault : uint8_t { kNone, kGuard, kReferenceTag, kApplicationTag };

struct DifMismatch {
  DifFault fault = DifFault::kNone;
  uint32_t expected = 0;
  uint32_t actual = 0;
};

/// The first mismatch in `dif` of block `number`, whose data has `guard` in this domain. Order of
/// the checks: guard, reference tag, application tag. The reported values are whole fields.
DifMismatch CheckDif(const DifDomain& domain, DifChecks checks, uint64_t number, uint16_t guard,
                     const Dif& dif);

/// New protection information.
Dif MakeDif(const DifDomain& domain, uint64_t number, uint16_t guard);

/// Whether the guard is copied unchanged from one side to the other.
bool GuardIsCopied(const DifDomain& from, const DifDomain& to);

/// Converts `dif` for the other side, which has protection information, too. A field that both
/// sides define in the same way is copied, correct or not; another field is generated. `guard`: of
/// the data in `to`; ignored if the guard is copied.
Dif CarryDif(const DifDomain& from, const DifDomain& to, uint64_t number, uint16_t guard,
             const Dif& dif);

/// Attributes of the registration of a signature region.
struct IntegrityAttributes {
  DifDomain memory;
  DifDomain wire;
  DifChecks checks;         ///< Of the source: memory for outgoing blocks, wire for incoming ones.
  uint32_t block_size = 0;  ///< Bytes of data per Dif.
};

inline constexpr std::array<uint32_t, 5> kIntegrityBlockSizes = {512, 520, 4048, 4096, 4160};
inline constexpr uint32_t kMaxIntegrityBlock = 4160;
bool IsIntegrityBlockSize(uint32_t size);

/// The first check of a region that failed.
struct IntegrityError {
  DifMismatch what;     ///< fault == kNone: no check failed.
  uint64_t offset = 0;  ///< Offset on the wire of the block's first byte.
  uint32_t key = 0;     ///< Of the region.
};

}  // namespace roci::memory
