// FLUSH over faulty links: node 0 writes, reads and flushes; node 1 has a slow disk that is often
// busy. When a FLUSH completes, all earlier payloads are in memory, and for persistence on the
// disk. Each FLUSH starts one sync, however often its packets arrive. A later ATOMIC WRITE is not
// visible before that.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/faults.h"
#include "tests/sim/pair.h"
#include "tests/sim/seeded_runs.h"

namespace roci::sim {
namespace {

using roce::Feth;
using roce::QpCounter;
using roce::WorkOpcode;

constexpr std::array kMustHappen = {QpCounter::kDuplicateRequest, QpCounter::kOutOfSequence,
                                    QpCounter::kRxFlushRequests, QpCounter::kRetransmittedPackets};
constexpr uint32_t kRequests = 40;

class SeededRun {
 public:
  SeededRun(uint64_t seed, Arena* near, Arena* far, bool lossless = false)
      : random_(seed), lossless_(lossless) {
    near->Reset(random_);
    far->Reset(random_);
    Connection connection = RandomConnection(random_);
    if (lossless) {
      // Any retransmission that the responder requests would end the queue pair.
      connection.retry_count = 0;
      connection.rnr_retry = 7;
      connection.timeout = 0;
    }
    pair_.emplace(connection, near, far);
    if (!lossless) pair_->SetFaults(RandomFaults(random_));
    // A sync may take several timeouts of the requester.
    pair_->set_longest_sync_ns(random_.Chance(500) ? random_.Between(1000, 20'000)
                                                   : random_.Between(20'000, 5'000'000));
    pair_->host(1).disk().resize(far->size(kTarget));
  }

  std::optional<std::string> Go() {
    uint32_t steps = 0;
    for (;;) {
      Post();
      if (auto wrong = Check()) return wrong;
      if (gave_up_ || (seen_ == posted_.size() && posted_.size() == kRequests)) break;
      if (random_.Chance(20)) pair_->host(1).set_busy(static_cast<uint32_t>(random_.Between(1, 3)));
      if (++steps > 200'000) return "too many steps";
      if (pair_->now() > 500'000'000) pair_->SetFaults(LinkFaults{});
      const bool unposted = posted_.size() != kRequests;
      const roce::TimeNs until =
          unposted ? pair_->now() + random_.Between(1, 100'000) : roce::kNever;
      if (!pair_->Step(random_, until) && !unposted) return "nothing happens any more";
    }
    if (pair_->host(1).syncs() > durable_ || (!gave_up_ && pair_->host(1).syncs() < durable_)) {
      return std::to_string(pair_->host(1).syncs()) + " syncs for " + std::to_string(durable_);
    }
    if (gave_up_ && lossless_) return "a request failed without a loss";
    for (int node = 0; node < 2; ++node) {
      if (!pair_->arena(node).GuardsIntact()) return "bytes outside of regions changed";
    }
    return std::nullopt;
  }
  bool gave_up() const { return gave_up_; }
  uint64_t Count(QpCounter counter) {
    return pair_->host(0).count(counter) + pair_->host(1).count(counter);
  }

 private:
  // A part of the target that one request writes.
  struct Written {
    uint64_t offset;
    std::vector<std::byte> bytes;
  };
  struct Posted {
    bool is_flush = false;
    uint8_t type = 0;
    bool whole = false;
    uint64_t begin = 0, end = 0;  // range of a FLUSH in the target
    size_t written = 0;           // number of parts written before
  };

  void Post() {
    if (posted_.size() == kRequests || posted_.size() - seen_ > 12 || random_.Chance(300)) return;
    PostedSend post;
    post.wqe.signaled = true;
    post.wqe.rkey = roce::Key(pair_->arena(1).key(kTarget));
    Posted note;
    note.written = written_.size();
    const uint64_t kind = random_.Below(10);
    if (kind < 4) {
      PrepareWrite(post);
    } else if (kind < 5) {
      PrepareRead(post);
    } else if (kind < 6) {
      PrepareAtomicWrite(post);
    } else {
      PrepareFlush(post, note);
    }
    posted_.push_back(note);
    pair_->host(0).PostSend(std::move(post));
    pair_->Work(0, random_);
  }

  void SetSge(PostedSend& post, RegionName region, uint64_t offset, uint32_t length) {
    Arena& near = pair_->arena(0);
    post.sges = {roce::Sge{near.va(region) + offset, length, roce::Key(near.key(region))}};
    post.wqe.first_sge = post.sges.front();
    post.wqe.num_sge = 1;
    post.wqe.length = length;
  }

  // No byte is written twice, so its expected value never changes.
  void PrepareWrite(PostedSend& post) {
    const auto length = static_cast<uint32_t>(random_.Between(1, 65536 / kRequests - 8));
    PrepareBytes(post, WorkOpcode::kRdmaWrite, length);
  }
  void PrepareAtomicWrite(PostedSend& post) {
    next_ = (next_ + 7) & ~uint64_t{7};
    unseen_.push_back({posted_.size(), written_.size()});
    PrepareBytes(post, WorkOpcode::kAtomicWrite, 8);
  }
  void PrepareBytes(PostedSend& post, WorkOpcode opcode, uint32_t length) {
    const uint64_t source = random_.Below(pair_->arena(0).size(kSource) - length);
    post.wqe.opcode = opcode;
    post.wqe.remote_va = pair_->arena(1).va(kTarget) + next_;
    SetSge(post, kSource, source, length);
    const auto bytes = pair_->arena(0).bytes(kSource).subspan(source, length);
    written_.push_back({next_, {bytes.begin(), bytes.end()}});
    next_ += length;
  }
  void PrepareRead(PostedSend& post) {
    post.wqe.opcode = WorkOpcode::kRdmaRead;
    post.wqe.remote_va = pair_->arena(1).va(kTarget);
    SetSge(post, kLanding, 0, static_cast<uint32_t>(random_.Between(1, 5000)));
  }
  void PrepareFlush(PostedSend& post, Posted& note) {
    note.is_flush = true;
    note.type = static_cast<uint8_t>(random_.Between(1, 3));
    note.whole = random_.Chance(300);
    note.begin = random_.Below(next_ + 1);
    note.end = random_.Chance(50) ? note.begin : random_.Between(note.begin, next_);
    post.wqe.opcode = WorkOpcode::kFlush;
    post.wqe.remote_va = pair_->arena(1).va(kTarget) + note.begin;
    post.wqe.length = static_cast<uint32_t>(note.end - note.begin);
    post.wqe.flush = {.placement_type = note.type, .selectivity_level = uint8_t{note.whole}};
    if (note.whole) note = {true, note.type, true, 0, next_, note.written};
    const bool some = note.whole || note.begin != note.end;
    durable_ += (note.type & Feth::kPersistence) != 0 && some ? 1u : 0u;
  }

  // Once an ATOMIC WRITE is visible, earlier FLUSHes for persistence must have taken effect.
  std::optional<std::string> CheckOrder() {
    while (!unseen_.empty()) {
      const auto [request, part] = unseen_.front();
      const Written& word = written_[part];
      if (std::memcmp(pair_->arena(1).bytes(kTarget).data() + word.offset, word.bytes.data(), 8) !=
          0) {
        return std::nullopt;
      }
      unseen_.pop_front();
      for (; ordered_ < request; ++ordered_) {
        const Posted& flush = posted_[ordered_];
        if (flush.is_flush && (flush.type & Feth::kPersistence) != 0 &&
            !Includes(pair_->host(1).disk(), flush, false)) {
          return "an ATOMIC WRITE overtook request " + std::to_string(ordered_);
        }
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> Check() {
    if (pair_->wrong()) return pair_->wrong();
    if (auto wrong = CheckOrder()) return wrong;
    const auto& done = pair_->host(0).send_completions();
    for (; seen_ < done.size(); ++seen_) {
      // Happens if the disk takes longer than all retries, or the link loses too much.
      gave_up_ = done[seen_].status == roce::CompletionStatus::kRetryExceeded;
      if (gave_up_) return std::nullopt;
      if (done[seen_].status != roce::CompletionStatus::kSuccess) {
        return "request " + std::to_string(seen_) + " failed with status " +
               std::to_string(static_cast<int>(done[seen_].status));
      }
      const Posted& posted = posted_[seen_];
      if (!posted.is_flush) continue;
      if (done[seen_].opcode != roce::CompletionOpcode::kFlush) return "opcode of the completion";
      if (!Includes(pair_->arena(1).bytes(kTarget), posted, true)) return "not visible";
      if ((posted.type & Feth::kPersistence) != 0 &&
          !Includes(pair_->host(1).disk(), posted, false)) {
        return "request " + std::to_string(seen_) + " is not durable";
      }
    }
    return std::nullopt;
  }
  // Whether `image` contains what was written before the FLUSH, in its range or `anywhere`.
  bool Includes(std::span<const std::byte> image, const Posted& flush, bool anywhere) const {
    for (size_t i = 0; i < flush.written; ++i) {
      const Written& part = written_[i];
      const uint64_t begin = anywhere ? part.offset : std::max(part.offset, flush.begin);
      const uint64_t part_end = part.offset + part.bytes.size();
      const uint64_t end = anywhere ? part_end : std::min(part_end, flush.end);
      if (begin < end && std::memcmp(image.data() + begin,
                                     part.bytes.data() + (begin - part.offset), end - begin) != 0) {
        return false;
      }
    }
    return true;
  }

  Random random_;
  bool lossless_;
  std::optional<Pair> pair_;
  std::vector<Posted> posted_;
  std::vector<Written> written_;
  uint64_t next_ = 0;  // next offset in the target to write
  size_t seen_ = 0;
  // ATOMIC WRITEs that are not visible in memory yet: indices in posted_ and written_.
  std::deque<std::pair<size_t, size_t>> unseen_;
  size_t ordered_ = 0;  // number of requests in posted_ whose order was checked
  uint32_t durable_ = 0;
  bool gave_up_ = false;
};

TEST(RcFlush, ConfirmedWritesAreDurable) {
  const Seeds seeds(3000);
  Arena near, far;
  MustHappen must_happen(kMustHappen);
  uint64_t gave_up = 0;
  ForEachSeed(
      seeds, [&](uint64_t seed) { return SeededRun(seed, &near, &far); },
      [&](SeededRun& run) {
        must_happen.Look(run);
        gave_up += run.gave_up() ? 1u : 0u;
      });
  must_happen.Check(seeds);
  EXPECT_LE(gave_up, seeds.count / 4);
}

TEST(RcFlush, NeedsNoRetryWhereNothingIsLost) {
  const Seeds seeds(1000);
  Arena near, far;
  ForEachSeed(
      seeds, [&](uint64_t seed) { return SeededRun(seed, &near, &far, true); },
      [](const SeededRun&) {});
}

}  // namespace
}  // namespace roci::sim
