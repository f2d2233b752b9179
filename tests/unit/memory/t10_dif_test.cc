// Protection information: guards compared with published values and with a slow computation, and
// every rule of checking and conversion.
#include "memory/t10_dif.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace roci::memory {
namespace {

std::vector<std::byte> Bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

uint16_t GuardWith(GuardKind kind, std::span<const std::byte> bytes, uint16_t seed = 0) {
  Guard guard(kind, seed);
  guard.Update(bytes);
  return guard.value();
}

uint16_t SlowCrc(std::span<const std::byte> bytes, uint16_t seed) {
  uint32_t crc = seed;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x8BB7 : crc << 1;
    crc &= 0xFFFF;
  }
  return static_cast<uint16_t>(crc);
}

uint16_t SlowChecksum(std::span<const std::byte> bytes, uint16_t seed) {
  uint32_t sum = seed;
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += std::to_integer<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  }
  return static_cast<uint16_t>(~sum);
}

// SBC-3, table 14 and the catalogue of CRCs.
TEST(T10Crc, HasThePublishedValues) {
  std::vector<std::byte> block(32);
  EXPECT_EQ(GuardWith(GuardKind::kCrc, block), 0x0000);
  EXPECT_EQ(GuardWith(GuardKind::kCrc, std::vector<std::byte>(512)), 0x0000);
  for (std::byte& byte : block) byte = std::byte{0xFF};
  EXPECT_EQ(GuardWith(GuardKind::kCrc, block), 0xA293);
  for (size_t i = 0; i < 32; ++i) block[i] = static_cast<std::byte>(i);
  EXPECT_EQ(GuardWith(GuardKind::kCrc, block), 0x0224);
  for (size_t i = 0; i < 32; ++i) block[i] = std::byte{i < 2 ? uint8_t{0xFF} : uint8_t{0}};
  EXPECT_EQ(GuardWith(GuardKind::kCrc, block), 0x21B8);
  for (size_t i = 0; i < 32; ++i) block[i] = static_cast<std::byte>(0xFF - i);
  EXPECT_EQ(GuardWith(GuardKind::kCrc, block), 0xA0B7);
  EXPECT_EQ(GuardWith(GuardKind::kCrc, Bytes("123456789")), 0xD0DB);
}

// RFC 1071, section 3.
TEST(T10Checksum, HasThePublishedValue) {
  EXPECT_EQ(GuardWith(GuardKind::kChecksum,
                      Bytes(std::string_view("\x00\x01\xf2\x03\xf4\xf5\xf6\xf7", 8))),
            0x220D);
  EXPECT_EQ(GuardWith(GuardKind::kChecksum, std::vector<std::byte>(512)), 0xFFFF);
  EXPECT_EQ(GuardWith(GuardKind::kChecksum, std::vector<std::byte>(512), 0xFFFF), 0x0000);
}

TEST(T10Guards, AgreeWithTheReferenceForPiecesOfAnySize) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes(1 + random() % kMaxIntegrityBlock);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto seed = static_cast<uint16_t>(random());
    Guard crc(GuardKind::kCrc, seed);
    Guard checksum(GuardKind::kChecksum, seed);
    std::span<const std::byte> rest = bytes;
    while (!rest.empty()) {
      const size_t piece = std::min<size_t>(rest.size(), random() % (round % 2 == 0 ? 9 : 2000));
      crc.Update(rest.first(piece));
      checksum.Update(rest.first(piece));
      rest = rest.subspan(piece);
    }
    ASSERT_EQ(crc.value(), SlowCrc(bytes, seed));
    ASSERT_EQ(checksum.value(), SlowChecksum(bytes, seed));
  }
}

TEST(T10Image, IsBigEndian) {
  const Dif dif{0x0102, 0x0304, 0x05060708};
  const DifImage image = EncodeDif(dif);
  for (uint32_t i = 0; i < kDifBytes; ++i) EXPECT_EQ(image[i], static_cast<std::byte>(i + 1));
  EXPECT_EQ(DecodeDif(image), dif);
}

DifDomain Domain() {
  DifDomain domain;
  domain.is_present = true;
  domain.application_tag = 0x1234;
  domain.reference_tag = 100;
  domain.reference_counts = true;
  return domain;
}

constexpr DifChecks kAll{true, true, true};

