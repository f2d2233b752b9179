// Effects of a failing request on both ends, among valid requests and over faulty links.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/pair.h"

namespace roci::sim {
namespace {

using roce::CompletionStatus;
using roce::QpState;
using roce::WorkOpcode;

struct ErrorCase {
  const char* name;
  // Turns a valid SEND of 64 bytes from kSource, with one SGE, into the bad request.
  std::function<void(PostedSend&, Arena& self, Arena& peer)> spoil;
  CompletionStatus status;       // of the bad request
  CompletionStatus peer_status;  // first failed receive at the peer; kSuccess: none but flushes
  QpState peer_state;
  uint32_t denied_access = 0;  // access that the peer's queue pair does not grant (kQpAccess*)
};

void MakeRemote(PostedSend& post, WorkOpcode opcode, uint64_t va, uint32_t key) {
  post.wqe.opcode = opcode;
  post.wqe.remote_va = va;
  post.wqe.rkey = roce::Key(key);
}

void SetSge(PostedSend& post, uint64_t va, uint32_t length, uint32_t key) {
  post.sges = {roce::Sge{va, length, roce::Key(key)}};
  post.wqe.first_sge = post.sges.front();
  post.wqe.num_sge = 1;
  post.wqe.length = length;
}

void MakeAtomic(PostedSend& post, Arena& self, uint64_t va, uint32_t key) {
  MakeRemote(post, WorkOpcode::kFetchAdd, va, key);
  SetSge(post, self.va(kLanding), 8, self.key(kLanding));
}

constexpr uint32_t kRecvBytes = 256;

std::vector<ErrorCase> Cases() {
  using S = CompletionStatus;
  return {
      {"WriteBadKey",
       [](PostedSend& p, Arena&, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaWrite, peer.va(kTarget), peer.key(kTarget) ^ 0x55);
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"WriteOutOfBounds",
       [](PostedSend& p, Arena&, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaWrite, peer.va(kTarget) + peer.size(kTarget) - 63,
                    peer.key(kTarget));
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"LongWriteWhoseEndIsOutOfBounds",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaWrite, peer.va(kTarget) + peer.size(kTarget) - 9000,
                    peer.key(kTarget));
         SetSge(p, self.va(kSource), 9001, self.key(kSource));
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"WriteWithoutPermission",
       [](PostedSend& p, Arena&, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaWrite, peer.va(kReadOnly), peer.key(kReadOnly));
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"ReadWithoutPermission",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaRead, peer.va(kSource), peer.key(kSource));
         SetSge(p, self.va(kLanding), 64, self.key(kLanding));
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"ReadOutOfBounds",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaRead, peer.va(kReadOnly) + 1, peer.key(kReadOnly));
         SetSge(p, self.va(kLanding), 4096, self.key(kLanding));
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"AtomicWithoutPermission",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeAtomic(p, self, peer.va(kTarget), peer.key(kTarget));
       },
       S::kRemoteAccessError, S::kSuccess, QpState::kErr},
      {"WriteThatTheQueuePairForbids",
       [](PostedSend& p, Arena&, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaWrite, peer.va(kTarget), peer.key(kTarget));
       },
       S::kRemoteInvalidRequest, S::kSuccess, QpState::kErr, roce::kQpAccessRemoteWrite},
      {"ReadThatTheQueuePairForbids",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaRead, peer.va(kReadOnly), peer.key(kReadOnly));
         SetSge(p, self.va(kLanding), 64, self.key(kLanding));
       },
       S::kRemoteInvalidRequest, S::kSuccess, QpState::kErr, roce::kQpAccessRemoteRead},
      {"AtomicThatTheQueuePairForbids",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeAtomic(p, self, peer.va(kAtomics), peer.key(kAtomics));
       },
       S::kRemoteInvalidRequest, S::kSuccess, QpState::kErr, roce::kQpAccessRemoteAtomic},
      {"AtomicMisaligned",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeAtomic(p, self, peer.va(kAtomics) + 4, peer.key(kAtomics));
       },
       S::kRemoteInvalidRequest, S::kSuccess, QpState::kErr},
      {"SendTooLongForTheReceive",
       [](PostedSend& p, Arena& self, Arena&) {
         SetSge(p, self.va(kSource), kRecvBytes + 1, self.key(kSource));
       },
       S::kRemoteInvalidRequest, S::kLocalLengthError, QpState::kErr},
      {"SendOfManyPacketsTooLongForTheReceive",
       [](PostedSend& p, Arena& self, Arena&) {
         SetSge(p, self.va(kSource), 20000, self.key(kSource));
       },
       S::kRemoteInvalidRequest, S::kLocalLengthError, QpState::kErr},
      {"BadLocalKey",
       [](PostedSend& p, Arena& self, Arena&) {
         SetSge(p, self.va(kSource), 64, self.key(kSource) ^ 0x55);
       },
       S::kLocalProtectionError, S::kSuccess, QpState::kRts},
      {"LocalOutOfBounds",
       [](PostedSend& p, Arena& self, Arena&) {
         SetSge(p, self.va(kSource) + self.size(kSource) - 63, 64, self.key(kSource));
       },
       S::kLocalProtectionError, S::kSuccess, QpState::kRts},
      {"ReadIntoReadOnlyMemory",
       [](PostedSend& p, Arena& self, Arena& peer) {
         MakeRemote(p, WorkOpcode::kRdmaRead, peer.va(kReadOnly), peer.key(kReadOnly));
         SetSge(p, self.va(kSource), 64, self.key(kSource));
       },
       S::kLocalProtectionError, S::kSuccess, QpState::kRts},
  };
}

