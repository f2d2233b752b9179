// The early packets of one direction of a queue pair: which PSNs have arrived while a lower one is
// missing, and since when each gap before them exists.
#pragma once

#include <array>
#include <cstdint>

#include "roce/qp_context.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::roce {

class ReorderWindow {
 public:
  // How far ahead of the missing packet a packet may be, in PSNs. With a path MTU of 4096 these are
  // 840 us of traffic at 10 Gb/s.
  static constexpr uint32_t kPackets = 256;
  static constexpr uint32_t kMostGaps = 32;

  struct Gap {
    Psn first;
    uint32_t packets;
    TimeNs since;  // when a packet behind it arrived
  };
  enum class Arrival : uint8_t { kNew, kDuplicate, kNoRoom };

  void Clear() { *this = ReorderWindow(); }
  // Nothing has arrived ahead.
  bool is_empty() const { return due_ == end_; }

  // `psn`, which takes `packets` PSNs, has arrived while `due` is the next PSN to be handled. kNew:
  // it is noted. kNoRoom: it is too far ahead, there are too many gaps, or it contradicts packets
  // that have arrived; nothing changed.
  Arrival Note(Psn due, Psn psn, uint32_t packets, TimeNs now);
  // Everything before `due` has been handled. It never goes back.
  void Advance(Psn due);
  bool HasArrived(Psn psn) const;
  // The gap that begins with the next PSN to be handled; null: that PSN has arrived, or nothing
  // has.
  const Gap* Missing() const {
    return gap_count_ != 0 && gaps_[0].first == due_ ? &gaps_[0] : nullptr;
  }

 private:
  uint32_t OffsetOf(const Gap& gap) const { return StepsForward(due_, gap.first); }
  bool Open(uint32_t index, const Gap& gap);
  void Close(uint32_t index);
  Arrival Fill(uint32_t index, Psn psn, uint32_t packets);

  Psn due_;
  Psn end_;                 // behind the newest PSN that has arrived
  uint32_t gap_count_ = 0;  // all before end_, in order
  std::array<Gap, kMostGaps> gaps_{};
};

// How long kept packets wait for the retransmission of a lost one. A peer that sends none must not
// occupy memory for ever.
inline constexpr TimeNs kLongestKeptNs = 200 * kNsPerMs;

// How a queue pair tolerates packets that overtake each other; in storage of the queue pair's
// owner.
struct ReorderState {
  ReorderWindow requests;   // of the peer
  ReorderWindow responses;  // of the peer
  // When the missing packet counts as lost; after that, when the kept ones are given up. kNever:
  // none is kept.
  TimeNs request_deadline = kNever;
  TimeNs response_deadline = kNever;
  // An acknowledgement that covers a missing response came ahead of it; `acknowledged_end`: the end
  // of what the newest such one covers.
  bool acknowledged_ahead = false;
  Psn acknowledged_end;
  // The response for which response_deadline was set.
  Psn missing_response;
};

}  // namespace roci::roce
