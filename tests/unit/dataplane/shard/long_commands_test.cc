// Commands on very many objects or entries run in parts, between which the lcore serves others
// (LcoreTest.ServesQueuePairsBetweenThePartsOfACommand). The tests count parts, not time.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/shard/lcore.h"
#include "dataplane/shard/worker.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

using memory::MemoryStatus;

// Counts the functions that the lcore runs for the control thread.
class Parts {
 public:
  explicit Parts(dataplane::Lcore& lcore) : lcore_(lcore), before_(Count() + 1) {}
  uint64_t count() { return Count() - before_; }

 private:
  // Without the function that reads the counter.
  uint64_t Count() {
    uint64_t calls = 0;
    lcore_.CallInRound([&](const dataplane::OnShard& shard) {
      calls = lcore_.worker(shard).stats().calls.value();
      return true;
    });
    return calls;
  }

  dataplane::Lcore& lcore_;
  const uint64_t before_;
};

class LongCommands : public ::testing::Test {
 protected:
  dataplane::Lcore& lcore() { return node_.client().lcore(); }
  void AddQueuePairs(uint32_t count) {
    dataplane::QueuePairConfig config;
    config.pd = Node::kPd;
    config.send_cq = config.recv_cq = cq_.cq();
    config.max_send_wr = config.max_recv_wr = 1;
    for (uint32_t i = 0; i < count; ++i) {
      auto created = node_.client().Do(dataplane::CreateQueuePair{config, i});
      ASSERT_TRUE(created.ok()) << i;
      queue_pairs_.push_back(created->queue_pair);
    }
  }

  dataplane::Wire wire_{TestDataplane()};
  Node node_{TestDataplane(), &wire_, {}};
  AppCq cq_{node_.client(), 16};
  std::vector<dataplane::QueuePair*> queue_pairs_;
};

TEST_F(LongCommands, InspectManyQueuePairs) {
  constexpr size_t kMost = dataplane::InspectQueuePairs::kMostInRow;
  AddQueuePairs(10 * kMost + 1);
  Parts parts(lcore());
  const auto infos = node_.client().Do(dataplane::InspectQueuePairs{queue_pairs_});
  EXPECT_EQ(parts.count(), 11U);
  ASSERT_EQ(infos.size(), queue_pairs_.size());
  for (uint32_t i = 0; i < infos.size(); ++i) ASSERT_EQ(infos[i].handle, i);
}

TEST_F(LongCommands, InspectNoQueuePairs) {
  EXPECT_TRUE(node_.client().Do(dataplane::InspectQueuePairs{{}}).empty());
}

TEST_F(LongCommands, ListManyRegions) {
  constexpr uint32_t kKeys = 10 * dataplane::ListRegions::kMostInRow;  // and that of the node
  std::vector<uint32_t> keys = {node_.key()};
  for (uint32_t i = 0; i < kKeys; ++i) {
    const auto window =
        node_.client().Do(dataplane::AllocateWindow{Node::kPd, memory::WindowType::kType1});
    ASSERT_EQ(window.status, MemoryStatus::kOk) << i;
    keys.push_back(window.key);
  }
  Parts parts(lcore());
  const auto regions = node_.client().Do(dataplane::ListRegions{});
  EXPECT_EQ(parts.count(), 1U + 11U) << "their number, and parts of them";
  ASSERT_EQ(regions.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(regions[i].key, keys[i]);
}

}  // namespace
}  // namespace roci::testing
