// Frames whose payload is read from programs' memory by system calls. They are built at once and
// sent when the payload has been copied.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/on_shard.h"
#include "dataplane/qp/lane_state.h"
#include "memory/copy_batch.h"
#include "memory/segment.h"
#include "roce/frame.h"
#include "roce/packet.h"

struct rte_mbuf;

namespace roci::dataplane {

class QueuePair;

// A batch is collected, then copied, then settled. Nothing may be added while it is copied. Members
// are called on the lcore unless they say otherwise.
class GatherBatch {
 public:
  struct Frame {
    QueuePair* qp;  // null: destroyed
    rte_mbuf* buffer;
    std::byte* bytes;  // of the frame; null: the frame is complete
    roce::FrameShape shape;
    roce::TxPacket packet;
    LaneState* lane;
    uint32_t to_lcore;  // as DeviceLane::Stage has it
    bool fill_checksums = false;
    bool failed = false;
  };

  bool empty() const { return count_ == 0; }
  uint32_t size() const { return count_; }
  // Whether one more frame can be added, whatever its payload.
  bool HasRoom() const {
    return count_ < kMaxFrames &&
           copies_.size() + memory::SegmentList::kCapacity <= memory::CopyBatch::kMaxPieces;
  }

  // Adds a frame whose payload is to be copied to `to`. kFault: the payload cannot be read; nothing
  // is added.
  memory::MemoryStatus Add(const Frame& frame, std::byte* to, const memory::SegmentList& payload) {
    const memory::MemoryStatus status =
        copies_.AddOut(payload, {to, frame.packet.payload_length}, count_);
    if (status == memory::MemoryStatus::kOk) frames_[count_++] = frame;
    return status;
  }
  // Adds a complete frame that must not overtake those before it.
  void Hold(const Frame& frame) { frames_[count_++] = frame; }

  // Any thread. A program can delay it without limit (userfaultfd).
  void Copy() {
    const std::span<const uint32_t> failed = copies_.Flush();
    for (const uint32_t frame : failed) frames_[frame].failed = true;
    has_failed_ = !failed.empty();
  }
  bool HasFailed() const { return has_failed_; }
  // After Copy: completes the frames, empties the batch, and calls done(frame) for each in order.
  // Frames with `failed` have no payload. `done` must not add frames.
  template <class Done>
  void Settle(Done&& done) {
    const uint32_t count = count_;
    count_ = 0;
    for (uint32_t i = 0; i < count; ++i) {
      Frame& frame = frames_[i];
      if (frame.bytes != nullptr && !frame.failed) [[likely]] {
        roce::FinishFrame(frame.shape, frame.bytes);
      }
      done(frame);
    }
  }
  // Gives up the places that are reserved for the frames in their lanes.
  void ReleaseLanes(const OnShard& shard) {
    for (uint32_t i = 0; i < count_; ++i) frames_[i].lane->Unreserve(shard);
  }
  // `qp` is being destroyed: its frames are dropped.
  void Forget(const QueuePair& qp) {
    for (uint32_t i = 0; i < count_; ++i) {
      if (frames_[i].qp == &qp) frames_[i].qp = nullptr;
    }
  }

 private:
  static constexpr uint32_t kMaxFrames = 64;
  uint32_t count_ = 0;
  bool has_failed_ = false;
  memory::CopyBatch copies_;
  std::array<Frame, kMaxFrames> frames_;
};

}  // namespace roci::dataplane
