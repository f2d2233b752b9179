// Received payloads that are written to programs' memory by system calls, and the completions that
// must not become visible before these payloads are written.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/qp/completion_queue.h"
#include "memory/copy_batch.h"
#include "memory/segment.h"
#include "roce/packet.h"
#include "roce/qp.h"
#include "roce/work.h"

namespace roci::dataplane {

class QueuePairHost;

// A batch is collected, then copied, then settled. Nothing may be added while it is copied. A copy
// that fails marks its queue pair (CopyState::fault): the transport has acknowledged
// the packet by then, so the queue pair fails. Members are called on the lcore unless they say
// otherwise.
class PlaceBatch {
 public:
  static constexpr uint32_t kMaxPlaces = 128;

  // From now on a program can make the copying thread wait.
  void MayWait() { may_wait_ = true; }

  bool empty() const { return places_ == 0 && deferred_count_ == 0; }
  // Whether one more packet that causes `completions` can be added.
  bool HasRoom(uint32_t completions) const {
    return places_ + kPlacesPerPacket <= kMaxPlaces &&
           copies_.size() + kPlacesPerPacket * memory::SegmentList::kCapacity <=
               memory::CopyBatch::kMaxPieces &&
           deferred_count_ + completions + kEventsPerPacket + 2 * roce::kFlushBudget <=
               kMaxDeferred;  // the flush that one packet can cause
  }

  // Payloads added until the next call are of `packet`, whose frame stays until Settle.
  void BeginPacket(const roce::Packet& packet) {
    payload_ = packet.payload;
    psn_ = packet.psn;
    is_request_ = packet.info->is_request;
    places_before_ = places_;
  }
  // Whether payloads have been added since BeginPacket, so that the frame must stay.
  bool HasPayloadOfPacket() const { return places_ != places_before_; }
  // As memory::CopyIn, but deferred if `bytes` are of the payload or few. Bytes for a signature
  // region are copied at once.
  memory::MemoryStatus Add(QueuePairHost& host, const memory::SegmentList& segments,
                           std::span<const std::byte> bytes);
  // Defers a completion or event of a queue pair with payloads here until Settle. False: there is
  // no room; the caller writes the completion at once, which keeps the order of the work queue.
  bool Defer(QueuePairHost& host, CompletionQueue& cq, const roce::Completion& completion,
             const CompletionOwner& owner, bool is_send);
  bool DeferEntry(QueuePairHost& host, CompletionQueue& cq, const roci_abi_cqe& entry,
                  bool solicited);
  bool DeferEvent(QueuePairHost& host, roce::QpEvent event);

  // Any thread. A program can delay it without limit (userfaultfd).
  void Copy() { failed_ = copies_.Flush(); }
  bool HasFailed() const { return !failed_.empty(); }
  // After Copy: marks the queue pairs of failed copies, writes the deferred completions and events
  // in order, and empties the batch.
  void Settle();
  // `host` is reset or destroyed: drops its completions and events. Receive WQEs return to their
  // shared receive queue.
  void Forget(const QueuePairHost& host);
  // XRC: the shared receive queue of `host` is being destroyed: drops its completions.
  void ForgetReceives(const QueuePairHost& host);

 private:
  // A GRH and the payload.
  static constexpr uint32_t kPlacesPerPacket = 2;
  static constexpr uint32_t kEventsPerPacket = 4;
  static constexpr uint32_t kMaxDeferred = 512;
  static constexpr size_t kFewBytes = 64;  // a GRH, or the result of an atomic

  enum class DeferredKind : uint8_t { kCompletion, kEntry, kEvent };
  struct Deferred {
    DeferredKind kind;
    bool is_send;         // a kCompletion of the send queue
    bool solicited;       // kEntry
    uint32_t places;      // payloads of the batch that come before it
    QueuePairHost* host;  // null: destroyed
    CompletionQueue* cq;
    CompletionOwner owner;
    roce::Completion completion;
    roci_abi_cqe entry;
    roce::QpEvent event;
  };
  struct Origin {
    QueuePairHost* host;  // null: destroyed
    roce::Psn psn;
    bool is_request;
  };
  bool HasRoomToDefer(const QueuePairHost& host, bool is_send);
  Deferred& NextDeferred(QueuePairHost& host, DeferredKind kind);
  static void MakeFlushed(Deferred& late);
  void Drop(Deferred& late);
  void NoteFailure(uint32_t place);
  void Report(Deferred& late);

  bool IsOfPayload(std::span<const std::byte> bytes) const {
    return bytes.data() >= payload_.data() &&
           bytes.data() + bytes.size() <= payload_.data() + payload_.size();
  }

  std::span<const std::byte> payload_;
  roce::Psn psn_;
  bool is_request_ = false;
  bool may_wait_ = false;
  std::span<const uint32_t> failed_;
  uint32_t places_ = 0;
  uint32_t places_before_ = 0;  // at BeginPacket
  uint32_t deferred_count_ = 0;
  // The last work queue whose deferred completions were flushed because there was no room.
  const QueuePairHost* flushed_ = nullptr;
  bool flushed_sends_ = false;
  memory::CopyBatch copies_;
  std::array<Origin, kMaxPlaces> origins_;
  std::array<Deferred, kMaxDeferred> deferred_;
  std::array<std::array<std::byte, kFewBytes>, kMaxPlaces> few_;  // by place
};

}  // namespace roci::dataplane
