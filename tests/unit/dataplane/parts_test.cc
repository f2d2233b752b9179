// Small parts of the dataplane: owned set, QP numbers, address table, mailbox, record pool, slab,
// clock and active list.
#include <gtest/gtest.h>
#include <rte_cycles.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "dataplane/base/clock.h"
#include "dataplane/base/mailbox.h"
#include "dataplane/base/owned_set.h"
#include "dataplane/base/record_arena.h"
#include "dataplane/base/record_pool.h"
#include "dataplane/base/slab.h"
#include "dataplane/qp/address_handles.h"
#include "dataplane/qp/qpn_space.h"
#include "dataplane/shard/active_list.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::dataplane {
namespace {

TEST(OwnedSet, HandsOverTheObjectThatIsAskedFor) {
  OwnedSet<int> set;
  EXPECT_TRUE(set.empty());
  for (int i = 0; i < 20; ++i) {
    set.MakeRoom();
    set.Add(std::make_unique<int>(i));
  }
  for (const int wanted : {3, 19, 0, 7}) {
    const auto found =
        std::find_if(set.begin(), set.end(), [&](const auto& owned) { return *owned == wanted; });
    ASSERT_NE(found, set.end());
    EXPECT_EQ(*set.Take(**found), wanted);
  }
  std::set<int> left;
  for (const auto& owned : set) left.insert(*owned);
  EXPECT_EQ(left.size(), 16u);
  EXPECT_FALSE(left.contains(7));
}

TEST(QpnSpace, NumbersContainTheLcoreAndAreNotReusedSoon) {
  QpnSpace space(3, 42);
  EXPECT_EQ(space.lcore_bits(), 2u);
  std::set<uint32_t> seen;
  for (int i = 0; i < 5000; ++i) {
    const auto qpn = space.Allocate(2);
    ASSERT_TRUE(qpn.has_value());
    EXPECT_EQ(QpnSpace::LcoreOf(*qpn, 2), 2u);
    EXPECT_TRUE(seen.insert(qpn->value()).second);
    space.Free(*qpn);
  }
}

TEST(QpnSpace, AllocatesEverySlotExactlyOnce) {
  for (const uint32_t lcores : {1u, 2u, 16u}) {
    QpnSpace space(lcores, lcores);
    std::set<uint32_t> slots;
    for (uint32_t i = 0; i < QpnSpace::kSlots; ++i) {
      const auto qpn = space.Allocate(0);
      ASSERT_TRUE(qpn.has_value());
      EXPECT_GT(qpn->value(), 1u);
      EXPECT_NE(*qpn, roce::kMulticastQpn);
      slots.insert(QpnSpace::SlotOf(*qpn, space.lcore_bits()));
    }
    EXPECT_EQ(slots.size(), QpnSpace::kSlots);
    EXPECT_FALSE(space.Allocate(0).has_value());
  }
}

TEST(AddressHandles, HandlesAreValidOnlyInTheirProtectionDomain) {
  AddressHandles table(2);
  uint32_t a = 0;
  uint32_t b = 0;
  ASSERT_TRUE(table.Add(1, {}, &a));
  ASSERT_TRUE(table.Add(1, {}, &b));
  uint32_t c = 0;
  EXPECT_FALSE(table.Add(1, {}, &c));
  EXPECT_NE(table.Find(a, 1), nullptr);
  EXPECT_EQ(table.Find(a, 2), nullptr);
  EXPECT_EQ(table.Find(99, 1), nullptr);
  EXPECT_TRUE(table.Remove(a));
  EXPECT_FALSE(table.Remove(a));
  ASSERT_TRUE(table.Add(2, {}, &c));
  EXPECT_EQ(c, a);
  EXPECT_EQ(table.Find(a, 1), nullptr);
}

TEST(AddressHandles, ARemovedHandleKeepsItsPathUntilManyOthersAreRemoved) {
  constexpr uint32_t kBefore = AddressHandles::kRemovedBeforeReuse;
  AddressHandles table(4 * kBefore);
  roce::Path path;
  path.hop_limit = 77;
  uint32_t removed = 0;
  ASSERT_TRUE(table.Add(1, path, &removed));
  const roce::FrameTemplate frame = *table.Find(removed, 1);
  uint32_t other = removed;
  for (uint32_t i = 1; i < kBefore; ++i) {
    ASSERT_TRUE(table.Remove(other));
    ASSERT_TRUE(table.Add(1, {}, &other));
    ASSERT_NE(other, removed) << i;
    const roce::FrameTemplate* found = table.Find(removed, 1);
    ASSERT_TRUE(std::equal(frame.bytes(), frame.bytes() + frame.kCapacity, found->bytes())) << i;
  }
  ASSERT_TRUE(table.Remove(other));
  ASSERT_TRUE(table.Add(1, {}, &other));
  EXPECT_EQ(other, removed);
  EXPECT_EQ(table.size(), 1u);
}

TEST(Mailbox, RunsFunctionsOfOtherThreadsOneAtATime) {
  Mailbox mailbox;
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop) {
      mailbox.Serve(dataplane::OnShardInTests::Token());
      std::this_thread::yield();
    }
  });
  uint64_t count = 0;
  std::thread others[2];
  for (std::thread& other : others) {
    other = std::thread([&] {
      for (int i = 0; i < 5000; ++i) {
        // Not atomic: only the server touches it.
        const auto add = [](const dataplane::OnShard&, void* p) { ++*static_cast<uint64_t*>(p); };
        mailbox.Post(add, &count, [] {});
      }
    });
  }
  for (std::thread& other : others) other.join();
  stop = true;
  server.join();
  EXPECT_EQ(count, 10000u);
}

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