Arena* ArenaOf(int node) {
  static Arena arenas[2];
  return &arenas[node];
}

PostedSend GoodSend(Arena& self, uint64_t wr_id) {
  PostedSend post;
  post.wqe.wr_id = wr_id;
  post.wqe.opcode = WorkOpcode::kSend;
  post.wqe.signaled = true;
  SetSge(post, self.va(kSource), 64, self.key(kSource));
  return post;
}

PostedRecv Receive(Arena& self, uint64_t wr_id, uint32_t key) {
  PostedRecv recv;
  recv.wqe.wr_id = wr_id;
  recv.wqe.capacity = kRecvBytes;
  recv.sges = {roce::Sge{self.va(kReceive) + wr_id * kRecvBytes, kRecvBytes, roce::Key(key)}};
  recv.wqe.first_sge = recv.sges.front();
  recv.wqe.num_sge = 1;
  return recv;
}

// The memory that neither a SEND nor a refused request may write.
std::vector<std::byte> Untouchable() {
  std::vector<std::byte> all;
  const auto add = [&all](int node, RegionName region) {
    const auto bytes = ArenaOf(node)->bytes(region);
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  for (const RegionName region : {kSource, kTarget, kAtomics, kReadOnly}) add(1, region);
  for (const RegionName region : {kSource, kLanding}) add(0, region);
  return all;
}

// No loss: a QP in ERR is silent (IBTA vol 1, 10.3.1), so a lost NAK would end in retry exceeded.
LinkFaults SomeFaults(Random& random) {
  LinkFaults faults;
  faults.duplicate = static_cast<uint32_t>(random.Below(80));
  faults.reorder = static_cast<uint32_t>(random.Below(80));
  faults.reorder_delay_ns = 20000;
  return faults;
}

void Drive(Pair& pair, Random& random, uint64_t clean_after_ns) {
  for (int node = 0; node < 2; ++node) pair.Work(node, random);
  for (int step = 0; step < 200000 && pair.Step(random, roce::kNever); ++step) {
    if (pair.now() > clean_after_ns) pair.SetFaults(LinkFaults{});
  }
  EXPECT_EQ(pair.wrong().value_or(""), "");
}

constexpr uint64_t kGood = 5;   // requests before the bad one
constexpr uint64_t kAfter = 4;  // and after it

// In this order: requests before the bad one succeed, the bad one gets `status`, later ones are
// flushed.
void ExpectCompletions(const std::vector<roce::Completion>& completions, CompletionStatus status) {
  ASSERT_EQ(completions.size(), kGood + 1 + kAfter);
  for (size_t i = 0; i < completions.size(); ++i) {
    const CompletionStatus want = i < kGood    ? CompletionStatus::kSuccess
                                  : i == kGood ? status
                                               : CompletionStatus::kWorkRequestFlushed;
    EXPECT_EQ(static_cast<int>(completions[i].status), static_cast<int>(want)) << "request " << i;
    EXPECT_EQ(completions[i].wr_id, i);
  }
}

class RcErrors : public testing::TestWithParam<ErrorCase> {};

TEST_P(RcErrors, FailAsTheSpecificationSays) {
  const ErrorCase& error = GetParam();
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random);
    Connection connection;
    connection.mtu = static_cast<roce::PathMtu>(random.Between(1, 5));
    connection.first_psn = {roce::Psn(0xFFFFFC), roce::Psn(7)};
    connection.access_flags &= ~error.denied_access;
    const std::vector<std::byte> before = Untouchable();
    Pair pair(connection, ArenaOf(0), ArenaOf(1));
    pair.SetFaults(SomeFaults(random));
    constexpr uint64_t kRecvs = kGood + kAfter + 3;
    for (uint64_t i = 0; i < kRecvs; ++i) {
      pair.host(1).PostRecv(Receive(*ArenaOf(1), i, ArenaOf(1)->key(kReceive)));
    }
    for (uint64_t i = 0; i < kGood + 1 + kAfter; ++i) {
      PostedSend post = GoodSend(*ArenaOf(0), i);
      if (i == kGood) error.spoil(post, *ArenaOf(0), *ArenaOf(1));
      pair.host(0).PostSend(std::move(post));
    }
    Drive(pair, random, 3'000'000);

    ExpectCompletions(pair.host(0).send_completions(), error.status);
    EXPECT_EQ(pair.qp(0).state(), QpState::kErr);
    EXPECT_EQ(static_cast<int>(pair.qp(1).state()), static_cast<int>(error.peer_state));
    const auto& recvs = pair.host(1).recv_completions();
    ASSERT_GE(recvs.size(), kGood);
    for (size_t i = 0; i < kGood; ++i) EXPECT_EQ(recvs[i].status, CompletionStatus::kSuccess);
    if (error.peer_state == QpState::kErr) {
      ASSERT_EQ(recvs.size(), kRecvs);
      const CompletionStatus first = error.peer_status == CompletionStatus::kSuccess
                                         ? CompletionStatus::kWorkRequestFlushed
                                         : error.peer_status;
      EXPECT_EQ(static_cast<int>(recvs[kGood].status), static_cast<int>(first));
      for (size_t i = kGood + 1; i < kRecvs; ++i) {
        EXPECT_EQ(recvs[i].status, CompletionStatus::kWorkRequestFlushed);
      }
    } else {
      // Requests behind a READ are sent before its response fails on this side.
      EXPECT_LE(recvs.size(), kGood + kAfter);
    }
    for (int node = 0; node < 2; ++node) EXPECT_TRUE(ArenaOf(node)->GuardsIntact());
    EXPECT_TRUE(Untouchable() == before) << "a request that was refused wrote something";
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RcErrors, testing::ValuesIn(Cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RcErrorsOf, ReceiveIntoBadMemoryFailsBothEnds) {
  Random random(1);
  for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random);
  Pair pair(Connection{}, ArenaOf(0), ArenaOf(1));
  pair.host(1).PostRecv(Receive(*ArenaOf(1), 0, ArenaOf(1)->key(kReceive) ^ 0x55));
  pair.host(0).PostSend(GoodSend(*ArenaOf(0), 0));
  Drive(pair, random, 0);
  ASSERT_EQ(pair.host(0).send_completions().size(), 1u);
  EXPECT_EQ(pair.host(0).send_completions()[0].status, CompletionStatus::kRemoteOperationError);
  ASSERT_EQ(pair.host(1).recv_completions().size(), 1u);
  EXPECT_EQ(pair.host(1).recv_completions()[0].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(pair.qp(1).state(), QpState::kErr);
}

TEST(RcErrorsOf, NoReceiveExhaustsTheRnrRetries) {
  Random random(2);
  for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random);
  Connection connection;
  connection.rnr_retry = 2;
  Pair pair(connection, ArenaOf(0), ArenaOf(1));
  pair.host(0).PostSend(GoodSend(*ArenaOf(0), 0));
  pair.host(0).PostSend(GoodSend(*ArenaOf(0), 1));
  Drive(pair, random, 0);
  ASSERT_EQ(pair.host(0).send_completions().size(), 2u);
  EXPECT_EQ(pair.host(0).send_completions()[0].status, CompletionStatus::kRnrRetryExceeded);
  EXPECT_EQ(pair.host(0).send_completions()[1].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(pair.host(1).count(roce::QpCounter::kRnrNaksSent), 3u);  // the first and two retries
  EXPECT_EQ(pair.qp(1).state(), QpState::kRts);
}

// IBTA vol 1, 9.7.4.1.
TEST(RcErrorsOf, MoreReadsThanTheResponderKeepsAreRefused) {
  Random random(4);
  for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random);
  Connection connection;
  connection.max_rd_atomic = 8;
  connection.max_dest_rd_atomic = 1;
  Pair pair(connection, ArenaOf(0), ArenaOf(1));
  constexpr uint64_t kReads = 8;
  for (uint64_t i = 0; i < kReads; ++i) {
    PostedSend post = GoodSend(*ArenaOf(0), i);
    MakeRemote(post, WorkOpcode::kRdmaRead, ArenaOf(1)->va(kReadOnly), ArenaOf(1)->key(kReadOnly));
    SetSge(post, ArenaOf(0)->va(kLanding), 64, ArenaOf(0)->key(kLanding));
    pair.host(0).PostSend(std::move(post));
  }
  Drive(pair, random, 0);
  const auto& completions = pair.host(0).send_completions();
  ASSERT_EQ(completions.size(), kReads);
  size_t refused = 0;
  while (refused < kReads && completions[refused].status == CompletionStatus::kSuccess) ++refused;
  ASSERT_LT(refused, kReads);
  EXPECT_EQ(completions[refused].status, CompletionStatus::kRemoteInvalidRequest);
  EXPECT_EQ(pair.qp(1).state(), QpState::kErr);
}

