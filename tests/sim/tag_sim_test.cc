// Several connections with one list of tagged buffers, under the faults of the RC simulation: with
// any loss, duplication and retry, a message is matched once, with the oldest matching buffer, and
// its bytes are correct.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/rings/tag_list.h"
#include "roce/tag_header.h"
#include "tests/sim/faults.h"
#include "tests/sim/pair.h"
#include "tests/sim/seeded_runs.h"

namespace roci::sim {
namespace {

using dataplane::TaggedBuffer;
using dataplane::TagList;
using roce::CompletionStatus;
using roce::TagHeader;

constexpr uint32_t kBufferBytes = 2048;
constexpr uint32_t kBuffers = 24;
constexpr uint32_t kTags = 5;

constexpr roce::QpCounter kMustHappen[] = {
    roce::QpCounter::kOutOfSequence,
    roce::QpCounter::kDuplicateRequest,
    roce::QpCounter::kRnrNaksSent,
    roce::QpCounter::kRetransmittedPackets,
};

Arena* ArenaOf(int node) {
  static Arena arenas[2];
  return &arenas[node];
}

struct Message {
  uint64_t tag;
  std::vector<std::byte> bytes;  // including the header
};

class TagRun {
 public:
  explicit TagRun(uint64_t seed) : random_(seed), list_(kBuffers) {
    for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random_);
    lines_.resize(random_.Between(1, 3));
    for (uint32_t i = 0; i < lines_.size(); ++i) Make(lines_[i]);
    for (uint32_t i = 0; i < kBuffers; ++i) free_.push_back(i);
  }

  std::optional<std::string> Go() {
    for (uint64_t step = 0; step < 200000; ++step) {
      PostBuffer();
      Line& line = lines_[random_.Below(lines_.size())];
      while (line.posted < line.requests && random_.Chance(500)) PostMessage(line);
      line.pair->Work(0, random_);
      line.pair->Step(random_, roce::kNever);
      if (line.pair->now() >= line.faults_end) line.pair->SetFaults(LinkFaults{});
      if (auto wrong = Check(line)) return wrong;
      if (!ArenaOf(1)->GuardsIntact()) return "wrote outside of a region";
      if (AllDone()) return std::nullopt;
    }
    return "does not finish";
  }

  uint64_t Count(roce::QpCounter counter) {
    uint64_t sum = 0;
    for (Line& line : lines_) {
      sum += line.pair->host(0).count(counter) + line.pair->host(1).count(counter);
    }
    return sum;
  }
  bool gave_up() const {
    for (const Line& line : lines_) {
      if (line.gave_up) return true;
    }
    return false;
  }

 private:
  struct Line {
    std::unique_ptr<Pair> pair;
    roce::TimeNs faults_end = 0;
    uint32_t requests = 0, posted = 0, completed = 0;
    std::vector<Message> messages;
    std::vector<uint32_t> matched;  // slots, in the order of messages
    PostedRecv receive;             // of the current message
    size_t seen = 0, seen_sends = 0;
    bool gave_up = false;
  };

  void Make(Line& line) {
    Connection connection = RandomConnection(random_);
    connection.limits.max_message_bytes = 1U << 20;
    connection.shares_receives = true;
    line.pair = std::make_unique<Pair>(connection, ArenaOf(0), ArenaOf(1));
    line.pair->SetFaults(RandomFaults(random_));
    line.faults_end = random_.Between(1000, 3'000'000);
    line.requests = static_cast<uint32_t>(random_.Between(1, 14));
    line.pair->host(1).ChooseReceives(
        [this, &line](const roce::Packet& packet) { return Choose(line, packet); });
  }

  // Matches a message that has a header, as TagReceiver does.
  const PostedRecv* Choose(Line& line, const roce::Packet& packet) {
    const TagHeader header = TagHeader::Load(packet.payload.data());
    const std::optional<uint32_t> expected = OldestFor(header.tag);
    const TaggedBuffer* buffer = list_.Match(header.tag);
    if (buffer == nullptr) {
      if (expected) wrong_ = "a buffer that matches was passed by";
      return nullptr;
    }
    if (!expected || *expected != buffer->slot()) wrong_ = "not the oldest buffer that matches";
    std::erase_if(listed_, [&](const TaggedBuffer& b) { return b.handle == buffer->handle; });
    line.matched.push_back(buffer->slot());
    line.receive.sges = {buffer->sges[0]};
    line.receive.wqe = {};
    line.receive.wqe.wr_id = buffer->wr_id;
    line.receive.wqe.capacity = buffer->capacity;
    line.receive.wqe.first_sge = buffer->sges[0];
    line.receive.wqe.num_sge = 1;
    line.receive.wqe.slot = buffer->slot();
    return &line.receive;
  }

  std::optional<uint32_t> OldestFor(uint64_t tag) const {
    for (const TaggedBuffer& buffer : listed_) {
      if ((tag & buffer.mask) == buffer.tag) return buffer.slot();
    }
    return std::nullopt;
  }

