// Checks the frames of one requester against IBTA vol 1: order, window, fences, retries and timers.
// Uses only the posted requests and the peer's frames, not the state of the implementation.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "roce/packet.h"
#include "roce/work.h"
#include "tests/sim/connection.h"
#include "tests/sim/expected_requests.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

// Each call returns what is wrong, if anything.
class RequesterWatch {
 public:
  // `selective`: it repeats what selective NAKs ask for; otherwise it ignores them.
  RequesterWatch(const Connection& connection, ExpectedRequests* requests, const SimHost* host,
                 bool selective)
      : connection_(connection), requests_(requests), host_(host), selective_(selective) {}

  // A request packet is sent, which the link may still lose.
  std::optional<std::string> NoteRequest(roce::TimeNs now, const roce::Packet& packet);
  // A response was handled.
  std::optional<std::string> NoteResponse(roce::TimeNs now, const roce::Packet& packet);
  // An early response is kept (1), is dropped since it is kept already (0), or is kept no
  // longer (-1). The one before it may be lost.
  void NoteKept(roce::TimeNs now, const roce::Packet& packet, int change);
  // The node is in RTS and has sent all that it may send now.
  std::optional<std::string> NoteQuiet(roce::TimeNs now);
  // New completions of the send queue.
  std::optional<std::string> NoteCompletions(roce::TimeNs now);

 private:
  std::optional<std::string> CheckRewind(roce::TimeNs now, Position at);
  std::optional<std::string> CheckStart(const ExpectedRequest& request);
  std::optional<std::string> CheckCredit(const ExpectedRequest& request);
  void TakeCredits(roce::Aeth aeth, bool is_dropped);
  std::optional<std::string> CheckFailure(roce::TimeNs now, roce::CompletionStatus status) const;
  bool Acknowledge(roce::TimeNs now, Position end);
  void Progress(roce::TimeNs now, Position end);
  bool HandleInWindow(roce::TimeNs now, Position at, const roce::Packet& packet);
  void HandleNak(roce::TimeNs now, Position at, roce::Aeth aeth);
  void HandleSelectiveNak(roce::TimeNs now, Position at, const roce::Packet& packet);
  bool IsProbe(Position at);
  void SeekRepeat(Position from);
  bool IsReread(const ExpectedRequest& request, Position at, Position end) const;
  std::optional<std::string> NoteReread(roce::TimeNs now, const ExpectedRequest& request,
                                        Position at, Position end);
  void TakeGoBack(Position at);
  void HandleRnrNak(roce::TimeNs now, uint8_t code);
  void GoBack();
  bool IsLate(roce::TimeNs now) const;
  roce::TimeNs timeout_ns() const;
  bool MayBeHeldBack() const {
    return connection_.controls_congestion || connection_.rate_limit_kbps != 0;
  }

  const Connection connection_;
  ExpectedRequests* requests_;
  const SimHost* host_;
  const bool selective_;

  Position unacknowledged_ = 0;  // the oldest one
  Position next_ = 0;            // must be sent next, unless a timeout comes first
  Position sent_end_ = 0;        // end of all requests, and READ responses, sent so far
  std::set<Position> repeats_;   // selective repeat: all that must be sent again
  Position resume_ = 0;          // then sending goes on here
  // What comes next if a repeated request for the oldest missing response has begun a go-back-N.
  std::set<Position> may_go_back_to_;
  bool may_recover_ = false;  // it was one, so that further NAKs may report the same loss
  bool may_rewind_ = false;   // such a NAK has come
  bool probed_tail_ = false;  // the first timeout has repeated the last packet alone
  Position shown_until_ = 0;  // responses before it are missing, as selective NAKs show
  roce::TimeNs may_go_back_since_ = 0;
  Position asked_until_ = 0;  // end of the last packet with AckReq since the last go-back
  uint32_t since_ack_request_ = 0;
  roce::TimeNs timer_start_ = roce::kNever;  // of the acknowledgement timer; kNever: off
  roce::TimeNs rnr_end_ = roce::kNever;      // of the wait after an RNR NAK; kNever: none
  uint32_t retries_ = 0;                     // since the last progress
  uint32_t possible_retries_ = 0;            // requests that may have begun a go-back since then
  uint32_t rnr_retries_ = 0;
  bool recovering_ = false;          // after a go-back: further NAKs report the same loss
  bool must_send_ = false;           // after a go-back: the retransmission must follow
  bool exhausted_ = false;           // learned of a loss without a retry left
  bool rnr_exhausted_ = false;       // got an RNR NAK without a retry left
  bool is_refused_ = false;          // got a fatal NAK
  bool obeys_credits_ = false;       // once the peer has given some (9.7.7.2)
  uint32_t credit_limit_ = 0;        // most receives that requests may take then
  Position probe_ = -1;              // the request that was started without a credit
  int kept_ = 0;                     // early responses
  bool kept_since_request_ = false;  // some were, after the last request packet
  size_t completions_ = 0;
  bool has_failed_ = false;
};

}  // namespace roci::sim