TEST(Slab, PacksObjectsAndFreesEmptyChunks) {
  Slab slab(100, /*huge=*/false);  // 128 with alignment
  constexpr size_t kPerChunk = Slab::kChunkBytes / 128;
  std::set<std::byte*> objects;
  for (size_t i = 0; i < 3 * kPerChunk; ++i) {
    auto* object = static_cast<std::byte*>(slab.Take());
    ASSERT_NE(object, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(object) % 64, 0u);
    std::memset(object, 0x77, 100);
    objects.insert(object);
  }
  EXPECT_EQ(objects.size(), 3 * kPerChunk);
  EXPECT_EQ(slab.chunks(), 3u);
  std::byte* last = nullptr;
  for (std::byte* object : objects) {
    EXPECT_TRUE(last == nullptr || object - last >= 128);
    last = object;
    slab.Give(object);
  }
  EXPECT_EQ(slab.chunks(), 1u);
  EXPECT_NE(slab.Take(), nullptr);
}

TEST(Clock, FollowsTheSystemsMonotonicClock) {
  Clock clock(rte_get_tsc_hz());
  uint64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    // However long the thread loses the processor in between, the time lies between both.
    const uint64_t before = Clock::Monotonic();
    const uint64_t now = clock.At(Clock::Tsc());
    const uint64_t after = Clock::Monotonic();
    EXPECT_GE(now, last);
    last = now;
    constexpr uint64_t kErrorNs = 5'000'000;  // of the TSC's frequency, until the clock is anchored
    EXPECT_GE(now + kErrorNs, before);
    EXPECT_LE(now, after + kErrorNs);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

class ActiveListTest : public ::testing::Test {
 protected:
  ActiveListTest()
      : wire_(testing::TestDataplane()),
        node_(testing::TestDataplane(), &wire_, {}),
        cq_(node_.client(), 16) {
    QueuePairConfig config;
    config.send_cq = config.recv_cq = cq_.cq();
    for (int i = 0; i < 100; ++i) {
      apps_.push_back(std::make_unique<testing::AppQp>(node_.client(), config));
    }
  }
  QueuePair& qp(size_t i) { return apps_[i]->qp(); }

  Wire wire_;
  testing::Node node_;
  testing::AppCq cq_;
  std::vector<std::unique_ptr<testing::AppQp>> apps_;
};

TEST_F(ActiveListTest, KeepsOrderAndSkipsRemovedQueuePairs) {
  ActiveList list;
  list.Push(qp(0));
  list.Push(qp(1));
  list.Push(qp(1));
  list.Push(qp(2));
  EXPECT_EQ(list.size(), 3u);
  list.Remove(qp(1));
  EXPECT_EQ(list.Peek(0), &qp(0));
  EXPECT_EQ(list.Peek(1), nullptr);
  EXPECT_EQ(list.Pop(), &qp(0));
  EXPECT_EQ(list.Pop(), nullptr);
  EXPECT_EQ(list.Pop(), &qp(2));
  EXPECT_TRUE(list.empty());
}

TEST_F(ActiveListTest, GrowsAndCompacts) {
  ActiveList list;
  for (size_t i = 0; i < 60; ++i) list.Push(qp(i));
  list.Reserve(100);
  for (size_t i = 60; i < 100; ++i) list.Push(qp(i));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(list.Pop(), &qp(i));
  // Removed ones leave holes; the ring never overflows because of them.
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < 100; ++i) list.Push(qp(i));
    for (size_t i = 0; i < 100; i += 2) list.Remove(qp(i));
    for (size_t i = 0; i < 100; i += 2) list.Push(qp(i));
    uint32_t found = 0;
    while (!list.empty()) found += list.Pop() != nullptr ? 1 : 0;
    ASSERT_EQ(found, 100u);
  }
}

}  // namespace
}  // namespace roci::dataplane
