// The early packets of one direction of a queue pair: which PSNs have arrived while a lower one is
// missing, and since when each gap before them exists.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "roce/headers.h"
#include "roce/qp_context.h"
#include "roce/repeat_set.h"
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
    TimeNs since;  // when a packet behind it arrived, or last a part of it
    // Selective repeat only.
    TimeNs asked_at = kNever;  // when the peer was first asked for it
    TimeNs ask_again_at = 0;   // once it was asked for
    uint32_t asks = 0;         // how often it was asked for
    bool is_wanted = false;    // TakeWanted has not returned it yet
    bool is_coming = false;    // a part of it has arrived since it was asked for
  };
  enum class Arrival : uint8_t { kNew, kDuplicate, kNoRoom };

  void Clear() { *this = ReorderWindow(); }
  Psn due() const { return due_; }  // of the last call with one
  // Nothing has arrived ahead.
  bool is_empty() const { return due_ == end_; }

  // `psn`, which takes `packets` PSNs, has arrived while `due` is the next PSN to be handled. kNew:
  // it is noted. kNoRoom: it is too far ahead, there are too many gaps, or it contradicts packets
  // that have arrived; nothing changed.
  Arrival Note(Psn due, Psn psn, uint32_t packets, TimeNs now);
  // Everything before `end` is to arrive, as a packet behind it shows: what has not counts as a
  // gap. It may be noted in part only.
  void Expect(Psn due, Psn end, TimeNs now);
  // Everything before `due` has been handled. It never goes back.
  void Advance(Psn due);
  bool HasArrived(Psn psn) const;
  // The gap that begins with the next PSN to be handled; null: that PSN has arrived, or nothing
  // has.
  const Gap* Missing() const {
    return gap_count_ != 0 && gaps_[0].first == due_ ? &gaps_[0] : nullptr;
  }

  // Selective repeat: the peer is asked for a gap that is `wait_ns` old, and again when the answer
  // is overdue: `repeat_ns` after the first time, then after twice as long each time.
  // The earliest time at which a gap is to be asked for; kNever: there is no gap.
  TimeNs NextAsk(uint64_t wait_ns) const;
  // Marks the gaps that are to be asked for at `now` as wanted.
  void Ask(TimeNs now, uint64_t wait_ns, uint64_t repeat_ns);
  // A part of the oldest gap, which was asked for, has arrived. The rest is on its way: it is to be
  // asked for again at `again_at` at the earliest, and the earlier times do not count.
  void NoteComing(TimeNs now, TimeNs again_at);
  bool HasWanted() const;
  // The PSNs of the wanted gaps, by their distance from the next PSN to be handled. No gap is
  // wanted afterwards.
  MissingEth TakeWanted();

 private:
  uint32_t OffsetOf(const Gap& gap) const { return StepsForward(due_, gap.first); }
  std::span<Gap> gaps() { return {gaps_.data(), gap_count_}; }
  std::span<const Gap> gaps() const { return {gaps_.data(), gap_count_}; }
  bool Open(uint32_t index, const Gap& gap);
  void Close(uint32_t index);
  Arrival Fill(uint32_t index, Psn psn, uint32_t packets);

  Psn due_;
  Psn end_;                 // behind the newest PSN that has arrived
  uint32_t gap_count_ = 0;  // all before end_, in order
  std::array<Gap, kMostGaps> gaps_{};
};

// How long kept packets wait for the retransmission of a lost one. Bounds the time for which a
// silent peer can occupy memory.
inline constexpr TimeNs kLongestKeptNs = 200 * kNsPerMs;

// Selective repeat: how long the peer takes from a NAK to the packets that it asks for, before that
// was measured.
inline constexpr TimeNs kFirstRepeatNs = kNsPerMs;
// How often the peer is asked for a packet before it is told to go back.
inline constexpr uint32_t kMostAsks = 3;

// Selective repeat: how a peer answers requests for missing packets.
class AskedPeer {
 public:
  // A missing packet arrived `took_ns` after the first of `asks` requests for it.
  void NoteAnswer(uint64_t took_ns, uint32_t asks) {
    has_answered_ |= asks <= kMostAsks;
    // A moving average: each answer counts an eighth, the first all.
    usual_ns_ = usual_ns_ == kFirstRepeatNs ? took_ns : (7 * usual_ns_ + took_ns) / 8;
  }
  // The peer did not answer kMostAsks requests for a packet.
  void NoteSilence() { is_deaf_ = !has_answered_; }
  // It has never answered, so it is told to go back at once.
  bool is_deaf() const { return is_deaf_; }
  // When an answer is overdue, with a margin for packets that others overtake.
  uint64_t AnswerNs(uint64_t wait_ns) const { return usual_ns_ + wait_ns; }

 private:
  uint64_t usual_ns_ = kFirstRepeatNs;
  bool has_answered_ = false;
  bool is_deaf_ = false;
};

// READ responses to be repeated: those from `start` to `end` of a ResponderResource, of which
// `next` is to be sent next.
struct Reread {
  uint32_t resource;
  uint32_t start;
  uint32_t next;
  uint32_t end;
};
inline constexpr uint32_t kMostRereads = 32;

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
  // Selective repeat: the peer as one that is asked for requests, and for responses.
  AskedPeer requester;
  AskedPeer responder;
  // As a requester: the request packets that the peer asks for, the responses to ask for, and where
  // sending goes on afterwards.
  RepeatSet repeats;
  RepeatSet rereads;
  Psn resume;
  // As a responder: the READ responses to be repeated, oldest first.
  std::array<Reread, kMostRereads> replays;
  uint32_t replay_count = 0;
  Psn narrowed_until;  // with congestion control: losses before it have narrowed the window
};

}  // namespace roci::roce
