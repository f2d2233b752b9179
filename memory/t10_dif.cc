// Guard computation, and generation and checks of each field.
#include "memory/t10_dif.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace roci::memory {
namespace {

constexpr uint16_t kEscapedApplicationTag = 0xFFFF;
constexpr uint32_t kEscapedReferenceTag = 0xFFFFFFFF;

uint32_t Fold(uint32_t sum) {
  sum = (sum & 0xFFFF) + (sum >> 16);
  return (sum & 0xFFFF) + (sum >> 16);
}

uint32_t ReferenceTagOf(const DifDomain& domain, uint64_t number) {
  return domain.reference_tag + (domain.reference_counts ? static_cast<uint32_t>(number) : 0);
}

bool IsEscaped(const DifDomain& domain, const Dif& dif) {
  if (domain.escape == DifEscape::kNone) return false;
  return dif.application_tag == kEscapedApplicationTag &&
         (domain.escape == DifEscape::kApplicationTag || dif.reference_tag == kEscapedReferenceTag);
}

}  // namespace

DifImage EncodeDif(const Dif& dif) {
  const uint64_t word =
      uint64_t{dif.guard} << 48 | uint64_t{dif.application_tag} << 32 | uint64_t{dif.reference_tag};
  DifImage image;
  for (uint32_t i = 0; i < kDifBytes; ++i) image[i] = static_cast<std::byte>(word >> (56 - 8 * i));
  return image;
}

Dif DecodeDif(const DifImage& image) {
  uint64_t word = 0;
  for (const std::byte byte : image) word = word << 8 | std::to_integer<uint64_t>(byte);
  return {static_cast<uint16_t>(word >> 48), static_cast<uint16_t>(word >> 32),
          static_cast<uint32_t>(word)};
}

void Guard::Update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (kind_ == GuardKind::kCrc) {
    sum_ = crc16_t10dif(static_cast<uint16_t>(sum_),
                        reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return;
  }
  size_t i = 0;
  if (is_odd_) sum_ += std::to_integer<uint32_t>(bytes[i++]);
  for (; i + 1 < bytes.size(); i += 2) {
    sum_ += std::to_integer<uint32_t>(bytes[i]) << 8 | std::to_integer<uint32_t>(bytes[i + 1]);
  }
  is_odd_ = i < bytes.size();
  if (is_odd_) sum_ += std::to_integer<uint32_t>(bytes[i]) << 8;
  sum_ = Fold(sum_);
}

uint16_t Guard::value() const {
  return static_cast<uint16_t>(kind_ == GuardKind::kCrc ? sum_ : ~Fold(sum_));
}

uint16_t GuardOf(const DifDomain& domain, std::span<const std::byte> data) {
  Guard guard(domain.guard, domain.seed);
  guard.Update(data);
  return guard.value();
}

DifMismatch CheckDif(const DifDomain& domain, DifChecks checks, uint64_t number, uint16_t guard,
                     const Dif& dif) {
  if (IsEscaped(domain, dif)) return {};
  if (checks.guard && dif.guard != guard) return {DifFault::kGuard, guard, dif.guard};
  const uint32_t reference = ReferenceTagOf(domain, number);
  if (checks.reference_tag && dif.reference_tag != reference) {
    return {DifFault::kReferenceTag, reference, dif.reference_tag};
  }
  const uint32_t differing = dif.application_tag ^ domain.application_tag;
  if (checks.application_tag && (differing & domain.application_mask) != 0) {
    return {DifFault::kApplicationTag, domain.application_tag, dif.application_tag};
  }
  return {};
}

Dif MakeDif(const DifDomain& domain, uint64_t number, uint16_t guard) {
  return {guard, domain.application_tag, ReferenceTagOf(domain, number)};
}

bool GuardIsCopied(const DifDomain& from, const DifDomain& to) {
  return from.guard == to.guard && from.seed == to.seed;
}

Dif CarryDif(const DifDomain& from, const DifDomain& to, uint64_t number, uint16_t guard,
             const Dif& dif) {
  Dif out = MakeDif(to, number, guard);
  if (GuardIsCopied(from, to)) out.guard = dif.guard;
  if (from.application_tag == to.application_tag) out.application_tag = dif.application_tag;
  if (from.reference_tag == to.reference_tag && from.reference_counts == to.reference_counts) {
    out.reference_tag = dif.reference_tag;
  }
  return out;
}

bool IsIntegrityBlockSize(uint32_t size) {
  return std::find(kIntegrityBlockSizes.begin(), kIntegrityBlockSizes.end(), size) !=
         kIntegrityBlockSizes.end();
}

}  // namespace roci::memory
