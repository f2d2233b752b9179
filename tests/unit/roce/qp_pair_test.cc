// Two queue pairs connected by a faulty wire: with any loss, duplication, delay and reordering,
// every request is executed exactly once, in order, with the correct bytes. Both sides are
// requester and responder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <map>
#include <memory>

#include "tests/unit/roce/qp_host.h"
#include "tests/unit/roce/rng.h"

namespace roci::roce {
namespace {

// Probabilities in units of 1/1000 per packet.
struct Faults {
  uint32_t drop = 0;
  uint32_t duplicate = 0;
  uint32_t reorder = 0;
  uint32_t slow_receives = 0;  // probability that a receive is posted late
};

constexpr uint32_t kSlots = 64;
constexpr uint32_t kSlotBytes = 8192;
// Regions of a node's memory, by offset.
constexpr uint64_t kOutgoing = 0;                                // data to send
constexpr uint64_t kIncoming = kOutgoing + kSlots * kSlotBytes;  // written by the peer
constexpr uint64_t kReceived = kIncoming + kSlots * kSlotBytes;  // receive buffers
constexpr uint64_t kFetched = kReceived + kSlots * kSlotBytes;   // READ results
constexpr uint64_t kPublic = kFetched + kSlots * kSlotBytes;     // read by the peer, constant
constexpr uint64_t kCounter = kPublic + kSlotBytes;
constexpr uint64_t kTotal = kCounter + 4096;

enum class Kind { kSend, kSendImm, kWrite, kWriteImm, kRead, kAdd, kSwap };

struct Job {
  Kind kind;
  uint32_t length;
  uint32_t seed;
};

std::byte Pattern(uint32_t seed, uint32_t i) {
  return static_cast<std::byte>((seed * 2654435761u + i * 31u) >> 7);
}

// One side: posts jobs, keeps a few in flight, checks completions.
class Side {
 public:
  Side(const NodeOptions& options, uint32_t seed, uint32_t jobs)
      : node(options), rng_(seed), jobs_left_(jobs) {
    for (uint32_t i = 0; i < kSlotBytes; ++i) {
      node.host.bytes[kPublic + i] = Pattern(777, i);
    }
  }

  bool CanPost() const { return jobs_left_ != 0 && in_flight_.size() < kSlots / 4; }
  bool Done() const { return jobs_left_ == 0 && in_flight_.empty(); }

  // Posts jobs while fewer than kSlots / 4 are in flight, so that no slot is used twice at a time.
  void PostJobs() {
    while (CanPost()) {
      Job job{static_cast<Kind>(rng_() % 7), 0, rng_()};
      job.length = rng_() % 4 == 0 ? rng_() % kSlotBytes : rng_() % 600;
      Post(job);
      --jobs_left_;
    }
    node.Work();
  }

  void PostReceives(Faults faults) {
    while (posted_receives_ - node.host.recv_completions.size() < kSlots / 4) {
      if (rng_() % 1000 < faults.slow_receives) return;
      node.host.PostRecv(kSlotBytes, kReceived + (posted_receives_ % kSlots) * kSlotBytes);
      ++posted_receives_;
    }
    node.Work();
  }

  void CheckCompletions(Side& peer) {
    for (; seen_sends_ < node.host.send_completions.size(); ++seen_sends_) {
      const Completion& completion = node.host.send_completions[seen_sends_];
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
      ASSERT_FALSE(in_flight_.empty());
      ASSERT_EQ(completion.slot, seen_sends_);
      CheckSent(in_flight_.front(), static_cast<uint32_t>(seen_sends_), peer);
      in_flight_.erase(in_flight_.begin());
    }
    for (; seen_receives_ < node.host.recv_completions.size(); ++seen_receives_) {
      const Completion& completion = node.host.recv_completions[seen_receives_];
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
      ASSERT_EQ(completion.slot, seen_receives_);
      ASSERT_FALSE(peer.messages_.empty());
      const Job job = peer.messages_.front();
      peer.messages_.erase(peer.messages_.begin());
      CheckReceived(job, completion);
    }
  }

