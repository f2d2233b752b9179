// Checks the frames of one responder against IBTA vol 1: accepted requests, contents and order of
// answers, and that no answer is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "roce/packet.h"
#include "tests/sim/connection.h"
#include "tests/sim/expected_requests.h"

namespace roci::sim {

// Each call answers what is wrong, if anything.
class ResponderWatch {
 public:
  // `requests`: those of the peer.
  ResponderWatch(const Connection& connection, ExpectedRequests* requests)
      : connection_(connection), requests_(requests) {}

  // A request packet was handled; the queue pair says that it expects `expected_psn` now.
  std::optional<std::string> NoteRequest(const roce::Packet& packet, roce::Psn expected_psn);
  // A response goes out, whatever becomes of it.
  std::optional<std::string> NoteAnswer(const roce::Packet& packet);
  // The node has sent what it may, and nothing makes it wait.
  std::optional<std::string> NoteQuiet() const;
  // The queue pair has failed: no more is asked of it.
  void NoteFailure() { has_failed_ = true; }

 private:
  // A READ, atomic, FLUSH or ATOMIC WRITE whose answer is to be sent.
  struct Owed {
    Position begin, end;  // of the request
    Position start;       // where this answer begins: a READ may be asked for in part (9.7.5)
    Position next;
  };

  void Execute(const ExpectedRequest& request, const roce::Packet& packet);
  void Decline(const ExpectedRequest& request);
  void HandleGap();
  void HandleDuplicate(const ExpectedRequest& request, Position at);
  bool IsAnswerable(const ExpectedRequest& request) const;
  void Owe(const ExpectedRequest& request, Position start);
  std::optional<std::string> NoteAcknowledge(Position at, roce::Aeth aeth);
  std::optional<std::string> NoteNak(Position at, roce::Aeth aeth);
  std::optional<std::string> NoteResponse(Position at, const roce::Packet& packet);
  std::optional<std::string> CheckMessages(roce::Msn msn, Position least, Position most);

  static constexpr Position kNone = -1;
  const Connection connection_;
  ExpectedRequests* requests_;
  Position expected_ = 0;
  std::vector<Owed> owed_;            // in the order of the requests
  std::vector<Position> answerable_;  // ends of the latest requests with answers of their own
  Position ack_owed_ = kNone;
  Position nak_allowed_ = kNone;  // a sequence NAK for this one may be sent once
  Position rnr_allowed_ = kNone;
  bool nak_owed_ = false;
  bool rnr_owed_ = false;
  bool gap_reported_ = false;  // a NAK was decided on since the last packet in sequence
  bool has_failed_ = false;
};

}  // namespace roci::sim
