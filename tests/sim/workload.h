// Random requests of one node to the other, with an oracle for every byte and completion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/arena.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

struct WorkloadShape {
  uint32_t requests = 10;
  uint32_t mtu_bytes = 1024;
  uint32_t max_message_bytes = 20000;
  uint32_t outstanding = 16;  // requests posted and not known to be complete
};

// One direction: `self` posts, `peer` serves. Post and Check are called after every step of the
// simulation.
class Workload {
 public:
  Workload(const WorkloadShape& shape, SimHost* self, Arena* self_arena, SimHost* peer,
           Arena* peer_arena);

  // Posts at random: requests at `self`, receive buffers at `peer`.
  void Post(Random& random);
  // Checks new completions of both sides. Returns what is wrong, if anything.
  std::optional<std::string> Check();
  // Once Done() is true, everything has completed, and CheckFinal() compares all memory.
  bool Done() const;
  std::optional<std::string> CheckFinal();

  bool HasUnpostedWork() const { return posted_ < shape_.requests || !pending_recvs_.empty(); }
  // The number of completions seen so far, of both sides together.
  uint64_t completions() const { return seen_completions_ + seen_recvs_; }
  // Whether Check found a send completion with an error, and the status of the first one.
  bool failed() const { return first_error_.has_value(); }
  roce::CompletionStatus error() const { return first_error_->status; }

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool Overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  // What must hold when request number `slot` completes.
  struct Expected {
    roce::WorkOpcode opcode;
    bool signaled;
    uint32_t length;
    std::vector<std::byte> landing_bytes;  // READ, atomics, and requests that forward their result
    Range landing;                         // in kLanding of self
    Range peer_read;  // READ: range of kTarget that must not be written meanwhile
  };
  struct ExpectedRecv {
    std::vector<std::byte> bytes;
    Range buffer;  // in kReceive of the peer
    std::optional<uint32_t> immediate;
    bool is_write;
    bool solicited;
  };

  uint32_t RandomLength(Random& random) const;
  bool PostRequest(Random& random);
  bool PrepareSend(Random& random, PostedSend& post, Expected& expected);
  bool PrepareWrite(Random& random, PostedSend& post, Expected& expected);
  bool PrepareRead(Random& random, PostedSend& post, Expected& expected);
  bool PrepareAtomic(Random& random, PostedSend& post, Expected& expected);
  std::vector<std::byte> AddSource(Random& random, PostedSend& post, uint32_t length);
  void AddLanding(Random& random, PostedSend& post, const Range& range);
  std::vector<std::byte> AddForwarded(Random& random, PostedSend& post, size_t from,
                                      Expected& expected);
  std::vector<std::byte> AddMessage(Random& random, PostedSend& post, Expected& expected);
  bool QueueRecv(Random& random, const PostedSend& post, const std::vector<std::byte>& bytes,
                 uint32_t extra, bool is_write);
  std::optional<Range> AllocateLanding(uint32_t length) const;
  bool ReadOutstandingOver(const Range& target) const;

  std::optional<std::string> CheckSend(const roce::Completion& completion);
  std::optional<std::string> CheckDataUpTo(size_t last);
  std::optional<std::string> CheckRecv(const roce::Completion& completion);

  WorkloadShape shape_;
  SimHost* self_;
  Arena* self_arena_;
  SimHost* peer_;
  Arena* peer_arena_;

  uint32_t posted_ = 0;
  std::vector<Expected> expected_;
  size_t completed_ = 0;         // requests known to be complete
  size_t seen_completions_ = 0;  // of self's send completions
  std::deque<PostedRecv> pending_recvs_;
  std::vector<ExpectedRecv> expected_recvs_;
  size_t seen_recvs_ = 0;
  uint64_t next_recv_offset_ = 0;
  std::vector<std::byte> target_oracle_;
  std::vector<uint64_t> atomics_oracle_;
  std::optional<roce::Completion> first_error_;
};

}  // namespace roci::sim
