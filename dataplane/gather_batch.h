// Frames of a round whose payload comes from apps' memory through system calls: staged for sending,
// but not complete before Finish.
#pragma once

#include <array>
#include <cstdint>

#include "memory/copy_batch.h"
#include "memory/segment.h"
#include "roce/frame.h"
#include "roce/packet.h"

struct rte_mbuf;

namespace roci::dataplane {

class QueuePair;

// One per lcore. The caller finishes the batch before it hands any staged frame to a port.
class GatherBatch {
 public:
  struct Frame {
    QueuePair* qp;
    rte_mbuf* buffer;
    std::byte* bytes;  // of the frame
    const roce::FrameTemplate* frame;
    roce::TxPacket packet;
    bool failed;
  };

  bool empty() const { return count_ == 0; }

  // Writes the headers to `bytes` and notes where the payload comes from. kTooManySegments: finish
  // and try again. kFault: as it says; nothing is noted.
  memory::MemoryStatus Add(QueuePair& qp, rte_mbuf* buffer, std::byte* bytes,
                           const roce::FrameTemplate& frame, const roce::TxPacket& packet,
                           const memory::SegmentList& payload) {
    if (count_ == kMaxFrames) return memory::MemoryStatus::kTooManySegments;
    std::byte* to = roce::StartFrame(frame, packet, 0, bytes);
    const memory::MemoryStatus status =
        copies_.AddOut(payload, {to, packet.payload_length}, count_);
    if (status == memory::MemoryStatus::kOk) {
      frames_[count_++] = {&qp, buffer, bytes, &frame, packet, false};
    }
    return status;
  }

  // Copies, completes the frames and empties the batch; calls fail(frame) for those whose payload
  // could not be read. `fail` must not add.
  template <class Fail>
  void Finish(Fail&& fail) {
    for (const uint32_t failed : copies_.Flush()) frames_[failed].failed = true;
    for (uint32_t i = 0; i < count_; ++i) {
      Frame& frame = frames_[i];
      if (frame.failed) [[unlikely]] {
        fail(frame);
      } else {
        roce::FinishFrame(*frame.frame, frame.packet, frame.bytes);
      }
    }
    count_ = 0;
  }

 private:
  static constexpr uint32_t kMaxFrames = 64;
  memory::CopyBatch copies_;
  uint32_t count_ = 0;
  std::array<Frame, kMaxFrames> frames_;
};

}  // namespace roci::dataplane
