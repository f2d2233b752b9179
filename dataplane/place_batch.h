// Received payloads of a burst that go to apps' memory through system calls, and the completions
// that nobody may see before these payloads are there.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/completion_queue.h"
#include "memory/copy_batch.h"
#include "memory/segment.h"
#include "roce/packet.h"
#include "roce/work.h"

namespace roci::dataplane {

struct QueuePairHost;

// One per lcore; empty between bursts. A copy that fails marks its queue pair
// (QueuePairHost::copy_fault): by then the transport has gone on, so the queue pair is lost.
class PlaceBatch {
 public:
  bool empty() const { return places_ == 0; }

  // What is added until the next call comes of `packet`, whose frame stays until Flush.
  void BeginPacket(const roce::Packet& packet) {
    payload_ = packet.payload;
    psn_ = packet.psn;
    is_request_ = packet.info->is_request;
  }
  // As memory::CopyIn, later if `bytes` are of the payload or few. What is for a signature region
  // is copied at once, behind everything before.
  memory::MemoryStatus Add(QueuePairHost& host, const memory::SegmentList& segments,
                           std::span<const std::byte> bytes);
  // A completion of `host` while the batch is not empty.
  void Defer(QueuePairHost& host, CompletionQueue& cq, const roce::Completion& completion,
             const CompletionOwner& owner, bool is_send);
  // Copies, then completes in the order of deferring.
  void Flush();

 private:
  static constexpr uint32_t kMaxPlaces = 128;
  static constexpr uint32_t kMaxDeferred = 256;
  static constexpr size_t kFewBytes = 64;  // a GRH, the answer to an atomic

  struct Deferred {
    QueuePairHost* host;
    CompletionQueue* cq;
    roce::Completion completion;
    CompletionOwner owner;
    bool is_send;
    uint32_t places;  // of the batch that it must not come before
  };
  struct Origin {
    QueuePairHost* host;
    roce::Psn psn;
    bool is_request;
  };
  void NoteFailure(uint32_t place);

  bool IsOfPayload(std::span<const std::byte> bytes) const {
    return bytes.data() >= payload_.data() &&
           bytes.data() + bytes.size() <= payload_.data() + payload_.size();
  }

  std::span<const std::byte> payload_;
  roce::Psn psn_;
  bool is_request_ = false;
  memory::CopyBatch copies_;
  uint32_t places_ = 0;
  uint32_t deferred_count_ = 0;
  std::array<Origin, kMaxPlaces> origins_;
  std::array<Deferred, kMaxDeferred> deferred_;
  std::array<std::array<std::byte, kFewBytes>, kMaxPlaces> few_;  // by place
};

}  // namespace roci::dataplane
