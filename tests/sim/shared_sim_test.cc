// Several connections whose receives come from shared receive queues, RC and XRC, under the faults
// of the RC simulation: every message arrives once and in order on its connection, in the oldest
// receive of the right queue, and every receive in use completes exactly once.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/faults.h"
#include "tests/sim/pair.h"
#include "tests/sim/seeded_runs.h"
#include "tests/sim/shared_queues.h"

namespace roci::sim {
namespace {

using roce::CompletionStatus;
using roce::QpType;
using roce::WorkOpcode;

constexpr uint32_t kBufferBytes = 2048;
constexpr uint32_t kBuffers = 24;  // of all queues together, in kReceive
constexpr uint32_t kReadBytes = 1024;

// Events that must occur in some of the runs.
constexpr roce::QpCounter kMustHappen[] = {
    roce::QpCounter::kOutOfSequence,        roce::QpCounter::kDuplicateRequest,
    roce::QpCounter::kSequenceNaksSent,     roce::QpCounter::kRnrNaksSent,
    roce::QpCounter::kRetransmittedPackets, roce::QpCounter::kReadResponsesSent,
};

Arena* ArenaOf(int node) {
  static Arena arenas[2];
  return &arenas[node];
}

// One message as it must arrive at the receiver.
struct Message {
  uint32_t queue;
  uint32_t at;  // offset in kSource
  uint32_t length;
  std::optional<uint32_t> immediate;
  bool is_write;  // RDMA WRITE of no bytes, with immediate data
};

// One sender and its queue pair at the receiver. Each connection has its own clock: connections
// share nothing but the receive queues.
class Line {
 public:
  Line(Random& random, bool is_xrc, SharedQueues* queues, uint32_t queue_count, uint32_t index)
      : is_xrc_(is_xrc), queues_(queues), queue_count_(queue_count), index_(index) {
    Connection connection = RandomConnection(random);
    connection.limits.max_message_bytes = 1U << 20;
    if (is_xrc) connection.types = {QpType::kXrcSend, QpType::kXrcRecv};
    connection.shares_receives = true;
    pair_ = std::make_unique<Pair>(connection, ArenaOf(0), ArenaOf(1));
    pair_->SetFaults(RandomFaults(random));
    pair_->host(1).UseSharedQueues(queues, 0);
    faults_end_ = random.Between(1000, 3'000'000);
    requests_ = static_cast<uint32_t>(random.Between(1, 14));
  }

  void Post(Random& random) {
    while (!dead_ && posted_ < requests_ && random.Chance(500)) PostOne(random);
    pair_->Work(0, random);
  }

  // False: no event is pending.
  bool Step(Random& random) {
    const bool moved = pair_->Step(random, roce::kNever);
    if (pair_->now() >= faults_end_) pair_->SetFaults(LinkFaults{});
    return moved;
  }

  void Kill(Random& random) {
    dead_ = true;
    pair_->Fail(1, random);
  }

  // Checks new completions. Appends the buffers of completed receives to `free`.
  std::optional<std::string> Check(std::vector<uint32_t>& free) {
    const auto& completions = pair_->host(1).recv_completions();
    for (; seen_ < completions.size(); ++seen_) {
      const roce::Completion& completion = completions[seen_];
      const uint32_t queue = pair_->host(1).completed_queues()[seen_];
      if (auto wrong = queues_->Complete(queue, completion.slot)) return wrong;
      const uint64_t va = queues_->At(queue, completion.slot).wqe.first_sge.va;
      const auto buffer = static_cast<uint32_t>((va - ArenaOf(1)->va(kReceive)) / kBufferBytes);
      free.push_back(buffer);
      if (completion.status == CompletionStatus::kWorkRequestFlushed && dead_) continue;
      if (auto wrong = CheckReceived(completion, queue, buffer)) return wrong;
    }
    return CheckSends();
  }

  bool Done() const {
    return dead_ || gave_up_ || (posted_ == requests_ && completed_ == requests_);
  }
  bool dead() const { return dead_; }
  bool gave_up() const { return gave_up_; }
  Pair& pair() { return *pair_; }
  std::optional<std::string> CheckEnd() {
    if (!dead_ && !gave_up_ && received_ != messages_.size()) return "messages are missing";
    int last_wqe = 0;
    for (const roce::QpEvent event : pair_->host(1).events()) {
      last_wqe += event == roce::QpEvent::kLastWqeReached;
    }
    if (last_wqe != (dead_ ? 1 : 0)) return "last-WQE events: " + std::to_string(last_wqe);
    return std::nullopt;
  }

