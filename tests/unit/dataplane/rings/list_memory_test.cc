// Gate 2 of list and signature regions: reading and checking the lists that programs write.
#include "dataplane/rings/list_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "memory/t10_dif.h"
#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

using memory::Access;
using memory::MemoryStatus;

const OnShard& kShard = OnShardInTests::Token();

constexpr uint32_t kPd = 1;
constexpr memory::AccessContext kContext{kPd, 5};
constexpr uint32_t kData = 2;  // most runs
constexpr uint32_t kProtection = 3;

class ListMemoryTest : public ::testing::Test {
 protected:
  ListMemoryTest() {
    EXPECT_EQ(keys_.Register(kPd, Access::kLocalWrite, {0x10000, 0x4000, 0x10000, {}}, &region_),
              MemoryStatus::kOk);
    signature_ = Make({kData, kProtection, true}, &signature_memory_);
    list_ = Make({kData, 0, false}, &list_memory_);
    roci_abi_signature& signature = Signature();
    signature.memory = {1, ROCI_ABI_SIGNATURE_CHECKSUM, 0, 7, 0xFFFF, 9, 0};
    signature.wire = {1,
                      ROCI_ABI_SIGNATURE_CRC,
                      0xFFFF,
                      7,
                      0xFF,
                      9,
                      ROCI_ABI_SIGNATURE_REF_COUNTS | ROCI_ABI_SIGNATURE_APP_ESCAPE};
    signature.block_size = 512;
    signature.checks = ROCI_ABI_SIGNATURE_CHECK_GUARD;
    signature.protection_runs = 1;
    Run(0) = {0x10000, 1024, region_};
    Run(kData) = {0x12000, 16, region_};
  }

  uint32_t Make(const ListRoom& room, std::byte** data) {
    uint32_t key = 0;
    EXPECT_EQ(room.has_signature
                  ? keys_.AllocateIntegrity(kPd, room.max_runs, room.max_protection_runs, &key)
                  : keys_.AllocateList(kPd, room.max_runs, &key),
              MemoryStatus::kOk);
    auto memory = ListMemory::Create(room);
    EXPECT_TRUE(memory.ok());
    *data = (*memory)->data();
    lists_.Add(kShard, key >> 8, *std::move(memory), room);
    return key;
  }
  roci_abi_signature& Signature() {
    return *reinterpret_cast<roci_abi_signature*>(signature_memory_);
  }
  // Of the signature region: kData of data, then protection.
  roci_abi_sge& Run(uint32_t i) {
    return reinterpret_cast<roci_abi_sge*>(signature_memory_ + sizeof(roci_abi_signature))[i];
  }
  MemoryStatus Register(uint32_t key, uint64_t runs) {
    roce::SendWqe wqe{};
    wqe.list = {.iova = 0x5000,
                .runs = runs,
                .list = key >> 8,
                .access = static_cast<uint32_t>(Access::kLocalWrite | Access::kRemoteWrite),
                .new_key = key};
    return lists_.Register(kShard, keys_, wqe, kContext);
  }
  // Checks the list with a change to the signature, then reverts the change.
  MemoryStatus With(const std::function<void(roci_abi_signature&)>& change) {
    const roci_abi_signature before = Signature();
    change(Signature());
    const MemoryStatus status = Register(signature_, 1);
    Signature() = before;
    if (status == MemoryStatus::kOk) {
      EXPECT_EQ(keys_.Invalidate(signature_, kContext), MemoryStatus::kOk);
    }
    return status;
  }

  memory::KeyTable keys_{nullptr, 16};
  ListMemory lists_;
  uint32_t region_ = 0;
  uint32_t signature_ = 0;
  uint32_t list_ = 0;
  std::byte* signature_memory_ = nullptr;
  std::byte* list_memory_ = nullptr;
};

TEST_F(ListMemoryTest, ReadsTheRunsOfAList) {
  const roci_abi_sge runs[] = {{0x10000, 100, region_}, {0x11000, 50, region_}};
  std::memcpy(list_memory_, runs, sizeof(runs));
  ASSERT_EQ(Register(list_, 2), MemoryStatus::kOk);
  EXPECT_EQ(keys_.Check(list_, kContext, 0x5000, 150, Access::kRemoteWrite), MemoryStatus::kOk);
  EXPECT_EQ(Register(list_, 3), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list_, UINT64_MAX), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list_ + 0x10000, 1), MemoryStatus::kBadKey);
}

TEST_F(ListMemoryTest, ReadsASignature) {
  ASSERT_EQ(Register(signature_, 1), MemoryStatus::kOk);
  EXPECT_EQ(keys_.Check(signature_, kContext, 0x5000, 1040, Access::kRemoteWrite),
            MemoryStatus::kOk);
  EXPECT_EQ(keys_.Check(signature_, kContext, 0x5000, 1041, Access::kRemoteWrite),
            MemoryStatus::kOutOfBounds);
}

TEST_F(ListMemoryTest, BlocksMayBeOfAnyAdvertisedSize) {
  for (const uint32_t size : ROCI_ABI_SIGNATURE_BLOCK_SIZES) {
    Run(0).length = 2 * size;
    EXPECT_EQ(With([&](roci_abi_signature& s) { s.block_size = size; }), MemoryStatus::kOk);
  }
}

TEST_F(ListMemoryTest, RefusesInvalidLists) {
  EXPECT_EQ(With([](roci_abi_signature&) {}), MemoryStatus::kOk);
  const std::function<void(roci_abi_signature&)> nonsense[] = {
      [](auto& s) { s.protection_runs = kProtection + 1; },
      [](auto& s) { s.protection_runs = UINT32_MAX; },
      [](auto& s) { s.protection_runs = 2; },  // the second is empty
      [](auto& s) { s.block_size = 0; },
      [](auto& s) { s.block_size = 1024; },
      [](auto& s) { s.checks = 0x40; },
      [](auto& s) { s.checks = 0x100; },
      [](auto& s) { s.memory.is_present = 2; },
      [](auto& s) { s.memory.is_present = 0; },  // with runs of protection information
      [](auto& s) { s.wire.guard = 2; },
      [](auto& s) { s.wire.flags = 8; },
      [](auto& s) {
        s.wire.flags = ROCI_ABI_SIGNATURE_APP_ESCAPE | ROCI_ABI_SIGNATURE_APP_REF_ESCAPE;
      },
  };
  for (const auto& change : nonsense) {
    EXPECT_EQ(With(change), MemoryStatus::kInvalidArgument) << &change - nonsense;
  }
  EXPECT_EQ(Register(signature_, kData + 1), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(signature_, 0), MemoryStatus::kInvalidArgument);
  Run(kData).lkey = region_ + 1;
  EXPECT_EQ(Register(signature_, 1), MemoryStatus::kBadKey);
}

}  // namespace
}  // namespace roci::dataplane
