// Signature regions compared with a model of memory and wire: every combination of protection
// information, in pieces of any size, in mapped memory and through process_vm.
#include "memory/integrity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "memory/app_memory.h"
#include "memory/copy.h"
#include "memory/copy_batch.h"

namespace roci::memory {
namespace {

constexpr uint32_t kPd = 3;
constexpr AccessContext kContext{kPd, 17};
constexpr Access kRights = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead;
constexpr size_t kMemory = 512 * 1024;
constexpr DifChecks kAllChecks{true, true, true};

using Bytes = std::vector<std::byte>;

DifDomain Present(GuardKind guard = GuardKind::kCrc) {
  DifDomain domain;
  domain.is_present = true;
  domain.guard = guard;
  domain.application_tag = 0xBEEF;
  domain.reference_tag = 0x1000;
  domain.reference_counts = true;
  return domain;
}

// The protection information of one block in `domain`.
Bytes Protection(const DifDomain& domain, std::span<const std::byte> data, uint32_t number) {
  const DifImage image = EncodeDif({GuardOf(domain, data), domain.application_tag,
                                    domain.reference_tag + (domain.reference_counts ? number : 0)});
  return {image.begin(), image.end()};
}

Bytes Image(const DifDomain& domain, const Bytes& data, uint32_t block_size) {
  if (!domain.is_present) return data;
  Bytes out;
  for (uint32_t i = 0; i * block_size < data.size(); ++i) {
    const auto block = std::span(data).subspan(i * block_size, block_size);
    out.insert(out.end(), block.begin(), block.end());
    const Bytes protection = Protection(domain, block, i);
    out.insert(out.end(), protection.begin(), protection.end());
  }
  return out;
}

class IntegrityTest : public ::testing::Test {
 protected:
  explicit IntegrityTest(Reach reach = Reach::kProcess) {
    const int fd = memfd_create("integrity", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, kMemory), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    int error = 0;
    mapping_ = MappedFile::Map(fd, 0, kMemory, true, &error);
    close(fd);
    memory_ = mapping_->At(0);
    app_ = AppMemory::Open(getpid(), -1, reach, &error);
    EXPECT_NE(app_, nullptr);
    table_ = std::make_unique<KeyTable>(app_.get(), 64);
    // Two regions on the same memory: one mapped, one accessed by system calls.
    mapped_ = Region(true, Access::kLocalWrite);
    remote_ = Region(false, Access::kLocalWrite);
    EXPECT_EQ(table_->AllocateIntegrity(kPd, 512, 512, &key_), MemoryStatus::kOk);
  }

  uint64_t va() const { return reinterpret_cast<uintptr_t>(memory_); }
  uint32_t Region(bool is_mapped, Access access) {
    Translation translation{va(), kMemory, va(), {}};
    if (is_mapped) translation.extents.push_back({va(), kMemory, mapping_, 0});
    uint32_t key = 0;
    EXPECT_EQ(table_->Register(kPd, access, translation, &key), MemoryStatus::kOk);
    return key;
  }
  // Runs must not overlap: each byte of the result has an address of its own.
  std::vector<ListRun> Runs(size_t from, size_t bytes) {
    std::vector<ListRun> runs;
    while (bytes > 0) {
      const auto piece = static_cast<uint32_t>(
          runs.size() == 60 ? bytes : std::min<size_t>(bytes, 1 + random_() % 3000));
      runs.push_back({va() + from, piece, random_() % 4 == 0 ? remote_ : mapped_});
      from += piece + random_() % 3;
      bytes -= piece;
    }
    std::shuffle(runs.begin(), runs.end() - 1, random_);
    return runs;
  }
  Bytes Read(const std::vector<ListRun>& runs) const {
    Bytes out;
    for (const ListRun& run : runs) {
      const auto* at = memory_ + (run.address - va());
      out.insert(out.end(), at, at + run.length);
    }
    return out;
  }
  void Write(const std::vector<ListRun>& runs, const Bytes& bytes) {
    size_t at = 0;
    for (const ListRun& run : runs) {
      std::memcpy(memory_ + (run.address - va()), bytes.data() + at, run.length);
      at += run.length;
    }
    ASSERT_EQ(at, bytes.size());
  }
  Bytes Random(size_t bytes) {
    Bytes out(bytes);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random_());
    return out;
  }