  void Dump() const {
    QpDebug d;
    node.qp.Describe(node.now, d);
    std::cout << "left " << jobs_left_ << " in flight " << in_flight_.size() << " posted "
              << node.host.sends.size() << " una " << d.requester.oldest_unacknowledged.value()
              << " send " << d.requester.next_to_send.value() << " sent "
              << d.requester.end_of_sent.value() << " next " << d.requester.next_new.value()
              << " records " << d.requester.records << " rd " << d.requester.rd_atomic_outstanding
              << " expected " << d.responder.expected_psn.value() << " window "
              << node.options.limits.window_packets << " mtu "
              << static_cast<int>(node.options.path_mtu) << " transmit " << node.qp.HasTransmit()
              << " deadline " << node.qp.NextTimeout() << "\n";
  }

  Node node;

 private:
  void Post(const Job& job) {
    const uint32_t slot = posted_++;
    const uint64_t local = (slot % kSlots) * kSlotBytes;
    for (uint32_t i = 0; i < job.length; ++i) {
      node.host.bytes[kOutgoing + local + i] = Pattern(job.seed, i);
    }
    SendWqe* wqe = nullptr;
    switch (job.kind) {
      case Kind::kSend:
      case Kind::kSendImm:
        wqe = &node.host.PostSend(
            job.kind == Kind::kSend ? WorkOpcode::kSend : WorkOpcode::kSendWithImm, job.length,
            kOutgoing + local);
        messages_.push_back(job);
        break;
      case Kind::kWrite:
      case Kind::kWriteImm:
        wqe = &node.host.PostSend(
            job.kind == Kind::kWrite ? WorkOpcode::kRdmaWrite : WorkOpcode::kRdmaWriteWithImm,
            job.length, kOutgoing + local, kIncoming + local);
        if (job.kind == Kind::kWriteImm) messages_.push_back(job);
        break;
      case Kind::kRead:
        wqe = &node.host.PostSend(WorkOpcode::kRdmaRead, job.length, kFetched + local, kPublic);
        break;
      case Kind::kAdd:
        wqe = &node.host.PostSend(WorkOpcode::kFetchAdd, 8, kFetched + local, kCounter);
        wqe->atomic.compare_add = 1;
        break;
      case Kind::kSwap:
        // Always succeeds: only this side adds, and it compares with the sum of its earlier adds.
        wqe = &node.host.PostSend(WorkOpcode::kCompareSwap, 8, kFetched + local, kCounter);
        wqe->atomic.compare_add = adds_;
        wqe->atomic.swap = adds_ + 1;
        break;
    }
    if (job.kind == Kind::kAdd || job.kind == Kind::kSwap) expected_originals_[slot] = adds_++;
    wqe->immediate = SwapNetworkOrder(job.seed);
    wqe->fence = rng_() % 8 == 0;
    in_flight_.push_back(job);
  }

  void CheckSent(const Job& job, uint32_t slot, Side& peer) {
    const uint64_t local = (slot % kSlots) * kSlotBytes;
    const auto expect = [&](const ScriptedHost& host, uint64_t offset, uint32_t seed) {
      for (uint32_t i = 0; i < job.length; ++i) {
        ASSERT_EQ(host.bytes[offset + i], Pattern(seed, i)) << "slot " << slot << " byte " << i;
      }
    };
    switch (job.kind) {
      case Kind::kSend:
      case Kind::kSendImm:
        break;
      case Kind::kWrite:
      case Kind::kWriteImm:
        expect(peer.node.host, kIncoming + local, job.seed);
        break;
      case Kind::kRead:
        expect(node.host, kFetched + local, 777);
        break;
      case Kind::kAdd:
      case Kind::kSwap: {
        uint64_t original = 0;
        std::memcpy(&original, &node.host.bytes[kFetched + local], 8);
        ASSERT_EQ(original, expected_originals_.at(slot));
        break;
      }
    }
  }

  void CheckReceived(const Job& job, const Completion& completion) {
    ASSERT_EQ(completion.byte_length, job.length);
    const bool has_immediate = job.kind != Kind::kSend;
    ASSERT_EQ(completion.has_immediate, has_immediate);
    if (has_immediate) {
      ASSERT_EQ(completion.immediate, SwapNetworkOrder(job.seed));
    }
    if (job.kind == Kind::kWriteImm) {
      ASSERT_EQ(completion.opcode, CompletionOpcode::kRecvRdmaWithImm);
      return;
    }
    const uint64_t offset = kReceived + (completion.slot % kSlots) * kSlotBytes;
    for (uint32_t i = 0; i < job.length; ++i) {
      ASSERT_EQ(node.host.bytes[offset + i], Pattern(job.seed, i));
    }
  }

