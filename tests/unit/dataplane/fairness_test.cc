// What users and queue pairs get of an lcore that has more to do than it can. This thread plays the
// programs and runs the rounds of the real worker in turn, so speed and other load change nothing.
// The environment variable ROCI_FAIRNESS has the policy: DPDK starts once per process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/shard/lcore.h"
#include "dataplane/shard/worker.h"
#include "tests/unit/dataplane/dpdk_folder.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

using dataplane::Fairness;

std::unique_ptr<dataplane::Dataplane> g_dataplane;
dataplane::Worker* g_worker;  // runs only when this thread calls it

Fairness Policy() {
  const char* name = std::getenv("ROCI_FAIRNESS");
  return name != nullptr && std::string_view(name) == "user" ? Fairness::kUser
                                                             : Fairness::kQueuePair;
}

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    dataplane::DataplaneOptions options;
    options.eal.hugepages = dataplane::HugePages::kOff;
    options.lcore.fairness = Policy();
    auto dataplane = dataplane::Dataplane::Start(options);
    ASSERT_TRUE(dataplane.ok()) << dataplane.status();
    g_dataplane = *std::move(dataplane);
    dataplane::Lcore& lcore = dataplane::ShardAccess::LcoreOf(*g_dataplane, 0);
    lcore.Stop();
    lcore.Call([&](const dataplane::OnShard& shard) { g_worker = &lcore.worker(shard); });
  }
  void TearDown() override { g_dataplane.reset(); }

 private:
  DpdkFolder folder_;
};

[[maybe_unused]] const auto* const g_environment =
    ::testing::AddGlobalTestEnvironment(new Environment);

constexpr uint32_t kBufferBytes = 64 << 10;

// One direction of a connection: a program that always has `depth` requests outstanding.
struct Load {
  roci_abi_send_opcode opcode = ROCI_ABI_WR_RDMA_WRITE;
  uint32_t bytes = kBufferBytes;
  uint32_t depth = 8;  // 0: nothing
};

// The requests of one user's queue pairs on one device.
class Requests {
 public:
  Requests(Node& node, Node& peer, const Load& load)
      : load_(load), node_(node), peer_(peer), cq_(node.client(), 16384) {}

  AppQp& AddQueuePair() {
    dataplane::QueuePairConfig config;
    config.pd = Node::kPd;
    config.send_cq = config.recv_cq = cq_.cq();
    config.max_send_wr = std::max(load_.depth, 1u);
    qps_.push_back(std::make_unique<AppQp>(node_.client(), config));
    AppQp& qp = *qps_.back();
    by_handle_.resize(std::max<size_t>(by_handle_.size(), qp.qp().handle() + 1));
    by_handle_[qp.qp().handle()] = &qp;
    return qp;
  }
  AppQp& queue_pair(size_t i) { return *qps_[i]; }
  void Start() {
    for (const auto& qp : qps_) {
      for (uint32_t i = 0; i < load_.depth; ++i) Post(*qp);
    }
  }
  // Posts a request for each that has completed.
  void Continue() {
    roci_abi_cqe cqe;
    while (cq_.Poll(&cqe)) {
      ASSERT_EQ(cqe.status, 0u);
      done_bytes_ += load_.bytes;
      Post(*by_handle_[cqe.qp_handle]);
    }
  }
  uint64_t done_bytes() const { return done_bytes_; }

 private:
  void Post(AppQp& qp) {
    roci_abi_send_wqe head{};
    head.opcode = static_cast<uint8_t>(load_.opcode);
    head.flags = ROCI_ABI_SEND_SIGNALED;
    head.num_sge = 1;
    head.rkey = peer_.key();
    head.remote_va = peer_.va();
    qp.Post(head, node_.Sge(0, load_.bytes));
    qp.Ring();
  }

  const Load load_;
  Node& node_;
  Node& peer_;
  AppCq cq_;
  std::vector<std::unique_ptr<AppQp>> qps_;
  std::vector<AppQp*> by_handle_;
  uint64_t done_bytes_ = 0;
};

