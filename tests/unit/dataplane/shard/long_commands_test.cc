// Commands on very many objects or entries run in parts, between which the lcore serves others
// (LcoreTest.ServesQueuePairsBetweenThePartsOfACommand). The tests count parts, not time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/context_removal.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/worker.h"
#include "dataplane/shard/xrc_client.h"
#include "dataplane/shard/xrc_targets.h"
#include "dataplane/types/queue_limits.h"
#include "memory/mapped_file.h"
#include "memory/unmapper.h"
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
  dataplane::Lcore& lcore() { return node_.lcore(); }
  // Another program on the same lcore.
  std::unique_ptr<Node> MakeProgram() {
    Node::Config config;
    config.number = 2;
    return std::make_unique<Node>(TestDataplane(), &wire_, config);
  }
  static dataplane::QueuePairConfig SmallQueuePair(AppCq& cq) {
    dataplane::QueuePairConfig config;
    config.pd = Node::kPd;
    config.send_cq = config.recv_cq = cq.cq();
    config.max_send_wr = config.max_recv_wr = 1;
    return config;
  }
  void AddQueuePairs(uint32_t count) {
    const dataplane::QueuePairConfig config = SmallQueuePair(cq_);
    for (uint32_t i = 0; i < count; ++i) {
      auto created = node_.client().Do(dataplane::CreateQueuePair{config, i});
      ASSERT_TRUE(created.ok()) << i;
      queue_pairs_.push_back(created->queue_pair);
    }
  }
  // A region, and many windows that are bound to it.
  struct BoundWindows {
    uint32_t region = 0;
    std::vector<uint32_t> keys;
  };
  BoundWindows BindWindows(uint32_t count, memory::WindowType type, uint32_t qpn) {
    constexpr uint64_t kVa = 0x10000;
    BoundWindows out;
    const memory::Access rights = memory::Access::kLocalWrite | memory::Access::kWindowBind;
    const auto region = node_.client().Do(dataplane::RegisterRegion{
        Node::kPd, rights, {.va = kVa, .length = 8, .iova = kVa, .extents = {}, .app = nullptr}});
    EXPECT_EQ(region.status, MemoryStatus::kOk);
    out.region = region.key;
    for (uint32_t i = 0; i < count; ++i) {
      const auto window = node_.client().Do(dataplane::AllocateWindow{Node::kPd, type});
      lcore().Call([&](const dataplane::OnShard& shard) {
        const memory::WindowBinding binding{.window = window.key >> 8,
                                            .new_key = window.key,
                                            .region_key = region.key,
                                            .access = memory::Access::kRemoteWrite,
                                            .address = kVa,
                                            .length = 8};
        const MemoryStatus status =
            node_.context(shard).keys(shard).BindWindow(binding, {.pd = Node::kPd, .qpn = qpn});
        EXPECT_EQ(status, MemoryStatus::kOk);
      });
      out.keys.push_back(window.key);
    }
    return out;
  }
  size_t CountBound(const BoundWindows& windows) {
    size_t bound = 0;
    for (const memory::RegionInfo& info : node_.client().Do(dataplane::ListRegions{})) {
      bound += info.window && info.length != 0;
    }
    EXPECT_LE(bound, windows.keys.size());
    return bound;
  }

  // Mappings of queue pairs and completion queues in this process.
  static size_t CountRings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += line.find("memfd:roci-qp") != std::string::npos ||
               line.find("memfd:roci-cq") != std::string::npos;
    }
    return count;
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

TEST_F(LongCommands, UnshareTheMemoryOfManyRegions) {
  constexpr uint32_t kRegions = 10 * dataplane::UnshareRange::kMostInRow;  // and that of the node
  constexpr uint64_t kVa = 0x10000000;
  constexpr size_t kBytes = 4096;
  auto memory = dataplane::SharedMemory::Create("test-regions", kBytes);
  ASSERT_TRUE(memory.ok());
  int error = 0;
  const auto mapping = memory::MappedFile::Map(memory->fd(), 0, kBytes, true, &error);
  ASSERT_NE(mapping, nullptr) << error;
  for (uint32_t i = 0; i < kRegions; ++i) {
    memory::Translation translation{.va = kVa,
                                    .length = kBytes,
                                    .iova = kVa,
                                    .extents = {{kVa, kBytes, mapping, 0}},
                                    .app = nullptr};
    const auto registered = node_.client().Do(
        dataplane::RegisterRegion{Node::kPd, memory::Access::kLocalWrite, std::move(translation)});
    ASSERT_EQ(registered.status, MemoryStatus::kOk) << i;
  }
  Parts parts(lcore());
  node_.client().Do(dataplane::UnshareRange{kVa, kBytes, nullptr});
  EXPECT_EQ(parts.count(), 2U * 11U) << "each part waits for copies";
  size_t mapped = 0;
  for (const memory::RegionInfo& info : node_.client().Do(dataplane::ListRegions{})) {
    mapped += info.va == kVa && info.direct_length != 0;
  }
  EXPECT_EQ(mapped, 0U);
}

