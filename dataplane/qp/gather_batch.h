// Frames whose payload comes from apps' memory through system calls: built, but not sent before it
// is there.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/qp/lane_state.h"
#include "memory/copy_batch.h"
#include "memory/segment.h"
#include "roce/frame.h"
#include "roce/packet.h"

struct rte_mbuf;

namespace roci::dataplane {

class QueuePair;

// Collected, then copied, then settled. While it is copied nothing may be added. Members are called
// on the lcore unless they say otherwise.
class GatherBatch {
 public:
  struct Frame {
    QueuePair* qp;  // null: it is gone
    rte_mbuf* buffer;
    std::byte* bytes;  // of the frame; null: it is complete
    roce::FrameShape shape;
    roce::TxPacket packet;
    LaneState* lane;
    uint32_t to_lcore;  // as DeviceLane::Stage has it
    bool failed = false;
  };

  bool empty() const { return count_ == 0; }
  uint32_t size() const { return count_; }
  // Whether any one frame can be added.
  bool HasRoom() const {
    return count_ < kMaxFrames &&
           copies_.size() + memory::SegmentList::kCapacity <= memory::CopyBatch::kMaxPieces;
  }

  // Notes where the payload of `frame` comes from, and that it is to be put at `to`. kFault: as it
  // says; nothing is noted.
  memory::MemoryStatus Add(const Frame& frame, std::byte* to, const memory::SegmentList& payload) {
    const memory::MemoryStatus status =
        copies_.AddOut(payload, {to, frame.packet.payload_length}, count_);
    if (status == memory::MemoryStatus::kOk) frames_[count_++] = frame;
    return status;
  }
  // A frame that must not overtake those before it.
  void Hold(const Frame& frame) { frames_[count_++] = frame; }

  // Any thread. May take as long as the program likes (a page fault that it handles itself).
  void Copy() {
    const std::span<const uint32_t> failed = copies_.Flush();
    for (const uint32_t frame : failed) frames_[frame].failed = true;
    has_failed_ = !failed.empty();
  }
  bool HasFailed() const { return has_failed_; }
  // After Copy: completes the frames, empties the batch, and calls done(frame) for each, in order;
  // those with `failed` have no payload. `done` must not add.
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
  // Frames keep their places in the lanes no longer.
  void ReleaseLanes() {
    for (uint32_t i = 0; i < count_; ++i) frames_[i].lane->Unreserve();
  }
  // `qp` is about to go, and its frames with it.
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
