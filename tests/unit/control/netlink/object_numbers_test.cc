#include "control/netlink/object_numbers.h"

#include <gtest/gtest.h>

#include <set>

#include "control/netlink/counter_groups.h"

namespace roci::control::netlink {
namespace {

TEST(ObjectNumbers, AreUniqueAndStay) {
  ObjectNumbers numbers([](const ObjectKey&) { return true; });
  const ObjectKey cq{ObjectKind::kCq, 1, 7}, pd{ObjectKind::kPd, 1, 7},
      other{ObjectKind::kCq, 2, 7};
  const uint32_t number = numbers.Of(cq);
  EXPECT_NE(numbers.Of(pd), number);
  EXPECT_NE(numbers.Of(other), number);
  EXPECT_EQ(numbers.Of(cq), number);
  EXPECT_EQ(numbers.Find(ObjectKind::kCq, number), cq);
  EXPECT_EQ(numbers.Find(ObjectKind::kPd, number), std::nullopt);
  EXPECT_EQ(numbers.Find(ObjectKind::kCq, 999), std::nullopt);
}

TEST(ObjectNumbers, ForgetObjectsThatAreGone) {
  std::set<uint32_t> alive;
  ObjectNumbers numbers([&](const ObjectKey& key) { return alive.contains(key.handle); });
  for (uint32_t handle = 1; handle <= 10'000; ++handle) {
    alive.insert(handle);
    numbers.Of({ObjectKind::kMr, 1, handle});
    if (handle > 20) alive.erase(handle - 20);
  }
  EXPECT_LE(numbers.size(), 3 * alive.size());
  for (const uint32_t handle : alive) {
    const uint32_t number = numbers.Of({ObjectKind::kMr, 1, handle});
    EXPECT_EQ(numbers.Find(ObjectKind::kMr, number)->handle, handle);
  }
}

dataplane::QueuePairInfo Qp(uint32_t qpn, roce::QpType type, uint64_t sent) {
  dataplane::QueuePairInfo info;
  info.qpn = roce::Qpn(qpn);
  info.type = type;
  info.tx_packets = sent;
  return info;
}

TEST(CounterGroups, CountByTypeAndProcess) {
  CounterGroups groups(RDMA_COUNTER_MASK_QP_TYPE | RDMA_COUNTER_MASK_PID);
  groups.Add(Qp(17, roce::QpType::kRc, 1), 1, 100, "a");
  groups.Add(Qp(18, roce::QpType::kRc, 2), 2, 100, "a");
  groups.Add(Qp(19, roce::QpType::kUd, 4), 2, 100, "a");
  groups.Add(Qp(20, roce::QpType::kRc, 8), 3, 200, "b");
  std::set<uint32_t> ids;
  std::vector<uint64_t> sent;
  for (; !groups.empty(); groups.RemoveFirst()) {
    ids.insert(groups.first().id);
    sent.push_back(groups.first().sent_packets);
  }
  EXPECT_EQ(sent, (std::vector<uint64_t>{3, 4, 8}));
  EXPECT_EQ(ids.size(), 3u);
}

TEST(CounterGroups, OneCounterCountsABoundedNumberOfQueuePairs) {
  CounterGroups groups(RDMA_COUNTER_MASK_QP_TYPE);
  constexpr uint32_t kQps = 2 * CounterGroup::kMostQps + 1;
  for (uint32_t i = 0; i < kQps; ++i) groups.Add(Qp(17 + i, roce::QpType::kRc, 1), 1, 1, "");
  std::set<uint32_t> ids;
  size_t qps = 0;
  for (; !groups.empty(); groups.RemoveFirst()) {
    ids.insert(groups.first().id);
    qps += groups.first().qpns.size();
    EXPECT_LE(groups.first().qpns.size(), CounterGroup::kMostQps);
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(qps, kQps);
}

}  // namespace
}  // namespace roci::control::netlink