TEST_F(LongCommands, ResizeAFullCompletionQueue) {
  constexpr uint32_t kEntries = 64 * dataplane::CompletionQueue::kMostCopied;
  AppCq cq(node_.client(), kEntries);
  for (uint32_t i = 0; i < kEntries;) {
    lcore().Call([&](const dataplane::OnShard& shard) {
      for (const uint32_t end = i + 256; i < end; ++i) {
        roce::Completion completion{};
        completion.wr_id = i;
        cq.cq()->Write(shard, completion, {77, 5}, true, 123);
      }
      lcore().worker(shard).events().Publish(shard);
    });
  }
  Parts parts(lcore());
  auto move =
      node_.client().Do(dataplane::ResizeCompletionQueue{*cq.cq(), 2 * kEntries, cq.consumed()});
  ASSERT_TRUE(move.ok());
  uint32_t parts_of_control = 0;
  for (absl::StatusOr<bool> has_more = true; *has_more; ++parts_of_control) {
    const uint32_t copied = move->copied;
    has_more = node_.client().Do(dataplane::ContinueMove{*cq.cq(), *move});
    ASSERT_TRUE(has_more.ok());
    EXPECT_LE(move->copied - copied, dataplane::ContinueMove::kMostInPart);
  }
  EXPECT_EQ(parts_of_control, 2 + kEntries / dataplane::ContinueMove::kMostInPart);
  EXPECT_EQ(parts.count(), 2U) << "before and after the control thread's copy";
  cq.Switch(std::move(move->fd));
  roci_abi_cqe cqe;
  for (uint32_t i = 0; i < kEntries; ++i) {
    ASSERT_TRUE(cq.Poll(&cqe)) << i;
    ASSERT_EQ(cqe.wr_id, i);
  }
  EXPECT_FALSE(cq.Poll(&cqe));
}

// UD: the send queue leaves SQE.
TEST_F(LongCommands, FlushADeepSendQueue) {
  constexpr uint32_t kParts = 64;
  constexpr uint32_t kRequests = kParts * roce::kFlushBudget;
  AppCq cq(node_.client(), 2 * kRequests);
  dataplane::QueuePairConfig config;
  config.type = roce::QpType::kUd;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = kRequests;
  AppQp qp(node_.client(), config);
  ASSERT_EQ(ConnectUd(node_, qp), roce::ModifyResult::kOk);
  SendRequest request;
  request.head.opcode = ROCI_ABI_WR_SEND;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  qp.Post(request);  // to no address handle
  qp.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq.Wait(&cqe));
  ASSERT_EQ(qp.Inspect().state, roce::QpState::kSqe);
  // Without a doorbell at an armed queue, so that the lcore does not flush them before.
  for (int i = 0; i < 5000 && std::atomic_ref(qp.send_queue()->armed).load() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (uint32_t i = 0; i < kRequests; ++i) qp.Post(request);
  std::atomic_ref(qp.send_queue()->producer).store(qp.send_producer(), std::memory_order_release);
  // Between the parts, the lcore flushes some itself.
  lcore().Call([&](const dataplane::OnShard& shard) {
    roce::QpAttributes attributes;
    attributes.state = roce::QpState::kRts;
    EXPECT_EQ(qp.qp().Modify(shard, attributes, roce::kAttrState, nullptr),
              roce::ModifyResult::kMustFlush)
        << "a call flushes all";
  });
  ASSERT_EQ(MoveTo(node_, qp, roce::QpState::kRts), roce::ModifyResult::kOk);
  EXPECT_EQ(qp.Inspect().state, roce::QpState::kRts);
  for (uint32_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(cq.Wait(&cqe)) << i;
    ASSERT_EQ(cqe.status, static_cast<uint32_t>(roce::CompletionStatus::kWorkRequestFlushed)) << i;
  }
}