// A user with programs on both devices of a wire, and connected queue pairs between them.
struct User {
  User(dataplane::Wire& wire, uint32_t queue_pairs, const Load& load, const Load& peer_load,
       User* first, bool by_process_vm)
      : process_vm(by_process_vm),
        near(*g_dataplane, &wire, Config(1, first != nullptr ? &first->near : nullptr)),
        far(*g_dataplane, &wire, Config(2, first != nullptr ? &first->far : nullptr)),
        requests(near, far, load),
        peer_requests(far, near, peer_load) {
    ConnectOptions options;
    options.timeout = 0;  // rounds are no time
    for (uint32_t i = 0; i < queue_pairs; ++i) {
      AppQp& a = requests.AddQueuePair();
      AppQp& b = peer_requests.AddQueuePair();
      EXPECT_EQ(Connect(near, a, far, b.qp().qpn(), options), roce::ModifyResult::kOk);
      EXPECT_EQ(Connect(far, b, near, a.qp().qpn(), options), roce::ModifyResult::kOk);
    }
  }
  Node::Config Config(uint32_t number, Node* device_of) const {
    Node::Config config;
    config.number = number;
    config.memory_bytes = kBufferBytes;
    config.process_vm = process_vm;
    config.user = user;
    config.device_of = device_of;
    return config;
  }

  const bool process_vm;
  const std::shared_ptr<dataplane::CopyUse> user = std::make_shared<dataplane::CopyUse>();
  Node near;
  Node far;
  Requests requests;
  Requests peer_requests;
};

// What the users of a scenario have transferred, in bytes.
struct Got {
  std::vector<uint64_t> by_requests;
  std::vector<uint64_t> by_peer_requests;

  double Of(size_t user) const {
    uint64_t all = 0;
    for (size_t i = 0; i < by_requests.size(); ++i) all += by_requests[i] + by_peer_requests[i];
    return static_cast<double>(by_requests[user] + by_peer_requests[user]) /
           static_cast<double>(all);
  }
};

class FairnessTest : public ::testing::Test {
 protected:
  // The first user's devices serve all users.
  void TearDown() override {
    while (!users_.empty()) users_.pop_back();
  }

  // More users can be added before Run.
  void AddUser(uint32_t queue_pairs, const Load& load, const Load& peer_load = {.depth = 0}) {
    users_.push_back(std::make_unique<User>(wire_, queue_pairs, load, peer_load,
                                            users_.empty() ? nullptr : users_[0].get(),
                                            process_vm_));
  }
  // The first rounds, in which the users start, do not count.
  Got Run(uint32_t rounds) {
    for (const auto& user : users_) {
      user->requests.Start();
      user->peer_requests.Start();
    }
    RunRounds(rounds / 4);
    const Got before = Count();
    RunRounds(rounds);
    Got got = Count();
    for (size_t i = 0; i < users_.size(); ++i) {
      got.by_requests[i] -= before.by_requests[i];
      got.by_peer_requests[i] -= before.by_peer_requests[i];
    }
    return got;
  }
  // Runs a user with one busy queue pair beside one with `many` of them. `expected`: what it gets
  // if busy queue pairs are equal.
  void ExpectShareOfOne(uint32_t many, const Load& one_load, const Load& many_load, double expected,
                        uint32_t rounds) {
    AddUser(1, one_load);
    AddUser(many, many_load);
    const double share = Run(rounds).Of(0);
    RecordProperty("percent", std::to_string(100 * share));
    std::printf("one queue pair beside %u: %.3f %%\n", many, 100 * share);
    if (Policy() == Fairness::kUser) {
      EXPECT_GE(share, 0.4);
      EXPECT_LE(share, 0.6);
    } else {
      EXPECT_GE(share, 0.5 * expected);
      EXPECT_LE(share, 2 * expected);
    }
  }

  bool process_vm_ = false;

  User& user(size_t i) { return *users_[i]; }
  void RunRounds(uint32_t rounds) {
    for (uint32_t i = 0; i < rounds; ++i) {
      g_worker->RunOnce();
      for (const auto& user : users_) {
        user->requests.Continue();
        user->peer_requests.Continue();
      }
    }
  }

 private:
  Got Count() const {
    Got got;
    for (const auto& user : users_) {
      got.by_requests.push_back(user->requests.done_bytes());
      got.by_peer_requests.push_back(user->peer_requests.done_bytes());
    }
    return got;
  }

  dataplane::Wire wire_{*g_dataplane};
  std::vector<std::unique_ptr<User>> users_;
};

constexpr uint32_t kMany = 1000;
constexpr double kOneOfMany = 1.0 / (kMany + 1);

TEST_F(FairnessTest, WritesBesideManyQueuePairs) {
  ExpectShareOfOne(kMany, {}, {}, kOneOfMany, 8000);
}

TEST_F(FairnessTest, ReadsBesideManyQueuePairs) {
  const Load read{.opcode = ROCI_ABI_WR_RDMA_READ};
  ExpectShareOfOne(kMany, read, read, kOneOfMany, 8000);
}

TEST_F(FairnessTest, WritesOfPrivateMemoryBesideManyQueuePairs) {
  process_vm_ = true;
  ExpectShareOfOne(kMany, {}, {}, kOneOfMany, 8000);
}

