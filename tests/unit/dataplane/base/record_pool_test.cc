// Storage of requests in flight, and the pool that lends it.
#include "dataplane/base/record_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>

#include "dataplane/base/record_arena.h"

namespace roci::dataplane {
namespace {

TEST(RecordStorage, IsZeroedAlsoWhenReused) {
  std::byte* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    RecordStorage storage = RecordStorage::Allocate(128);
    ASSERT_TRUE(storage);
    constexpr size_t kBytes = 128 * sizeof(roce::SendRecord);
    auto* bytes = reinterpret_cast<std::byte*>(storage.records());
    EXPECT_TRUE(first == nullptr || bytes == first);
    first = bytes;
    for (size_t i = 0; i < kBytes; ++i) EXPECT_EQ(bytes[i], std::byte{0});
    std::memset(bytes, 0xAA, kBytes);
    EXPECT_EQ(bytes[kBytes - 1], std::byte{0xAA});
  }
}

TEST(RecordPool, LendsTheLastReturnedRecordsAndTrimsUnusedOnes) {
  RecordPool pool;
  constexpr uint32_t kQueuePairs = 100;
  const uint32_t size_class = RecordStorage::Allocate(128).size_class();
  for (uint32_t i = 0; i < kQueuePairs; ++i) pool.Add(RecordStorage::Allocate(128));
  std::set<roce::SendRecord*> lent;
  for (uint32_t i = 0; i < kQueuePairs; ++i) lent.insert(pool.Borrow(size_class));
  EXPECT_EQ(lent.size(), kQueuePairs);
  for (roce::SendRecord* records : lent) {
    std::memset(static_cast<void*>(records), 0x55, sizeof(*records));
    pool.Return(size_class, records);
  }
  EXPECT_EQ(pool.Borrow(size_class), *lent.rbegin());
  pool.Return(size_class, *lent.rbegin());

  EXPECT_EQ(pool.used(), kQueuePairs);
  EXPECT_TRUE(pool.Trim(10));
  EXPECT_EQ(pool.used(), kQueuePairs - 10);
  EXPECT_FALSE(pool.Trim(1000));
  EXPECT_EQ(pool.used(), 64u);
  uint32_t zero = 0;
  for (roce::SendRecord* records : lent) zero += *reinterpret_cast<uint8_t*>(records) == 0 ? 1 : 0;
  EXPECT_EQ(zero, kQueuePairs - 64);
  for (uint32_t i = 0; i < kQueuePairs; ++i) EXPECT_TRUE(pool.Remove(size_class));
}

}  // namespace
}  // namespace roci::dataplane