 private:
  void PostOne(Random& random) {
    PostedSend post;
    post.wqe.wr_id = posted_++;
    post.wqe.signaled = true;
    const uint32_t queue = is_xrc_ ? static_cast<uint32_t>(random.Below(queue_count_)) : 0;
    post.wqe.remote_srq_number = queue;
    if (random.Chance(250)) {
      PrepareRead(random, post);
    } else {
      PrepareMessage(random, post, queue);
    }
    pair_->host(0).PostSend(std::move(post));
  }

  void PrepareMessage(Random& random, PostedSend& post, uint32_t queue) {
    Message message{queue, 0, 0, std::nullopt, random.Chance(200)};
    if (!message.is_write) {
      message.length = static_cast<uint32_t>(random.Chance(500) ? random.Below(200)
                                                                : random.Below(kBufferBytes + 1));
      message.at =
          static_cast<uint32_t>(random.Below(ArenaOf(0)->size(kSource) - message.length + 1));
    }
    if (message.is_write || random.Chance(300)) {
      message.immediate = static_cast<uint32_t>(random.Next());
      post.wqe.immediate = *message.immediate;
    }
    post.wqe.opcode = message.is_write    ? WorkOpcode::kRdmaWriteWithImm
                      : message.immediate ? WorkOpcode::kSendWithImm
                                          : WorkOpcode::kSend;
    SetSge(post, ArenaOf(0)->va(kSource) + message.at, message.length, ArenaOf(0)->key(kSource));
    messages_.push_back(message);
  }

  // Reads memory that never changes. The response comes late, while other queues are in use.
  void PrepareRead(Random& random, PostedSend& post) {
    post.wqe.opcode = WorkOpcode::kRdmaRead;
    const uint64_t at = random.Below(ArenaOf(1)->size(kReadOnly) - kReadBytes + 1);
    post.wqe.remote_va = ArenaOf(1)->va(kReadOnly) + at;
    post.wqe.rkey = roce::Key(ArenaOf(1)->key(kReadOnly));
    const uint64_t landing = (index_ * 16 + reads_.size()) * kReadBytes;
    SetSge(post, ArenaOf(0)->va(kLanding) + landing, kReadBytes, ArenaOf(0)->key(kLanding));
    reads_[static_cast<uint32_t>(post.wqe.wr_id)] = {at, landing};
  }

  static void SetSge(PostedSend& post, uint64_t va, uint32_t length, uint32_t key) {
    post.wqe.length = length;
    if (length == 0) return;
    post.sges = {roce::Sge{va, length, roce::Key(key)}};
    post.wqe.first_sge = post.sges.front();
    post.wqe.num_sge = 1;
  }

  std::optional<std::string> CheckReceived(const roce::Completion& completion, uint32_t queue,
                                           uint32_t buffer) {
    if (completion.status != CompletionStatus::kSuccess) return "a receive failed";
    if (received_ == messages_.size()) return "a message that nobody sent";
    const Message& message = messages_[received_++];
    if (queue != message.queue) return "a receive of another queue";
    if (completion.byte_length != message.length) return "wrong length";
    if (completion.has_immediate != message.immediate.has_value() ||
        (message.immediate && completion.immediate != *message.immediate)) {
      return "wrong immediate data";
    }
    const auto got = ArenaOf(1)->bytes(kReceive).subspan(buffer * kBufferBytes, message.length);
    const auto sent = ArenaOf(0)->bytes(kSource).subspan(message.at, message.length);
    if (!std::equal(got.begin(), got.end(), sent.begin())) return "wrong bytes";
    return std::nullopt;
  }

  std::optional<std::string> CheckSends() {
    if (pair_->wrong()) return pair_->wrong();
    const auto& completions = pair_->host(0).send_completions();
    for (; seen_sends_ < completions.size() && !gave_up_; ++seen_sends_) {
      const roce::Completion& completion = completions[seen_sends_];
      if (completion.wr_id != completed_) return "requests complete out of order";
      if (completion.status == CompletionStatus::kRetryExceeded) {
        gave_up_ = true;
        break;
      }
      if (completion.status != CompletionStatus::kSuccess) {
        return "request failed: " + std::to_string(static_cast<int>(completion.status));
      }
      ++completed_;
      const auto read = reads_.find(static_cast<uint32_t>(completion.wr_id));
      if (read == reads_.end()) continue;
      if (std::memcmp(ArenaOf(0)->bytes(kLanding).data() + read->second.landing,
                      ArenaOf(1)->bytes(kReadOnly).data() + read->second.at, kReadBytes) != 0) {
        return "wrong bytes read";
      }
    }
    return std::nullopt;
  }