TEST_F(FairnessTest, ReadsOfPrivateMemoryBesideManyQueuePairs) {
  process_vm_ = true;
  const Load read{.opcode = ROCI_ABI_WR_RDMA_READ};
  ExpectShareOfOne(kMany, read, read, kOneOfMany, 8000);
}

TEST_F(FairnessTest, WritesBesideReads) {
  ExpectShareOfOne(kMany, {}, {.opcode = ROCI_ABI_WR_RDMA_READ}, kOneOfMany, 8000);
}

// A packet counts as 1 KiB: 32 messages a turn.
TEST_F(FairnessTest, ShortWritesBesideManyQueuePairs) {
  ExpectShareOfOne(kMany, {.bytes = 64, .depth = 128}, {.bytes = 64, .depth = 32}, kOneOfMany,
                   20'000);
}

// Each of the many has 4 KiB outstanding, an eighth of a turn.
TEST_F(FairnessTest, LongWritesBesideManyQueuePairsWithOneShortWrite) {
  ExpectShareOfOne(kMany, {}, {.bytes = 4096, .depth = 1}, 8 * kOneOfMany, 8000);
}

TEST_F(FairnessTest, EqualQueuePairsGetTheSame) { ExpectShareOfOne(1, {}, {}, 0.5, 2000); }

TEST_F(FairnessTest, SharesWithSeveralUsers) {
  AddUser(1, {});
  AddUser(10, {});
  AddUser(100, {});
  const Got got = Run(8000);
  for (size_t i = 0; i < 3; ++i) {
    const double expected =
        Policy() == Fairness::kUser ? 1.0 / 3 : std::array<double, 3>{1, 10, 100}[i] / 111;
    EXPECT_GE(got.Of(i), 0.75 * expected) << "user " << i;
    EXPECT_LE(got.Of(i), 1.25 * expected) << "user " << i;
  }
}

// The peers READ what the queue pairs have, which WRITE at the same time. Both sides of every
// queue pair go on, and the shares of users are those of everything that their queue pairs send.
TEST_F(FairnessTest, RequesterAndResponderSideAreFair) {
  const Load write{};
  const Load read{.opcode = ROCI_ABI_WR_RDMA_READ};
  AddUser(1, write, read);
  AddUser(kMany, write, read);
  const Got got = Run(16'000);
  for (size_t i = 0; i < 2; ++i) {
    const double written = static_cast<double>(got.by_requests[i]);
    const double both = static_cast<double>(got.by_requests[i] + got.by_peer_requests[i]);
    EXPECT_GE(written / both, 0.4) << "user " << i;
    EXPECT_LE(written / both, 0.6) << "user " << i;
  }
  const double share = got.Of(0);
  std::printf("one queue pair beside %u: %.3f %%\n", kMany, 100 * share);
  if (Policy() == Fairness::kUser) {
    EXPECT_GE(share, 0.4);
    EXPECT_LE(share, 0.6);
  } else {
    EXPECT_GE(share, 0.5 * kOneOfMany);
    EXPECT_LE(share, 2 * kOneOfMany);
  }
}

// A program whose memory stalls rings queue pairs that wait for it, over and over.
TEST_F(FairnessTest, QueuePairsThatWaitForCopiesTakeNoTurns) {
  constexpr uint32_t kRung = 200;
  constexpr uint32_t kRounds = 100;
  AddUser(1, {});
  AddUser(kRung, {});
  Requests& stalled = user(1).requests;
  const auto on_copies = [&](auto&& f) {
    dataplane::ShardAccess::LcoreOf(*g_dataplane, 0).Call([&](const dataplane::OnShard& shard) {
      f(shard, stalled.queue_pair(0).qp().host(shard).copies());
    });
  };
  on_copies([](const dataplane::OnShard& shard, dataplane::AppCopies& copies) {
    copies.Begin(shard);  // and it does not end
  });
  user(0).requests.Start();
  stalled.Start();
  RunRounds(kRounds);
  uint64_t before = user(0).requests.done_bytes();
  RunRounds(kRounds);
  const uint64_t undisturbed = user(0).requests.done_bytes() - before;
  before += undisturbed;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kRung; ++i) stalled.queue_pair(i).RingDoorbell();
    RunRounds(1);
  }
  EXPECT_GT(user(0).requests.done_bytes() - before, undisturbed / 2);
  on_copies([](const dataplane::OnShard& shard, dataplane::AppCopies& copies) {
    copies.Settle(shard);
    copies.VisitWaiting(shard, [](dataplane::QueuePair&) {});
  });
}

}  // namespace
}  // namespace roci::testing