  Rng rng_;
  uint32_t jobs_left_;
  uint32_t posted_ = 0;
  uint32_t posted_receives_ = 0;
  size_t seen_sends_ = 0;
  size_t seen_receives_ = 0;
  uint64_t adds_ = 0;
  std::map<uint32_t, uint64_t> expected_originals_;
  std::vector<Job> in_flight_;  // posted and not completed, in order
  std::vector<Job> messages_;   // without a completion in the peer's receive queue yet
};

class Pair {
 public:
  Pair(const NodeOptions& a, const NodeOptions& b, Faults faults, uint32_t seed, uint32_t jobs)
      : faults_(faults), rng_(seed), sides_{{a, seed * 2, jobs}, {b, seed * 2 + 1, jobs}} {}

  // Fails the test unless all jobs are done by `limit` of simulated time.
  void Run(TimeNs limit) {
    while (now_ < limit) {
      for (int i = 0; i < 2; ++i) {
        sides_[i].PostReceives(faults_);
        sides_[i].PostJobs();
        Transmit(i);
      }
      for (int i = 0; i < 2; ++i) {
        sides_[i].CheckCompletions(sides_[1 - i]);
        if (testing::Test::HasFatalFailure()) return;
      }
      if (sides_[0].Done() && sides_[1].Done()) return;
      if (sides_[0].CanPost() || sides_[1].CanPost()) busy_ = true;
      if (!Advance()) break;
    }
    for (Side& side : sides_) side.Dump();
    FAIL() << "not done at " << now_ << " ns";
  }

  Side& side(int i) { return sides_[i]; }
  TimeNs now() const { return now_; }

 private:
  void Transmit(int from) {
    Node& node = sides_[from].node;
    node.now = now_;
    for (int i = 0; i < 16; ++i) {  // a burst
      auto packet = node.Poll();
      if (!packet) return;
      busy_ = true;
      if (rng_() % 1000 < faults_.drop) continue;
      Deliver(from, *packet);
      if (rng_() % 1000 < faults_.duplicate) Deliver(from, *packet);
    }
  }

  void Deliver(int from, const WirePacket& packet) {
    TimeNs at = now_ + 5000 + rng_() % 100;
    if (last_arrival_[from] > at) at = last_arrival_[from];
    if (rng_() % 1000 < faults_.reorder) {
      at += rng_() % 20'000;
    } else {
      last_arrival_[from] = at;
    }
    wire_.emplace(at, std::pair(1 - from, packet));
  }

  // Advances the clock to the next event and handles it. False: there is none.
  bool Advance() {
    TimeNs next = kNever;
    if (!wire_.empty()) next = wire_.begin()->first;
    for (Side& side : sides_) next = std::min(next, side.node.qp.NextTimeout());
    if (busy_) next = std::min(next, now_ + 500);
    busy_ = false;
    if (next == kNever) {
      // Only receives that were held back can cause progress.
      if (faults_.slow_receives == 0) return false;
      next = now_ + 1000;
    }
    now_ = std::max(now_, next);
    while (!wire_.empty() && wire_.begin()->first <= now_) {
      const auto [to, packet] = wire_.begin()->second;
      wire_.erase(wire_.begin());
      sides_[to].node.now = now_;
      sides_[to].node.Receive(packet);
    }
    for (Side& side : sides_) {
      side.node.now = now_;
      if (side.node.qp.NextTimeout() <= now_) side.node.qp.HandleTimeout(side.node.host, now_);
    }
    return true;
  }