  // Registers a region of `blocks` blocks; `is_separate`: with the protection information in
  // separate runs.
  void Make(const IntegrityAttributes& attributes, uint32_t blocks, bool is_separate) {
    if (valid_) {
      ASSERT_EQ(table_->Invalidate(key_, kContext), MemoryStatus::kOk);
    }
    valid_ = true;
    attributes_ = attributes;
    is_separate_ = attributes.memory.is_present && is_separate;
    const bool is_interleaved = attributes.memory.is_present && !is_separate;
    data_runs_ = Runs(0, blocks * (attributes.block_size + (is_interleaved ? 8 : 0)));
    protection_runs_ =
        is_separate_ ? Runs(kMemory * 3 / 4, size_t{blocks} * 8) : std::vector<ListRun>{};
    ASSERT_EQ(table_->RegisterList(
                  {key_, kRights, 0x5000, data_runs_, &attributes_, protection_runs_}, kContext),
              MemoryStatus::kOk);
    const uint32_t stride = attributes.block_size + (attributes.wire.is_present ? 8 : 0);
    wire_bytes_ = size_t{blocks} * stride;
    EXPECT_EQ(table_->Check(key_, kContext, 0x5000, wire_bytes_, Access::kRemoteRead),
              MemoryStatus::kOk);
    EXPECT_EQ(table_->Check(key_, kContext, 0x5000, wire_bytes_ + 1, Access::kRemoteRead),
              MemoryStatus::kOutOfBounds);
  }
  void Fill(const Bytes& data) {
    if (!is_separate_)
      return Write(data_runs_, Image(attributes_.memory, data, attributes_.block_size));
    Write(data_runs_, data);
    Bytes protection;
    for (size_t at = 0, i = 0; at < data.size(); at += attributes_.block_size, ++i) {
      const Bytes one =
          Protection(attributes_.memory, std::span(data).subspan(at, attributes_.block_size),
                     static_cast<uint32_t>(i));
      protection.insert(protection.end(), one.begin(), one.end());
    }
    Write(protection_runs_, protection);
  }
  void ExpectMemory(const Bytes& data) {
    if (!is_separate_) {
      EXPECT_EQ(Read(data_runs_), Image(attributes_.memory, data, attributes_.block_size));
      return;
    }
    EXPECT_EQ(Read(data_runs_), data);
    const Bytes protection = Read(protection_runs_);
    for (size_t at = 0, i = 0; at < data.size(); at += attributes_.block_size, ++i) {
      EXPECT_EQ(Bytes(protection.begin() + i * 8, protection.begin() + i * 8 + 8),
                Protection(attributes_.memory, std::span(data).subspan(at, attributes_.block_size),
                           static_cast<uint32_t>(i)))
          << i;
    }
  }

  MemoryStatus Out(size_t offset, std::span<std::byte> bytes) {
    SegmentList segments;
    const MemoryStatus status =
        table_->Resolve(key_, kContext, 0x5000 + offset, static_cast<uint32_t>(bytes.size()),
                        Access::kRemoteRead, segments);
    return status == MemoryStatus::kOk ? CopyOut(segments, bytes) : status;
  }
  MemoryStatus In(size_t offset, std::span<const std::byte> bytes) {
    SegmentList segments;
    const MemoryStatus status =
        table_->Resolve(key_, kContext, 0x5000 + offset, static_cast<uint32_t>(bytes.size()),
                        Access::kRemoteWrite, segments);
    return status == MemoryStatus::kOk ? CopyIn(segments, bytes) : status;
  }
  Bytes OutAll(size_t piece) {
    Bytes out(wire_bytes_);
    for (size_t at = 0; at < out.size(); at += piece) {
      EXPECT_EQ(Out(at, std::span(out).subspan(at, std::min(piece, out.size() - at))),
                MemoryStatus::kOk);
    }
    return out;
  }
  void InAll(const Bytes& wire, size_t piece) {
    ASSERT_EQ(wire.size(), wire_bytes_);
    for (size_t at = 0; at < wire.size(); at += piece) {
      ASSERT_EQ(In(at, std::span(wire).subspan(at, std::min(piece, wire.size() - at))),
                MemoryStatus::kOk)
          << at;
    }
  }
  IntegrityError TakeError() {
    IntegrityError error;
    EXPECT_EQ(table_->TakeIntegrityError(key_ >> 8, &error), MemoryStatus::kOk);
    return error;
  }
  void ExpectNoError() { EXPECT_EQ(TakeError().what.fault, DifFault::kNone); }