  // Posts one buffer at a time and not for every tag, so that a message often finds none and gets
  // an RNR NAK.
  void PostBuffer() {
    if (free_.empty() && random_.Chance(20)) TakeBack();
    if (free_.empty() || random_.Chance(700)) return;
    const auto chosen = free_.begin() + static_cast<ptrdiff_t>(random_.Below(free_.size()));
    const uint32_t slot = *chosen;
    free_.erase(chosen);
    TaggedBuffer buffer;
    buffer.handle = slot;
    buffer.mask = random_.Chance(200) ? 0 : ~uint64_t{0};
    buffer.tag = random_.Below(kTags) & buffer.mask;
    buffer.wr_id = next_wr_id_++;
    buffer.capacity = kBufferBytes;
    buffer.num_sge = 1;
    buffer.sges[0] = {ArenaOf(1)->va(kReceive) + uint64_t{slot} * kBufferBytes, kBufferBytes,
                      roce::Key(ArenaOf(1)->key(kReceive))};
    EXPECT_TRUE(list_.Add(buffer));
    listed_.push_back(buffer);
  }

  // Removes a listed buffer: too many are for tags that no message has.
  void TakeBack() {
    if (listed_.empty()) return;
    const auto chosen = listed_.begin() + static_cast<ptrdiff_t>(random_.Below(listed_.size()));
    EXPECT_TRUE(list_.Remove(chosen->handle));
    free_.push_back(chosen->slot());
    listed_.erase(chosen);
  }

  void PostMessage(Line& line) {
    PostedSend post;
    post.wqe.wr_id = line.posted++;
    post.wqe.signaled = true;
    post.wqe.opcode = roce::WorkOpcode::kSend;
    post.wqe.is_inline = true;
    Message message;
    message.tag = random_.Below(kTags);
    message.bytes.resize(TagHeader::kBytes + random_.Below(kBufferBytes - TagHeader::kBytes + 1));
    for (std::byte& byte : message.bytes) byte = static_cast<std::byte>(random_.Next());
    TagHeader{3, 0, message.tag}.Store(message.bytes.data());
    post.wqe.length = static_cast<uint32_t>(message.bytes.size());
    post.inline_bytes = message.bytes;
    line.messages.push_back(std::move(message));
    line.pair->host(0).PostSend(std::move(post));
  }

  std::optional<std::string> Check(Line& line) {
    if (wrong_) return wrong_;
    if (line.pair->wrong()) return line.pair->wrong();
    if (line.matched.size() > line.messages.size()) return "a message was matched twice";
    const auto& completions = line.pair->host(1).recv_completions();
    for (; line.seen < completions.size(); ++line.seen) {
      const roce::Completion& completion = completions[line.seen];
      if (completion.status != CompletionStatus::kSuccess) return "a receive failed";
      if (line.seen >= line.matched.size()) return "a receive that was never matched";
      const Message& message = line.messages[line.seen];
      const uint32_t slot = line.matched[line.seen];
      if (completion.slot != slot) return "another buffer than was matched";
      if (completion.byte_length != message.bytes.size()) return "wrong length";
      if (std::memcmp(ArenaOf(1)->bytes(kReceive).data() + size_t{slot} * kBufferBytes,
                      message.bytes.data(), message.bytes.size()) != 0) {
        return "wrong bytes";
      }
      list_.Release(slot);
      free_.push_back(slot);
    }
    return CheckSends(line);
  }

  static std::optional<std::string> CheckSends(Line& line) {
    const auto& completions = line.pair->host(0).send_completions();
    for (; line.seen_sends < completions.size() && !line.gave_up; ++line.seen_sends) {
      const CompletionStatus status = completions[line.seen_sends].status;
      if (status == CompletionStatus::kRetryExceeded) {
        line.gave_up = true;
      } else if (status != CompletionStatus::kSuccess) {
        return "request failed: " + std::to_string(static_cast<int>(status));
      } else {
        ++line.completed;
      }
    }
    return std::nullopt;
  }

  bool AllDone() const {
    for (const Line& line : lines_) {
      if (line.gave_up) continue;
      if (line.posted != line.requests || line.completed != line.requests ||
          line.seen != line.requests) {
        return false;
      }
    }
    return true;
  }

  Random random_;
  TagList list_;
  std::vector<TaggedBuffer> listed_;  // in the order of posting
  std::vector<Line> lines_;
  std::vector<uint32_t> free_;
  uint64_t next_wr_id_ = 1;
  std::optional<std::string> wrong_;
};

TEST(TagSimulation, EveryMessageIsMatchedOnceWithTheOldestBufferThatFits) {
  const Seeds seeds(3000);
  uint64_t gave_up = 0;
  MustHappen must_happen(kMustHappen);
  ForEachSeed(
      seeds, [](uint64_t seed) { return TagRun(seed); },
      [&](TagRun& run) {
        gave_up += run.gave_up();
        must_happen.Look(run);
      });
  must_happen.Check(seeds);
  EXPECT_LE(gave_up * 50, seeds.count) << "too many connections gave up";
}

}  // namespace
}  // namespace roci::sim
