// Checks the frames of one responder against IBTA vol 1: accepted requests, contents and order of
// responses, and that no response is missing.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "roce/packet.h"
#include "tests/sim/connection.h"
#include "tests/sim/expected_requests.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

// Each call returns what is wrong, if anything.
class ResponderWatch {
 public:
  // `requests` are the peer's. `receiver` has the receive queue whose credits the answers give;
  // null: they give none. `selective`: it sends parts of READs again.
  ResponderWatch(const Connection& connection, ExpectedRequests* requests, const SimHost* receiver,
                 bool selective)
      : connection_(connection), requests_(requests), receiver_(receiver), selective_(selective) {}

  // A request packet was handled. The queue pair now expects `expected_psn`.
  std::optional<std::string> NoteRequest(const roce::Packet& packet, roce::Psn expected_psn);
  // A response is sent, which the link may still lose.
  std::optional<std::string> NoteAnswer(const roce::Packet& packet);
  // An early request is kept (1), or no longer (-1): the one before it may be lost.
  void NoteKept(const roce::Packet& packet, int change);
  // The program has called the queue pair after all receives posted so far.
  void NoteWork() {
    has_noted_receives_ = receiver_ != nullptr && receiver_->PostedReceives() != 0;
  }
  // The node has sent all that it may send, and nothing delays it.
  std::optional<std::string> NoteQuiet();
  // The queue pair has failed: further checks are skipped.
  void NoteFailure() { has_failed_ = true; }

 private:
  // A READ, atomic, FLUSH or ATOMIC WRITE whose response is not completely sent yet.
  struct Owed {
    Position begin, end;  // of the request
    Position start;       // of this response: a READ may be requested again in part (9.7.5)
    Position next;
  };
  // A part of a READ response that is sent again, before other answers.
  struct Replay {
    Position request_end;
    Position start, end;
    Position next;
  };

  void Execute(const ExpectedRequest& request, const roce::Packet& packet);
  void Decline(const ExpectedRequest& request);
  void HandleGap();
  void HandleDuplicate(const ExpectedRequest& request, Position at, const roce::Packet& packet);
  std::optional<std::string> NoteReplay(Position at, const roce::Packet& packet);
  bool IsAnswerable(const ExpectedRequest& request) const;
  void Owe(const ExpectedRequest& request, Position start);
  std::optional<std::string> NoteAcknowledge(Position at, roce::Aeth aeth);
  std::optional<std::string> NoteNak(Position at, roce::Aeth aeth);
  std::optional<std::string> NoteSelectiveNak(Position at, const roce::Packet& packet);
  std::optional<std::string> NoteResponse(Position at, const roce::Packet& packet);
  std::optional<std::string> CheckMessages(roce::Msn msn, Position least, Position most);
  std::optional<std::string> CheckCredits(roce::Aeth aeth);
  size_t ReceivesTaken() { return requests_->ReceivesOf(requests_->MessagesBefore(expected_)); }

  static constexpr Position kNone = -1;
  const Connection connection_;
  ExpectedRequests* requests_;
  const SimHost* receiver_;
  const bool selective_;
  bool has_noted_receives_ = false;
  bool denied_ = false;  // the last AETH told the peer that there are no receives
  Position expected_ = 0;
  std::set<Position> kept_;           // early requests
  std::vector<Owed> owed_;            // in the order of the requests
  std::deque<Replay> replays_;        // in the order in which they were asked for
  std::vector<Position> answerable_;  // ends of the latest requests with responses of their own
  Position ack_owed_ = kNone;
  Position nak_allowed_ = kNone;  // one sequence NAK may be sent for this position
  Position rnr_allowed_ = kNone;
  bool nak_owed_ = false;
  bool rnr_owed_ = false;
  bool gap_reported_ = false;  // a NAK is due or was sent since the last packet in sequence
  bool has_failed_ = false;
};

}  // namespace roci::sim