// Each call of RemoveSome unmaps few rings.
TEST_F(LongCommands, UnmapTheQueuesOfAProgramInParts) {
  constexpr size_t kMost = dataplane::ContextRemoval::kMostInRow;
  constexpr size_t kObjects = 10 * kMost;
  memory::Unmapper::Drain();  // of large queues of other tests
  const size_t others = CountRings();
  auto ending = MakeProgram();
  AppCq cq(ending->client(), 16);
  const dataplane::QueuePairConfig config = SmallQueuePair(cq);
  for (uint32_t i = 0; i < kObjects; ++i) {
    ASSERT_TRUE(ending->client().Do(dataplane::CreateQueuePair{config, i}).ok()) << i;
    ASSERT_TRUE(ending->client().Do(dataplane::CreateCompletionQueue{1, 0, nullptr}).ok()) << i;
  }
  size_t before = CountRings();
  ASSERT_GE(before, others + 2 * kObjects);
  for (bool has_more = true; has_more;) {
    has_more = ending->client().RemoveSome();
    const size_t after = CountRings();
    EXPECT_LE(before - after, kMost);
    before = after;
  }
  EXPECT_LE(before, others + 1) << "the mapping of the test's own queue";
}

// The slots are copied in parts by the control thread.
TEST_F(LongCommands, GrowASharedReceiveQueue) {
  dataplane::SharedReceiveQueueConfig config;
  config.pd = Node::kPd;
  config.max_wr = dataplane::kMaxQueueEntries / 2;
  config.max_sge = dataplane::kMaxSges;
  const auto created = node_.client().Do(dataplane::CreateSharedReceiveQueue{config, 0});
  ASSERT_TRUE(created.ok());
  const roci_abi_srq_layout layout =
      dataplane::LayOutSharedReceiveQueue(dataplane::kMaxQueueEntries, dataplane::kMaxSges);
  auto growth = node_.client().Do(dataplane::GrowSharedReceiveQueue{*created->queue, layout});
  ASSERT_TRUE(growth.ok());
  const size_t bytes = size_t{created->layout.max_wr} * created->layout.stride;
  uint32_t parts = 0;
  for (absl::StatusOr<bool> has_more = true; *has_more; ++parts) {
    const size_t copied = growth->copied;
    has_more = node_.client().Do(dataplane::ContinueGrowth{*created->queue, *growth});
    ASSERT_TRUE(has_more.ok());
    EXPECT_LE(growth->copied - copied, dataplane::ContinueGrowth::kMostInPart);
  }
  EXPECT_EQ(growth->copied, bytes);
  EXPECT_GE(parts, bytes / dataplane::ContinueGrowth::kMostInPart);
  EXPECT_GT(parts, 8U);
}

TEST_F(LongCommands, EndAProgramWithManyQueuePairs) {
  constexpr uint32_t kParts = 60;
  auto ending = MakeProgram();
  AppCq cq(ending->client(), 16);
  const dataplane::QueuePairConfig config = SmallQueuePair(cq);
  for (uint32_t i = 0; i < kParts * dataplane::ContextRemoval::kMostInRow; ++i) {
    ASSERT_TRUE(ending->client().Do(dataplane::CreateQueuePair{config, 3 * i}).ok()) << i;
  }
  Parts parts(lcore());
  ending.reset();
  EXPECT_GE(parts.count(), kParts);
}

TEST_F(LongCommands, EndAProgramWithManyCompletionQueues) {
  constexpr uint32_t kParts = 5;
  auto ending = MakeProgram();
  for (uint32_t i = 0; i < kParts * dataplane::ContextRemoval::kMostInRow; ++i) {
    ASSERT_TRUE(ending->client().Do(dataplane::CreateCompletionQueue{1, 0, nullptr}).ok()) << i;
  }
  Parts parts(lcore());
  ending.reset();
  EXPECT_GE(parts.count(), kParts);
  EXPECT_LE(parts.count(), kParts + 4) << "the context and the device, too";
}

// A program with few objects ends in one part.
TEST_F(LongCommands, EndAProgramWithFewQueues) {
  auto ending = MakeProgram();
  ASSERT_TRUE(ending->client().Do(dataplane::CreateCompletionQueue{1, 0, nullptr}).ok());
  Parts parts(lcore());
  ending.reset();
  EXPECT_EQ(parts.count(), 4U) << "its queues and its context; two for its device";
}