  Faults faults_;
  Rng rng_;
  Side sides_[2];
  std::multimap<TimeNs, std::pair<int, WirePacket>> wire_;
  TimeNs last_arrival_[2] = {};
  TimeNs now_ = 1000;
  bool busy_ = false;
};

NodeOptions SideOptions(uint32_t seed, int side) {
  Rng rng(seed);
  NodeOptions options;
  options.memory_bytes = kTotal;
  options.path_mtu = static_cast<PathMtu>(1 + rng() % 3);
  options.limits.window_packets = 2u << (rng() % 7);
  options.limits.ack_every_packets = static_cast<uint16_t>(1 + rng() % 32);
  options.max_rd_atomic = options.max_dest_rd_atomic = static_cast<uint8_t>(1 + rng() % 16);
  options.timeout = 6;  // 262 us
  options.retry_count = 7;
  options.rnr_retry = 7;
  options.min_rnr_timer = static_cast<uint8_t>(1 + rng() % 6);
  // PSNs wrap in both directions.
  const Psn psns[2] = {Psn(0xFFFF00 + rng() % 256), Psn(0xFFFF00 + rng() % 256)};
  options.sq_psn = psns[side];
  options.rq_psn = psns[1 - side];
  return options;
}

// Environment variable ROCI_TEST_SEEDS multiplies the number of seeds, 1 without it.
uint32_t SeedFactor() {
  const char* text = std::getenv("ROCI_TEST_SEEDS");
  const int factor = text == nullptr ? 1 : std::atoi(text);
  return factor < 1 ? 1 : static_cast<uint32_t>(factor);
}

// Runs a pair for each seed and returns the sum of all counters, so that a test can check that the
// events it tests occurred.
std::array<uint64_t, kQpCounterCount> RunSeeds(Faults faults, uint32_t first_seed, uint32_t seeds,
                                               uint32_t jobs) {
  std::array<uint64_t, kQpCounterCount> counts{};
  seeds *= SeedFactor();
  for (uint32_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    NodeOptions a = SideOptions(seed, 0);
    NodeOptions b = SideOptions(seed, 1);
    Pair pair(a, b, faults, seed, jobs);
    pair.Run(TimeNs{20'000'000'000});
    if (testing::Test::HasFatalFailure()) {
      std::cout << "failed with seed " << seed << "\n";
      return counts;
    }
    for (int i = 0; i < 2; ++i) {
      for (size_t c = 0; c < kQpCounterCount; ++c) counts[c] += pair.side(i).node.host.counters[c];
    }
    // No timers while idle. (A late ACK may still be on its way out.)
    EXPECT_EQ(pair.side(0).node.qp.NextTimeout(), kNever);
    EXPECT_EQ(pair.side(1).node.qp.NextTimeout(), kNever);
  }
  return counts;
}

void ExpectHappened(const std::array<uint64_t, kQpCounterCount>& counts,
                    std::initializer_list<QpCounter> counters) {
  for (const QpCounter counter : counters) {
    EXPECT_GT(counts[static_cast<size_t>(counter)], 0u) << QpCounterName(counter);
  }
}

TEST(QpPair, CleanWireNeedsNoRecovery) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Pair pair(SideOptions(seed, 0), SideOptions(seed, 1), {}, seed, 200);
    pair.Run(TimeNs{20'000'000'000});
    for (int i = 0; i < 2; ++i) {
      ScriptedHost& host = pair.side(i).node.host;
      EXPECT_EQ(host.count(QpCounter::kRetransmittedPackets), 0u);
      EXPECT_EQ(host.count(QpCounter::kAckTimeouts), 0u);
      EXPECT_EQ(host.count(QpCounter::kDuplicateRequest), 0u);
    }
  }
}

TEST(QpPair, Loss) {
  ExpectHappened(RunSeeds({.drop = 20}, 100, 30, 200),
                 {QpCounter::kRetransmittedPackets, QpCounter::kPacketSequenceErrors,
                  QpCounter::kImpliedNaks, QpCounter::kAckTimeouts, QpCounter::kDuplicateRequest});
}

TEST(QpPair, HeavyLoss) {
  ExpectHappened(RunSeeds({.drop = 100}, 200, 20, 60), {QpCounter::kAckTimeouts});
}

TEST(QpPair, Duplication) {
  ExpectHappened(RunSeeds({.duplicate = 200}, 300, 30, 200), {QpCounter::kDuplicateRequest});
}

TEST(QpPair, Reordering) {
  ExpectHappened(RunSeeds({.reorder = 100}, 400, 30, 200),
                 {QpCounter::kOutOfSequence, QpCounter::kPacketSequenceErrors});
}

TEST(QpPair, ReceiverNotReady) {
  ExpectHappened(RunSeeds({.slow_receives = 900}, 500, 20, 100),
                 {QpCounter::kOutOfBuffer, QpCounter::kRnrNaksReceived});
}

TEST(QpPair, Everything) {
  ExpectHappened(
      RunSeeds({.drop = 30, .duplicate = 50, .reorder = 50, .slow_receives = 500}, 600, 60, 120),
      {QpCounter::kRnrNaksReceived, QpCounter::kRetransmittedPackets});
}

}  // namespace
}  // namespace roci::roce
