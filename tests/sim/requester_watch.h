// Checks the frames of one requester against IBTA vol 1: order, window, fences, retries and timers.
// Uses the posted requests and the peer's frames, never the state of the implementation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "roce/packet.h"
#include "roce/work.h"
#include "tests/sim/connection.h"
#include "tests/sim/expected_requests.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

// Each call answers what is wrong, if anything.
class RequesterWatch {
 public:
  RequesterWatch(const Connection& connection, ExpectedRequests* requests, const SimHost* host)
      : connection_(connection), requests_(requests), host_(host) {}

  // A request packet goes out, whatever becomes of it.
  std::optional<std::string> NoteRequest(roce::TimeNs now, const roce::Packet& packet);
  // A response was handled.
  std::optional<std::string> NoteResponse(roce::TimeNs now, const roce::Packet& packet);
  // The node in RTS has sent what it may.
  std::optional<std::string> NoteQuiet(roce::TimeNs now);
  // New completions of the send queue.
  std::optional<std::string> NoteCompletions(roce::TimeNs now);

 private:
  std::optional<std::string> CheckRewind(roce::TimeNs now, Position at);
  std::optional<std::string> CheckStart(const ExpectedRequest& request);
  std::optional<std::string> CheckFailure(roce::TimeNs now, roce::CompletionStatus status) const;
  bool Acknowledge(roce::TimeNs now, Position end);
  void Progress(roce::TimeNs now, Position end);
  void HandleAcknowledge(roce::TimeNs now, Position at, roce::Aeth aeth);
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

  Position unacknowledged_ = 0;  // the oldest one
  Position next_ = 0;            // what has to be sent next, but for a timeout
  Position sent_end_ = 0;        // behind everything that was ever sent or asked for
  Position asked_until_ = 0;     // behind the last packet with AckReq since it went back
  uint32_t since_ack_request_ = 0;
  roce::TimeNs timer_start_ = roce::kNever;  // of the acknowledgement timer; kNever: off
  roce::TimeNs rnr_end_ = roce::kNever;      // of the wait after an RNR NAK; kNever: none
  uint32_t retries_ = 0;                     // since something was acknowledged
  uint32_t rnr_retries_ = 0;
  bool recovering_ = false;     // went back; more NAKs are of the same loss
  bool must_send_ = false;      // has just gone back
  bool exhausted_ = false;      // was told of a loss without a retry left
  bool rnr_exhausted_ = false;  // was told "not ready" without a retry left
  bool is_refused_ = false;     // got a fatal NAK
  size_t completions_ = 0;
  bool has_failed_ = false;
};

}  // namespace roci::sim