  std::mt19937 random_{1};
  std::shared_ptr<MappedFile> mapping_;
  std::byte* memory_ = nullptr;
  std::unique_ptr<AppMemory> app_;
  std::unique_ptr<KeyTable> table_;
  uint32_t mapped_ = 0;
  uint32_t remote_ = 0;
  uint32_t key_ = 0;
  bool valid_ = false;
  bool is_separate_ = false;
  IntegrityAttributes attributes_;
  std::vector<ListRun> data_runs_;
  std::vector<ListRun> protection_runs_;
  size_t wire_bytes_ = 0;
};

// All layouts, guards, block sizes and piece sizes.
TEST_F(IntegrityTest, BothSidesAgreeWithTheModel) {
  for (int round = 0; round < 400 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const auto domain = [&] {
      DifDomain made = Present(random_() % 2 == 0 ? GuardKind::kCrc : GuardKind::kChecksum);
      made.is_present = random_() % 3 != 0;
      made.seed = random_() % 2 == 0 ? 0xFFFF : 0;
      if (random_() % 2 == 0) made.application_tag = static_cast<uint16_t>(random_());
      if (random_() % 2 == 0) made.reference_tag = static_cast<uint32_t>(random_());
      made.reference_counts = random_() % 2 == 0;
      return made;
    };
    const uint32_t block = kIntegrityBlockSizes[random_() % kIntegrityBlockSizes.size()];
    const auto blocks = static_cast<uint32_t>(1 + random_() % 20);
    Make({domain(), domain(), kAllChecks, block}, blocks, random_() % 2 == 0);
    const Bytes data = Random(size_t{blocks} * block);
    const Bytes wire = Image(attributes_.wire, data, block);
    const size_t piece = round % 4 == 0 ? 1 + random_() % 40 : 256 << random_() % 5;

    Fill(data);
    EXPECT_EQ(OutAll(piece), wire);
    ExpectNoError();
    // Retransmissions from any offset.
    for (int again = 0; again < 20; ++again) {
      const size_t from = random_() % wire.size();
      Bytes part(1 + random_() % std::min<size_t>(wire.size() - from, 9000));
      ASSERT_EQ(Out(from, part), MemoryStatus::kOk);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), wire.begin() + static_cast<long>(from)));
    }
    ExpectNoError();

    const Bytes other = Random(data.size());
    InAll(Image(attributes_.wire, other, block), piece);
    ExpectMemory(other);
    ExpectNoError();
    // A message that starts again from its beginning.
    const Bytes third = Random(data.size());
    const Bytes image = Image(attributes_.wire, third, block);
    ASSERT_EQ(In(0, std::span(image).first(random_() % image.size() + 1)), MemoryStatus::kOk);
    InAll(image, piece);
    ExpectMemory(third);
    ExpectNoError();
  }
}

// The bytes between the runs do not change.
TEST_F(IntegrityTest, WritesNothingElse) {
  for (int round = 0; round < 30; ++round) {
    Make({Present(), Present(), kAllChecks, 520}, 12, round % 2 == 0);
    for (size_t i = 0; i < kMemory; ++i) memory_[i] = std::byte{0xA5};
    InAll(Image(attributes_.wire, Bytes(12 * 520, std::byte{0}), 520), 700);
    size_t changed = 0;
    Write(data_runs_, Bytes(Read(data_runs_).size(), std::byte{0xA5}));
    if (!protection_runs_.empty()) Write(protection_runs_, Bytes(12 * 8, std::byte{0xA5}));
    for (size_t i = 0; i < kMemory; ++i) changed += memory_[i] != std::byte{0xA5} ? 1 : 0;
    EXPECT_EQ(changed, 0U);
  }
}

