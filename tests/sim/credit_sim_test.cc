// End-to-end credits (IBTA vol 1, 9.7.7.2) of a reliable connection whose receiver posts its
// receives late, with honest and with lying peers.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "roce/headers.h"
#include "tests/sim/faults.h"
#include "tests/sim/pair.h"
#include "tests/sim/seeded_runs.h"

namespace roci::sim {
namespace {

using roce::QpCounter;

// What happens to the credits on their way to the requester.
enum class Peer : uint8_t {
  kHonest,
  kSilent,         // "no information" in every ACK
  kStingy,         // always 0
  kShrinking,      // any number up to the true one
  kGenerous,       // always 32768
  kLosesUpdates,   // unsolicited ACKs are lost
  kChangesItsMind  // now and then "no information"
};

Arena* ArenaOf(int node) {
  static Arena arenas[2];
  return &arenas[node];
}

// Node 0 sends messages as fast as it may. Node 1 posts a receive now and then.
class CreditRun {
 public:
  static constexpr uint32_t kMessages = 120;
  static constexpr uint32_t kRecords = 16;  // most requests in flight

  CreditRun(uint64_t seed, Peer peer, bool is_lossy) : random_(seed), peer_(peer) {
    for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random_);
    connection_ = RandomConnection(random_);
    connection_.records = kRecords;
    connection_.timeout = 10;  // 4 ms, which bounds the wait for credits, too
    connection_.min_rnr_timer = 12;
    LinkFaults faults;
    faults.delay_ns = random_.Between(200, 5000);
    if (is_lossy) faults.loss = 20;
    pair_ = std::make_unique<Pair>(connection_, ArenaOf(0), ArenaOf(1));
    pair_->SetFaults(faults);
    pair_->Tamper(0, [this](roce::Packet& packet) { return Tamper(packet); });
    for (uint32_t i = 0; i < kMessages; ++i) PostSend();
    // Before the first ACK the requester knows of no limit.
    for (uint32_t i = 0; i < kRecords; ++i) PostRecv();
  }

  std::optional<std::string> Go() {
    pair_->Work(1, random_);
    pair_->Work(0, random_);
    roce::TimeNs next_post = random_.Below(kLongestGapNs);
    for (int step = 0; step < 100'000; ++step) {
      if (pair_->now() >= next_post && posted_ < kMessages) {
        next_post = pair_->now() + random_.Below(kLongestGapNs);
        const uint64_t count = random_.Between(1, 4);
        for (uint64_t i = 0; i < count && posted_ < kMessages; ++i) PostRecv();
        pair_->Work(1, random_);
      }
      const bool is_going = pair_->Step(random_, posted_ < kMessages ? next_post : roce::kNever);
      if (pair_->wrong()) return pair_->wrong();
      if (pair_->host(0).send_completions().size() == kMessages) return CheckEnd();
      if (!is_going && posted_ == kMessages) return "stuck: nothing in flight and no timer";
    }
    return "does not finish: " + std::to_string(pair_->now()) + " ns of simulated time";
  }

  uint64_t Count(QpCounter counter) {
    return pair_->host(0).count(counter) + pair_->host(1).count(counter);
  }
  roce::TimeNs now() const { return pair_->now(); }

 private:
  static constexpr roce::TimeNs kLongestGapNs = 50'000;

  void PostSend() {
    PostedSend post;
    post.wqe.opcode =
        random_.Chance(300) ? roce::WorkOpcode::kRdmaWriteWithImm : roce::WorkOpcode::kSend;
    post.wqe.length = static_cast<uint32_t>(random_.Below(2000));
    post.wqe.signaled = true;
    post.wqe.remote_va = ArenaOf(1)->va(kTarget);
    post.wqe.rkey = roce::Key(ArenaOf(1)->key(kTarget));
    post.sges = {{ArenaOf(0)->va(kSource), post.wqe.length, roce::Key(ArenaOf(0)->key(kSource))}};
    post.wqe.first_sge = post.sges[0];
    post.wqe.num_sge = 1;
    pair_->host(0).PostSend(std::move(post));
  }

  void PostRecv() {
    PostedRecv post;
    post.sges = {{ArenaOf(1)->va(kReceive), 2000, roce::Key(ArenaOf(1)->key(kReceive))}};
    post.wqe.first_sge = post.sges[0];
    post.wqe.num_sge = 1;
    post.wqe.capacity = 2000;
    pair_->host(1).PostRecv(std::move(post));
    ++posted_;
  }