  struct Read {
    uint64_t at, landing;
  };
  const bool is_xrc_;
  SharedQueues* queues_;
  const uint32_t queue_count_;
  const uint32_t index_;
  std::unique_ptr<Pair> pair_;
  roce::TimeNs faults_end_ = 0;
  uint32_t requests_ = 0;
  uint32_t posted_ = 0;
  uint32_t completed_ = 0;
  std::vector<Message> messages_;
  std::map<uint32_t, Read> reads_;
  size_t received_ = 0;
  size_t seen_ = 0;
  size_t seen_sends_ = 0;
  bool dead_ = false;
  bool gave_up_ = false;
};

class SharedRun {
 public:
  SharedRun(uint64_t seed, bool is_xrc) : random_(seed) {
    for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random_);
    queue_count_ = is_xrc ? static_cast<uint32_t>(random_.Between(1, 3)) : 1;
    for (uint32_t number = 0; number < queue_count_; ++number) queues_.Add(number);
    const uint64_t lines = random_.Between(1, 4);
    for (uint32_t i = 0; i < lines; ++i) {
      lines_.push_back(std::make_unique<Line>(random_, is_xrc, &queues_, queue_count_, i));
    }
    for (uint32_t i = 0; i < kBuffers; ++i) free_.push_back(i);
    if (random_.Chance(200)) kill_at_ = random_.Between(1, 400);
  }

  std::optional<std::string> Go() {
    for (uint64_t step = 0; step < 200000; ++step) {
      PostReceives();
      Line& line = *lines_[random_.Below(lines_.size())];
      if (step == kill_at_ && !line.Done()) line.Kill(random_);
      line.Post(random_);
      line.Step(random_);
      if (auto wrong = line.Check(free_)) return wrong;
      if (!ArenaOf(1)->GuardsIntact()) return "wrote outside of a region";
      if (AllDone()) return Finish();
    }
    return "does not finish";
  }

  uint64_t Count(roce::QpCounter counter) {
    uint64_t sum = 0;
    for (auto& line : lines_) {
      sum += line->pair().host(0).count(counter) + line->pair().host(1).count(counter);
    }
    return sum;
  }
  bool gave_up() const {
    for (const auto& line : lines_) {
      if (line->gave_up() && !line->dead()) return true;
    }
    return false;
  }

 private:
  // Posts one receive at a time: often a message finds none. Each queue has buffers of its own.
  void PostReceives() {
    if (free_.empty() || random_.Chance(700)) return;
    const auto chosen = free_.begin() + static_cast<ptrdiff_t>(random_.Below(free_.size()));
    const uint32_t buffer = *chosen;
    const uint32_t number = buffer % queue_count_;
    free_.erase(chosen);
    PostedRecv recv;
    recv.wqe.capacity = kBufferBytes;
    recv.sges = {roce::Sge{ArenaOf(1)->va(kReceive) + uint64_t{buffer} * kBufferBytes, kBufferBytes,
                           roce::Key(ArenaOf(1)->key(kReceive))}};
    recv.wqe.first_sge = recv.sges.front();
    recv.wqe.num_sge = 1;
    queues_.Post(number, std::move(recv));
  }

  bool AllDone() const {
    for (const auto& line : lines_) {
      if (!line->Done()) return false;
    }
    return true;
  }

  std::optional<std::string> Finish() {
    for (auto& line : lines_) {
      if (line->gave_up() && !line->dead()) return std::nullopt;  // may still hold a receive
      if (auto wrong = line->Check(free_)) return wrong;
      if (auto wrong = line->CheckEnd()) return wrong;
    }
    if (!queues_.AllCompleted()) return "a receive that was taken never completed";
    return std::nullopt;
  }

  Random random_;
  SharedQueues queues_;
  uint32_t queue_count_ = 1;
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<uint32_t> free_;
  uint64_t kill_at_ = 0;  // 0: never
};

class SharedSimulation : public testing::TestWithParam<bool> {};

TEST_P(SharedSimulation, EveryReceiveCompletesOnceAndForTheRightMessage) {
  const Seeds seeds(3000);
  uint64_t gave_up = 0;
  MustHappen must_happen(kMustHappen);
  ForEachSeed(
      seeds, [](uint64_t seed) { return SharedRun(seed, GetParam()); },
      [&](SharedRun& run) {
        gave_up += run.gave_up();
        must_happen.Look(run);
      });
  must_happen.Check(seeds);
  EXPECT_LE(gave_up * 50, seeds.count) << "too many connections gave up";
}

INSTANTIATE_TEST_SUITE_P(Service, SharedSimulation, testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "Xrc" : "Rc"); });

}  // namespace
}  // namespace roci::sim