TEST(T10Check, ChecksOnlyTheEnabledFields) {
  const DifDomain domain = Domain();
  const Dif good{0xAAAA, 0x1234, 107};
  EXPECT_EQ(CheckDif(domain, kAll, 7, 0xAAAA, good).fault, DifFault::kNone);
  for (int mask = 0; mask < 8; ++mask) {
    const DifChecks checks{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
    SCOPED_TRACE(mask);
    Dif bad = good;
    bad.guard = 0xAAAB;
    DifMismatch found = CheckDif(domain, checks, 7, 0xAAAA, bad);
    EXPECT_EQ(found.fault, checks.guard ? DifFault::kGuard : DifFault::kNone);
    if (checks.guard) {
      EXPECT_EQ(found.expected, 0xAAAAU);
      EXPECT_EQ(found.actual, 0xAAABU);
    }
    bad = good;
    bad.application_tag = 0x1235;
    found = CheckDif(domain, checks, 7, 0xAAAA, bad);
    EXPECT_EQ(found.fault, checks.application_tag ? DifFault::kApplicationTag : DifFault::kNone);
    if (checks.application_tag) {
      EXPECT_EQ(found.expected, 0x1234U);
      EXPECT_EQ(found.actual, 0x1235U);
    }
    bad = good;
    bad.reference_tag = 106;
    found = CheckDif(domain, checks, 7, 0xAAAA, bad);
    EXPECT_EQ(found.fault, checks.reference_tag ? DifFault::kReferenceTag : DifFault::kNone);
    if (checks.reference_tag) {
      EXPECT_EQ(found.expected, 107U);
      EXPECT_EQ(found.actual, 106U);
    }
    // If all are wrong, the order is guard, reference tag, application tag.
    found = CheckDif(domain, checks, 7, 0xAAAA, {0, 0, 0});
    EXPECT_EQ(found.fault, checks.guard             ? DifFault::kGuard
                           : checks.reference_tag   ? DifFault::kReferenceTag
                           : checks.application_tag ? DifFault::kApplicationTag
                                                    : DifFault::kNone);
  }
}

TEST(T10Check, ChecksOnlyTheBitsOfTheApplicationMask) {
  DifDomain domain = Domain();
  domain.application_mask = 0xFF00;
  EXPECT_EQ(CheckDif(domain, kAll, 0, 0, {0, 0x12FF, 100}).fault, DifFault::kNone);
  EXPECT_EQ(CheckDif(domain, kAll, 0, 0, {0, 0x1334, 100}).fault, DifFault::kApplicationTag);
  domain.application_mask = 0;
  EXPECT_EQ(CheckDif(domain, kAll, 0, 0, {0, 0xEDCB, 100}).fault, DifFault::kNone);
}

TEST(T10Check, IncrementsTheReferenceTagOnlyIfConfigured) {
  DifDomain domain = Domain();
  domain.reference_tag = 0xFFFFFFFF;
  EXPECT_EQ(CheckDif(domain, kAll, 1, 0, {0, 0x1234, 0}).fault, DifFault::kNone);
  EXPECT_EQ(CheckDif(domain, kAll, (uint64_t{1} << 32) + 1, 0, {0, 0x1234, 0}).fault,
            DifFault::kNone);
  domain.reference_counts = false;
  EXPECT_EQ(CheckDif(domain, kAll, 1, 0, {0, 0x1234, 0}).fault, DifFault::kReferenceTag);
  EXPECT_EQ(CheckDif(domain, kAll, 1, 0, {0, 0x1234, 0xFFFFFFFF}).fault, DifFault::kNone);
}

TEST(T10Check, DoesNotCheckEscapedBlocks) {
  DifDomain domain = Domain();
  const Dif application{1, 0xFFFF, 2};
  const Dif reference{1, 2, 0xFFFFFFFF};
  const Dif both{1, 0xFFFF, 0xFFFFFFFF};
  const auto fault = [&](const Dif& dif) { return CheckDif(domain, kAll, 0, 0, dif).fault; };
  EXPECT_EQ(fault(application), DifFault::kGuard);
  EXPECT_EQ(fault(both), DifFault::kGuard);
  domain.escape = DifEscape::kApplicationTag;
  EXPECT_EQ(fault(application), DifFault::kNone);
  EXPECT_EQ(fault(both), DifFault::kNone);
  EXPECT_EQ(fault(reference), DifFault::kGuard);
  domain.escape = DifEscape::kBothTags;
  EXPECT_EQ(fault(application), DifFault::kGuard);
  EXPECT_EQ(fault(reference), DifFault::kGuard);
  EXPECT_EQ(fault(both), DifFault::kNone);
}

TEST(T10Carry, CopiesFieldsThatAreConfiguredAlikeOnBothSides) {
  const DifDomain from = Domain();
  const Dif dif{1, 2, 3};
  DifDomain to = from;
  EXPECT_EQ(CarryDif(from, to, 5, 9, dif), dif);
  to.guard = GuardKind::kChecksum;
  EXPECT_EQ(CarryDif(from, to, 5, 9, dif), (Dif{9, 2, 3}));
  to = from;
  to.seed = 0xFFFF;
  EXPECT_EQ(CarryDif(from, to, 5, 9, dif), (Dif{9, 2, 3}));
  to = from;
  to.application_tag = 0x77;
  EXPECT_EQ(CarryDif(from, to, 5, 9, dif), (Dif{1, 0x77, 3}));
  to = from;
  to.reference_tag = 1000;
  EXPECT_EQ(CarryDif(from, to, 5, 9, dif), (Dif{1, 2, 1005}));
  to = from;
  to.reference_counts = false;
  EXPECT_EQ(CarryDif(from, to, 5, 9, dif), (Dif{1, 2, 100}));
  EXPECT_EQ(MakeDif(from, 5, 9), (Dif{9, 0x1234, 105}));
}

TEST(T10Blocks, HaveFiveSizes) {
  int count = 0;
  for (uint32_t size = 0; size < 10000; ++size) count += IsIntegrityBlockSize(size) ? 1 : 0;
  EXPECT_EQ(count, 5);
  for (const uint32_t size : {512, 520, 4048, 4096, 4160}) EXPECT_TRUE(IsIntegrityBlockSize(size));
}

}  // namespace
}  // namespace roci::memory