struct Damage {
  uint32_t byte;  // of the protection information
  DifFault fault;
};
constexpr Damage kDamages[] = {
    {1, DifFault::kGuard}, {3, DifFault::kApplicationTag}, {7, DifFault::kReferenceTag}};

TEST_F(IntegrityTest, IncomingBlocksAreChecked) {
  for (const size_t piece : {64U, 515U, 1024U, 4096U}) {
    for (const bool has_memory : {false, true}) {
      DifDomain memory = Present();
      memory.is_present = has_memory;
      for (const Damage& damage : kDamages) {
        Make({memory, Present(), kAllChecks, 512}, 8, true);
        const Bytes data = Random(8 * 512);
        Bytes wire = Image(attributes_.wire, data, 512);
        const size_t at = 5 * 520 + 512 + damage.byte;
        wire[at] ^= std::byte{0x80};
        wire[6 * 520 + 513] ^= std::byte{1};  // only the first error is reported
        InAll(wire, piece);
        EXPECT_EQ(Bytes(Read(data_runs_)), data);  // an error does not stop the copy
        const IntegrityError error = TakeError();
        EXPECT_EQ(error.what.fault, damage.fault);
        EXPECT_EQ(error.offset, 5U * 520);
        EXPECT_EQ(error.key, key_);
        EXPECT_EQ(error.what.expected ^ error.what.actual, 0x80U);
        ExpectNoError();
        // The damaged protection information is copied unchanged.
        if (has_memory) {
          EXPECT_EQ(Read(protection_runs_)[5 * 8 + damage.byte], wire[at]);
        }
      }
    }
  }
}

TEST_F(IntegrityTest, OutgoingBlocksAreChecked) {
  for (const size_t piece : {100U, 1024U, 4096U}) {
    for (const bool has_wire : {false, true}) {
      for (const bool is_separate : {false, true}) {
        for (const Damage& damage : kDamages) {
          DifDomain wire = Present();
          wire.is_present = has_wire;
          Make({Present(), wire, kAllChecks, 4096}, 3, is_separate);
          const Bytes data = Random(3 * 4096);
          Fill(data);
          Bytes stored = Read(is_separate ? protection_runs_ : data_runs_);
          stored[(is_separate ? 8 : 4104 + 4096) + damage.byte] ^= std::byte{2};
          Write(is_separate ? protection_runs_ : data_runs_, stored);
          const Bytes out = OutAll(piece);
          const IntegrityError error = TakeError();
          EXPECT_EQ(error.what.fault, damage.fault);
          EXPECT_EQ(error.offset, has_wire ? 4104U : 4096U);
          EXPECT_EQ(error.what.expected ^ error.what.actual, 2U);
          ExpectNoError();
          Bytes expected = Image(attributes_.wire, data, 4096);
          if (has_wire) expected[4104 + 4096 + damage.byte] ^= std::byte{2};
          EXPECT_EQ(out, expected);
        }
      }
    }
  }
}

TEST_F(IntegrityTest, DamagedDataIsNoticedAndAConvertedGuardIsNew) {
  Make({Present(GuardKind::kChecksum), Present(GuardKind::kCrc), kAllChecks, 512}, 2, true);
  Bytes data = Random(1024);
  Bytes wire = Image(attributes_.wire, data, 512);
  wire[600] ^= std::byte{1};
  data[592] ^= std::byte{1};
  InAll(wire, 300);
  const IntegrityError error = TakeError();
  EXPECT_EQ(error.what.fault, DifFault::kGuard);
  EXPECT_EQ(error.offset, 520U);
  EXPECT_EQ(error.what.expected, GuardOf(attributes_.wire, std::span(data).subspan(512)));
  ExpectMemory(data);
}