// Nothing arrives. The QP gives up no sooner than after four of the requested timeouts, 4.096 us *
// 2^10 each, and no later than after four times that (IBTA vol 1, 9.7.6.1.3).
void ExpectRetriesOverACutLink(bool controls_congestion) {
  Random random(3);
  for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random);
  Connection connection;
  connection.retry_count = 3;
  connection.timeout = 10;
  connection.controls_congestion = controls_congestion;
  Pair pair(connection, ArenaOf(0), ArenaOf(1));
  LinkFaults cut;
  cut.loss = 1000;
  pair.SetFaults(cut);
  pair.host(0).PostSend(GoodSend(*ArenaOf(0), 0));
  Drive(pair, random, roce::kNever);
  ASSERT_EQ(pair.host(0).send_completions().size(), 1u);
  EXPECT_EQ(pair.host(0).send_completions()[0].status, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(pair.host(0).count(roce::QpCounter::kRetransmittedPackets), 3u);
  EXPECT_GE(pair.now(), 4u * 4194304u);
  EXPECT_LE(pair.now(), 4u * 4u * 4194304u);
}

TEST(RcErrorsOf, SilentPeerExhaustsTheRetries) { ExpectRetriesOverACutLink(false); }
TEST(RcErrorsOf, SilentPeerExhaustsTheRetriesUnderCongestionControl) {
  ExpectRetriesOverACutLink(true);
}

}  // namespace
}  // namespace roci::sim