// The receive queue of an XRC domain, to which many queue pairs belong.
TEST_F(LongCommands, DestroyAReceiveQueueOfManyXrcQueuePairs) {
  constexpr uint32_t kParts = 10;
  dataplane::XrcClient domain(node_.device(), node_.client().lcore_index());
  dataplane::QueuePairConfig target;
  target.type = roce::QpType::kXrcRecv;
  for (uint32_t i = 0; i < kParts * dataplane::XrcTargets::kMostInRow; ++i) {
    ASSERT_TRUE(domain.Do(dataplane::CreateTarget{target}).ok()) << i;
  }
  const auto create = [&](Node& node, dataplane::CompletionQueue* cq) {
    dataplane::SharedReceiveQueueConfig config;
    config.pd = Node::kPd;
    config.domain = domain.domain();
    config.cq = cq;
    return node.client().Do(dataplane::CreateSharedReceiveQueue{config, 0});
  };
  const auto created = create(node_, cq_.cq());
  ASSERT_TRUE(created.ok());
  Parts destroyed(lcore());
  ASSERT_TRUE(node_.client().Do(dataplane::DestroySharedReceiveQueue{*created->queue}).ok());
  EXPECT_GE(destroyed.count(), kParts);
  auto ending = MakeProgram();
  AppCq cq(ending->client(), 16);
  ASSERT_TRUE(create(*ending, cq.cq()).ok());
  Parts ended(lcore());
  ending.reset();
  EXPECT_GE(ended.count(), kParts);
}

TEST_F(LongCommands, DestroyAQueuePairWithManyWindows) {
  constexpr uint32_t kParts = 10;
  AddQueuePairs(1);
  const BoundWindows windows =
      BindWindows(kParts * dataplane::DestroyQueuePair::kWindowsInRow, memory::WindowType::kType2,
                  queue_pairs_[0]->qpn().value());
  ASSERT_EQ(CountBound(windows), windows.keys.size());
  Parts parts(lcore());
  node_.client().Do(dataplane::DestroyQueuePair{*queue_pairs_[0]});
  EXPECT_GE(parts.count(), kParts);
  EXPECT_EQ(CountBound(windows), 0U);
}

// The program of a region ends, to which another program of the context has bound many windows.
TEST_F(LongCommands, DropARegionWithManyWindows) {
  constexpr uint32_t kParts = 10;
  const BoundWindows windows =
      BindWindows(kParts * dataplane::DropKeys::kWindowsInRow, memory::WindowType::kType1, 0);
  Parts parts(lcore());
  node_.client().Do(
      dataplane::DropKeys{dataplane::DropKeys::Kind::kRegions, std::span(&windows.region, 1)});
  EXPECT_GE(parts.count(), kParts);
  EXPECT_EQ(CountBound(windows), 0U);
}

// A program of a shared context ends, and its queue pair has many windows.
TEST_F(LongCommands, EndAProgramWhoseQueuePairHasManyWindows) {
  constexpr uint32_t kParts = 10;
  auto ending = MakeProgram();
  ending->client().ShareKeysOf(node_.client());
  AppCq cq(ending->client(), 16);
  const dataplane::QueuePairConfig config = SmallQueuePair(cq);
  const auto created = ending->client().Do(dataplane::CreateQueuePair{config, 0});
  ASSERT_TRUE(created.ok());
  const BoundWindows windows = BindWindows(kParts * dataplane::ContextRemoval::kWindowsInRow,
                                           memory::WindowType::kType2, created->qpn.value());
  ASSERT_EQ(CountBound(windows), windows.keys.size());
  Parts parts(lcore());
  ending.reset();
  EXPECT_GE(parts.count(), kParts);
  EXPECT_EQ(CountBound(windows), 0U);
}

// Removing a member searches all multicast groups of the device.
TEST_F(LongCommands, EndAProgramWithMulticastQueuePairs) {
  constexpr uint32_t kParts = 20;
  auto ending = MakeProgram();
  AppCq cq(ending->client(), 16);
  dataplane::QueuePairConfig config;
  config.type = roce::QpType::kUd;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = config.max_recv_wr = 1;
  roce::Gid group;
  group.bytes[0] = 0xFF;
  for (uint32_t i = 0; i < kParts; ++i) {
    const auto created = ending->client().Do(dataplane::CreateQueuePair{config, i});
    ASSERT_TRUE(created.ok()) << i;
    ASSERT_TRUE(ending->device().Do(dataplane::AttachMulticast{*created->queue_pair, group}).ok());
  }
  Parts parts(lcore());
  ending.reset();
  EXPECT_GE(parts.count(), kParts);
}

TEST_F(LongCommands, MoveManyCompletionQueuesToAnotherLcore) {
  constexpr uint32_t kParts = 5;
  for (uint32_t i = 0; i < kParts * dataplane::ContextRemoval::kMostInRow; ++i) {
    ASSERT_TRUE(node_.client().Do(dataplane::CreateCompletionQueue{1, 0, nullptr}).ok()) << i;
  }
  Parts here(lcore());
  Parts there(TestLcore(1));
  ASSERT_TRUE(node_.client().MoveTo(1));
  EXPECT_GE(here.count(), kParts);
  EXPECT_GE(there.count(), kParts);
}

}  // namespace
}  // namespace roci::testing