TEST_F(IntegrityTest, FieldsWithoutAnEnabledCheckAreIgnored) {
  Make({{}, Present(), {}, 512}, 2, false);
  Bytes wire = Image(attributes_.wire, Random(1024), 512);
  for (size_t i = 512; i < 520; ++i) wire[i] ^= std::byte{0xFF};
  InAll(wire, 128);
  ExpectNoError();
}

TEST_F(IntegrityTest, EscapedBlocksPass) {
  DifDomain wire = Present();
  wire.escape = DifEscape::kApplicationTag;
  Make({{}, wire, kAllChecks, 512}, 2, false);
  Bytes image = Image(attributes_.wire, Random(1024), 512);
  image[0] ^= std::byte{1};
  image[514] = image[515] = std::byte{0xFF};
  InAll(image, 128);
  ExpectNoError();
  image[520] ^= std::byte{1};
  InAll(image, 128);
  EXPECT_EQ(TakeError().offset, 520U);
}

TEST_F(IntegrityTest, ABlockArrivesInOrderOrNotAtAll) {
  Make({Present(), Present(), kAllChecks, 512}, 4, true);
  const Bytes data = Random(4 * 512);
  const Bytes wire = Image(attributes_.wire, data, 512);
  const auto part = [&](size_t from, size_t bytes) {
    return In(from, std::span(wire).subspan(from, bytes));
  };
  EXPECT_EQ(part(1, 10), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(part(0, 100), MemoryStatus::kOk);
  EXPECT_EQ(part(101, 100), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(part(0, 100), MemoryStatus::kOk);
  EXPECT_EQ(part(99, 100), MemoryStatus::kOutOfBounds);
  // A block in between discards the incomplete first one.
  EXPECT_EQ(part(0, 516), MemoryStatus::kOk);
  EXPECT_EQ(part(1040, 520), MemoryStatus::kOk);
  EXPECT_EQ(part(516, 4), MemoryStatus::kOutOfBounds);
  // Whole blocks may come in any order.
  EXPECT_EQ(part(1560, 520), MemoryStatus::kOk);
  EXPECT_EQ(part(0, 518), MemoryStatus::kOk);
  EXPECT_EQ(part(518, 522), MemoryStatus::kOk);
  ExpectMemory(data);
  ExpectNoError();
}

TEST_F(IntegrityTest, ARegistrationForgetsWhatWasBefore) {
  Make({{}, Present(), kAllChecks, 512}, 2, false);
  Bytes wire = Image(attributes_.wire, Random(1024), 512);
  wire[515] ^= std::byte{1};
  InAll(wire, 1040);
  ASSERT_EQ(In(0, std::span(wire).first(100)), MemoryStatus::kOk);
  Make({{}, Present(), kAllChecks, 512}, 2, false);
  ExpectNoError();
  EXPECT_EQ(In(100, std::span(wire).subspan(100, 100)), MemoryStatus::kOutOfBounds);
}

TEST_F(IntegrityTest, RefusesLayoutsThatCannotBe) {
  const ListRun run{va(), 1024, mapped_};
  const ListRun interleaved{va(), 1040, mapped_};
  const ListRun protection{va() + 8192, 16, mapped_};
  const ListRun short_protection{va() + 8192, 8, mapped_};
  const auto attempt = [&](std::vector<ListRun> data, std::vector<ListRun> pi,
                           const IntegrityAttributes& attributes, Access access = kRights) {
    const MemoryStatus status =
        table_->RegisterList({key_, access, 0, data, &attributes, pi}, kContext);
    if (status == MemoryStatus::kOk) {
      EXPECT_EQ(table_->Invalidate(key_, kContext), MemoryStatus::kOk);
    }
    return status;
  };
  const DifDomain none;
  EXPECT_EQ(attempt({run}, {}, {none, none, {}, 512}), MemoryStatus::kOk);
  EXPECT_EQ(attempt({run}, {}, {none, Present(), {}, 512}), MemoryStatus::kOk);
  EXPECT_EQ(attempt({run}, {protection}, {Present(), none, {}, 512}), MemoryStatus::kOk);
  EXPECT_EQ(attempt({interleaved}, {}, {Present(), none, {}, 512}), MemoryStatus::kOk);
  EXPECT_EQ(attempt({run}, {}, {none, none, {}, 513}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {}, {none, none, {}, 0}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {}, {none, none, {}, 4096}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {}, {none, none, {}, 520}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {}, {Present(), none, {}, 512}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {protection}, {none, none, {}, 512}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {short_protection}, {Present(), none, {}, 512}),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {protection, protection}, {Present(), none, {}, 512}),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(attempt({run}, {}, {none, none, {}, 512}, kRights | Access::kRemoteAtomic),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(
      attempt({run}, std::vector<ListRun>(513, {va(), 8, mapped_}), {Present(), none, {}, 512}),
      MemoryStatus::kInvalidArgument);
  // The request must be for the kind of region that the key names.
  uint32_t plain = 0;
  ASSERT_EQ(table_->AllocateList(kPd, 4, &plain), MemoryStatus::kOk);
  const IntegrityAttributes attributes{none, none, {}, 512};
  const std::vector<ListRun> runs{run};
  EXPECT_EQ(table_->RegisterList({plain, kRights, 0, runs, &attributes, {}}, kContext),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table_->RegisterList({key_, kRights, 0, runs}, kContext),
            MemoryStatus::kInvalidArgument);
  IntegrityError error;
  EXPECT_EQ(table_->TakeIntegrityError(plain >> 8, &error), MemoryStatus::kBadKey);
  EXPECT_EQ(table_->TakeIntegrityError(mapped_ >> 8, &error), MemoryStatus::kBadKey);
  EXPECT_EQ(table_->TakeIntegrityError(0, &error), MemoryStatus::kBadKey);
}

TEST_F(IntegrityTest, ProtectionMayNotGoWhereDataMayNot) {
  const uint32_t read_only = Region(true, Access::kNone);
  const IntegrityAttributes attributes{Present(), {}, {}, 512};
  const std::vector<ListRun> runs{{va(), 512, mapped_}};
  const std::vector<ListRun> protection{{va() + 8192, 8, read_only}};
  EXPECT_EQ(table_->RegisterList({key_, kRights, 0, runs, &attributes, protection}, kContext),
            MemoryStatus::kNoPermission);
  EXPECT_EQ(
      table_->RegisterList({key_, Access::kRemoteRead, 0, runs, &attributes, protection}, kContext),
      MemoryStatus::kOk);
  std::byte out[512];
  SegmentList segments;
  EXPECT_EQ(table_->Resolve(key_, kContext, 0, 512, Access::kRemoteWrite, segments),
            MemoryStatus::kNoPermission);
  ASSERT_EQ(table_->Resolve(key_, kContext, 0, 512, Access::kRemoteRead, segments),
            MemoryStatus::kOk);
  EXPECT_EQ(CopyOut(segments, out), MemoryStatus::kOk);
  ReleasedMappings released;
  ASSERT_EQ(table_->Deregister(read_only, &released), MemoryStatus::kOk);
  EXPECT_EQ(CopyOut(segments, out), MemoryStatus::kBadKey);
  EXPECT_EQ(CopyOut(segments, std::span(out).first(100)), MemoryStatus::kOk);
}

// A block of more runs than fit into one list of segments.
TEST_F(IntegrityTest, ABlockMayHaveManyParts) {
  std::vector<ListRun> runs;
  for (uint32_t i = 0; i < 512; ++i)
    runs.push_back({va() + i * 2, 1, i % 2 == 0 ? remote_ : mapped_});
  const IntegrityAttributes attributes{{}, Present(), kAllChecks, 512};
  ASSERT_EQ(table_->RegisterList({key_, kRights, 0x5000, runs, &attributes, {}}, kContext),
            MemoryStatus::kOk);
  const Bytes data = Random(512);
  const Bytes wire = Image(attributes.wire, data, 512);
  ASSERT_EQ(In(0, wire), MemoryStatus::kOk);
  EXPECT_EQ(Read(runs), data);
  Bytes out(520);
  ASSERT_EQ(Out(0, out), MemoryStatus::kOk);
  EXPECT_EQ(out, wire);
}

// A program of another user than the daemon's.
class ForeignIntegrityTest : public IntegrityTest {
 protected:
  ForeignIntegrityTest() : IntegrityTest(Reach::kAddressSpace) {}
};

TEST_F(ForeignIntegrityTest, WorksInMappedMemoryOnly) {
  const IntegrityAttributes attributes{{}, Present(), kAllChecks, 512};
  const Bytes wire = Image(attributes.wire, Random(512), 512);
  for (const auto& [key, status] :
       {std::pair(mapped_, MemoryStatus::kOk), std::pair(remote_, MemoryStatus::kFault)}) {
    const std::vector<ListRun> runs = {{va(), 512, key}};
    ASSERT_EQ(table_->RegisterList({key_, kRights, 0x5000, runs, &attributes, {}}, kContext),
              MemoryStatus::kOk);
    EXPECT_EQ(In(0, wire), status);
    Bytes out(520);
    EXPECT_EQ(Out(0, out), status);
    ASSERT_EQ(table_->Invalidate(key_, kContext), MemoryStatus::kOk);
  }
}

TEST_F(IntegrityTest, IsNotForAtomics) {
  Make({{}, {}, {}, 512}, 2, false);
  SegmentList segments;
  ASSERT_EQ(table_->Resolve(key_, kContext, 0x5000, 8, Access::kRemoteWrite, segments),
            MemoryStatus::kOk);
  EXPECT_EQ(CompareAndSwap(segments[0], 0, 0).status, MemoryStatus::kNoPermission);
  EXPECT_EQ(FetchAndAdd(segments[0], 1).status, MemoryStatus::kNoPermission);
  const std::byte word[8] = {};
  EXPECT_EQ(AtomicWrite(segments[0], word), MemoryStatus::kNoPermission);
}

TEST_F(IntegrityTest, GoesThroughABatchBetweenOtherMemory) {
  Make({Present(), Present(), kAllChecks, 512}, 2, true);
  const Bytes data = Random(1024);
  const Bytes wire = Image(attributes_.wire, data, 512);
  SegmentList segments;
  const uint64_t elsewhere = va() + kMemory - 64;
  const auto resolve = [&](Access need) {
    segments.Clear();
    EXPECT_EQ(table_->Resolve(remote_, kContext, elsewhere, 32, Access::kNone, segments),
              MemoryStatus::kOk);
    EXPECT_EQ(table_->Resolve(key_, kContext, 0x5000, 1040, need, segments), MemoryStatus::kOk);
    EXPECT_EQ(table_->Resolve(remote_, kContext, elsewhere + 32, 32, Access::kNone, segments),
              MemoryStatus::kOk);
    EXPECT_TRUE(segments.CopiesItself());
    EXPECT_FALSE(segments.AllDirect());
  };
  Bytes message = Random(64 + 1040);
  std::copy(wire.begin(), wire.end(), message.begin() + 32);
  CopyBatch batch;
  resolve(Access::kRemoteWrite);
  ASSERT_EQ(batch.AddIn(segments, message, 0), MemoryStatus::kOk);
  EXPECT_TRUE(batch.Flush().empty());
  ExpectMemory(data);
  Bytes out(message.size());
  resolve(Access::kRemoteRead);
  ASSERT_EQ(batch.AddOut(segments, out, 0), MemoryStatus::kOk);
  EXPECT_TRUE(batch.Flush().empty());
  EXPECT_EQ(out, message);
  EXPECT_EQ(CopyOut(segments, out), MemoryStatus::kOk);
  EXPECT_EQ(out, message);
  // A copy that fails leaves nothing in the batch for a later flush.
  ReleasedMappings released;
  ASSERT_EQ(table_->Deregister(mapped_, &released), MemoryStatus::kOk);
  Bytes canary(message.size(), std::byte{0x5A});
  EXPECT_EQ(batch.AddOut(segments, canary, 1), MemoryStatus::kBadKey);
  EXPECT_TRUE(batch.empty());
}

}  // namespace
}  // namespace roci::memory
