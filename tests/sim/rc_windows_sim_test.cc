// Windows over faulty links: node 1 binds and sends the key, node 0 writes through it and
// invalidates it with a SEND. Each bind is executed once for any number of retransmissions, nothing
// is written outside of the window, and an invalidated key gives no access.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/sim/pair.h"
#include "tests/sim/seeded_runs.h"

namespace roci::sim {
namespace {

using roce::CompletionStatus;
using roce::WorkOpcode;

constexpr uint32_t kRounds = 8;
constexpr uint64_t kWindowStart = 4096;
constexpr uint32_t kWindowBytes = 8192;

class Windows {
 public:
  Windows(Random& random, Pair& pair) : random_(random), pair_(pair) {
    Arena& far = pair_.arena(1);
    EXPECT_EQ(far.keys().AllocateWindow(Arena::kPd, memory::WindowType::kType2, &key_),
              memory::MemoryStatus::kOk);
  }

  // Runs the programs of both sides. False once all rounds are over.
  bool React() {
    if (pair_.host(1).recv_completions().size() == round_) {
      if (round_ != 0) Finish();
      if (round_ == kRounds) return false;
      Begin();
    }
    if (pair_.host(0).recv_completions().size() == written_ + 1) WriteThrough();
    return true;
  }

  uint32_t round() const { return round_; }

 private:
  static void SetSge(PostedSend& post, uint64_t va, uint32_t length, uint32_t key) {
    post.sges = {roce::Sge{va, length, roce::Key(key)}};
    post.wqe.first_sge = post.sges.front();
    post.wqe.num_sge = 1;
    post.wqe.length = length;
  }
  static void PostRecv(SimHost& host, Arena& arena) {
    PostedRecv post;
    post.sges = {roce::Sge{arena.va(kReceive), 64, roce::Key(arena.key(kReceive))}};
    post.wqe.first_sge = post.sges.front();
    post.wqe.num_sge = 1;
    post.wqe.capacity = 64;
    host.PostRecv(std::move(post));
  }

  void Begin() {
    Arena& far = pair_.arena(1);
    PostRecv(pair_.host(0), pair_.arena(0));
    PostRecv(pair_.host(1), far);
    key_ = (key_ & ~0xFFu) | ((key_ + 1) & 0xFF);
    PostedSend bind;
    bind.wqe.opcode = WorkOpcode::kBindMw;
    bind.wqe.signaled = true;
    bind.wqe.bind = {.start = far.va(kTarget) + kWindowStart,
                     .length = kWindowBytes,
                     .window = key_ >> 8,
                     .access = static_cast<uint32_t>(memory::Access::kRemoteWrite),
                     .region_key = far.key(kTarget),
                     .new_key = key_};
    pair_.host(1).PostSend(std::move(bind));
    std::memcpy(far.bytes(kSource).data(), &key_, sizeof(key_));
    PostedSend tell;
    tell.wqe.opcode = WorkOpcode::kSend;
    tell.wqe.signaled = true;
    SetSge(tell, far.va(kSource), sizeof(key_), far.key(kSource));
    pair_.host(1).PostSend(std::move(tell));
    ++round_;
    pair_.Work(1, random_);
  }

  void WriteThrough() {
    Arena& near = pair_.arena(0);
    uint32_t key = 0;
    std::memcpy(&key, near.bytes(kReceive).data(), sizeof(key));
    EXPECT_EQ(key, key_);
    length_ = static_cast<uint32_t>(random_.Between(1, kWindowBytes));
    PostedSend write;
    write.wqe.opcode = WorkOpcode::kRdmaWrite;
    write.wqe.remote_va = pair_.arena(1).va(kTarget) + kWindowStart;
    write.wqe.rkey = roce::Key(key);
    source_ = random_.Below(near.size(kSource) - length_);
    SetSge(write, near.va(kSource) + source_, length_, near.key(kSource));
    pair_.host(0).PostSend(std::move(write));
    PostedSend done;
    done.wqe.opcode = WorkOpcode::kSendWithInvalidate;
    done.wqe.invalidate_key = key;
    done.wqe.signaled = true;
    SetSge(done, near.va(kSource), 8, near.key(kSource));
    pair_.host(0).PostSend(std::move(done));
    ++written_;
    pair_.Work(0, random_);
  }

  void Finish() {
    const roce::Completion& completion = pair_.host(1).recv_completions().back();
    EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
    EXPECT_TRUE(completion.has_invalidate);
    EXPECT_EQ(completion.invalidated_key, key_);
    Arena& far = pair_.arena(1);
    EXPECT_EQ(std::memcmp(far.bytes(kTarget).data() + kWindowStart,
                          pair_.arena(0).bytes(kSource).data() + source_, length_),
              0);
    EXPECT_EQ(far.keys().Check(key_, {Arena::kPd, pair_.qp(1).qpn().value()},
                               far.va(kTarget) + kWindowStart, 1, memory::Access::kRemoteWrite),
              memory::MemoryStatus::kBadKey);
  }

  Random& random_;
  Pair& pair_;
  uint32_t key_ = 0;
  uint32_t round_ = 0;
  uint32_t written_ = 0;
  uint32_t length_ = 0;
  uint64_t source_ = 0;
};

TEST(RcWindows, AreBoundOnceAndTakenAway) {
  Arena arenas[2];
  const Seeds seeds(1500);
  const uint64_t end = seeds.first + seeds.count;
  for (uint64_t seed = seeds.first; seed != end && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    for (Arena& arena : arenas) arena.Reset(random);
    Connection connection;
    connection.mtu = static_cast<roce::PathMtu>(random.Between(1, 5));
    Pair pair(connection, &arenas[0], &arenas[1]);
    LinkFaults faults;
    faults.loss = static_cast<uint32_t>(random.Below(60));
    faults.duplicate = static_cast<uint32_t>(random.Below(60));
    faults.reorder = static_cast<uint32_t>(random.Below(60));
    faults.reorder_delay_ns = 20000;
    pair.SetFaults(faults);
    Windows windows(random, pair);
    int steps = 0;
    while (windows.React() && ++steps < 100000 && pair.Step(random, roce::kNever)) {
      if (pair.now() > 200'000'000) pair.SetFaults(LinkFaults{});
    }
    EXPECT_EQ(pair.wrong().value_or(""), "");
    EXPECT_EQ(windows.round(), kRounds) << "stopped early";
    for (const roce::Completion& c : pair.host(1).send_completions()) {
      EXPECT_EQ(c.status, CompletionStatus::kSuccess);
    }
    EXPECT_EQ(pair.host(1).recv_completions().size(), kRounds);
    for (Arena& arena : arenas) EXPECT_TRUE(arena.GuardsIntact());
  }
}

}  // namespace
}  // namespace roci::sim