  bool Tamper(roce::Packet& packet) {
    roce::Aeth& aeth = packet.ext.aeth;
    if (packet.info->operation != roce::Operation::kAcknowledge ||
        aeth.kind() != roce::AethKind::kAck) {
      return true;
    }
    const uint8_t truth = aeth.value();
    const bool is_update = packet.psn == last_ack_;
    last_ack_ = packet.psn;
    switch (peer_) {
      case Peer::kHonest:
        break;
      case Peer::kSilent:
        aeth = roce::Aeth::Ack(aeth.msn);
        break;
      case Peer::kStingy:
        aeth = roce::Aeth::Ack(aeth.msn, 0);
        break;
      case Peer::kShrinking:
        aeth = roce::Aeth::Ack(aeth.msn, static_cast<uint8_t>(random_.Below(truth + 1u)));
        break;
      case Peer::kGenerous:
        aeth = roce::Aeth::Ack(aeth.msn, 30);
        break;
      case Peer::kLosesUpdates:
        return !is_update;
      case Peer::kChangesItsMind:
        if (random_.Chance(200)) aeth = roce::Aeth::Ack(aeth.msn);
        break;
    }
    return true;
  }

  std::optional<std::string> CheckEnd() {
    for (const roce::Completion& completion : pair_->host(0).send_completions()) {
      if (completion.status != roce::CompletionStatus::kSuccess) {
        return "request " + std::to_string(completion.slot) + " failed with status " +
               std::to_string(static_cast<int>(completion.status));
      }
    }
    if (pair_->host(1).recv_completions().size() != kMessages) return "a receive is missing";
    return std::nullopt;
  }

  Random random_;
  const Peer peer_;
  Connection connection_;
  std::unique_ptr<Pair> pair_;
  uint32_t posted_ = 0;
  std::optional<roce::Psn> last_ack_;
};

struct Sums {
  uint64_t rnr_naks = 0, waits = 0, retransmitted = 0, timeouts = 0;
  roce::TimeNs longest_ns = 0;
};

Sums RunAll(Peer peer, bool is_lossy = false) {
  Sums sums;
  ForEachSeed(
      Seeds(300), [&](uint64_t seed) { return CreditRun(seed, peer, is_lossy); },
      [&](CreditRun& run) {
        sums.rnr_naks += run.Count(QpCounter::kRnrNaksSent);
        sums.waits += run.Count(QpCounter::kCreditWaits);
        sums.retransmitted += run.Count(QpCounter::kRetransmittedPackets);
        sums.timeouts += run.Count(QpCounter::kAckTimeouts);
        sums.longest_ns = std::max(sums.longest_ns, run.now());
      });
  return sums;
}

// The receiver posts about 120 receives within 2.5 ms.
constexpr roce::TimeNs kPostingNs = 6'000'000;

TEST(CreditSimulation, NoRnrNakComesWhileCreditsAreObeyed) {
  const Sums sums = RunAll(Peer::kHonest);
  EXPECT_EQ(sums.rnr_naks, 0u);
  EXPECT_EQ(sums.retransmitted, 0u);
  EXPECT_EQ(sums.timeouts, 0u);
  EXPECT_GT(sums.waits, 0u);
  EXPECT_LT(sums.longest_ns, kPostingNs);  // no wait for credits lasted until its timeout
}

TEST(CreditSimulation, LossDelaysAndDoesNotStop) { RunAll(Peer::kHonest, true); }

TEST(CreditSimulation, APeerWithoutCreditsIsServedAsBefore) {
  const Sums sums = RunAll(Peer::kSilent);
  EXPECT_EQ(sums.waits, 0u);
  EXPECT_GT(sums.rnr_naks, 0u);
}

// One packet at a time goes on: at once after the first wait.
TEST(CreditSimulation, APeerThatNeverGivesCreditsDoesNotStopTheRequester) {
  const Sums sums = RunAll(Peer::kStingy);
  EXPECT_GT(sums.waits, 0u);
}

TEST(CreditSimulation, CreditsThatShrinkAreIgnored) { RunAll(Peer::kShrinking); }

TEST(CreditSimulation, TooManyCreditsMeetRnrNaks) {
  const Sums sums = RunAll(Peer::kGenerous);
  EXPECT_GT(sums.rnr_naks, 0u);
}

TEST(CreditSimulation, LostReportsAreRecoveredFrom) {
  const Sums sums = RunAll(Peer::kLosesUpdates);
  EXPECT_GT(sums.waits, 0u);
}

TEST(CreditSimulation, APeerMayStopGivingCredits) { RunAll(Peer::kChangesItsMind); }

}  // namespace
}  // namespace roci::sim
