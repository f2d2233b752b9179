// See responder_watch.h.
#include "tests/sim/responder_watch.h"

#include <algorithm>

#include "roce/reorder_window.h"

namespace roci::sim {

std::optional<std::string> ResponderWatch::NoteRequest(const roce::Packet& packet,
                                                       roce::Psn expected_psn) {
  if (has_failed_) return std::nullopt;
  const Position at = requests_->Locate(packet.psn, expected_);
  const Position after = requests_->Locate(expected_psn, expected_);
  const ExpectedRequest* request = requests_->Find(at);
  if (request == nullptr) return "a request that was never posted arrives";
  if (after != expected_) {
    const Position end = request->is_read ? request->end : at + 1;
    if (at != expected_ || after != end) {
      return "expects " + std::to_string(after) + " after request packet " + std::to_string(at) +
             ", when it expected " + std::to_string(expected_) + " (9.7.4.1)";
    }
    expected_ = after;
    Execute(*request, packet);
  } else if (at == expected_) {
    Decline(*request);
  } else if (at > expected_) {
    HandleGap();
  } else {
    HandleDuplicate(*request, at, packet);
  }
  return std::nullopt;
}

void ResponderWatch::Execute(const ExpectedRequest& request, const roce::Packet& packet) {
  gap_reported_ = nak_owed_ = rnr_owed_ = false;
  rnr_allowed_ = kNone;
  if (request.is_answered) {
    answerable_.push_back(request.end);
    Owe(request, request.begin);
  } else if (packet.ack_request) {
    ack_owed_ = expected_ - 1;
  }
}

// The request is in sequence but not executed: no receive is posted, or a FLUSH before it is not
// durable yet.
void ResponderWatch::Decline(const ExpectedRequest& request) {
  if (requests_->TakesReceive(request, expected_)) {
    rnr_owed_ = gap_reported_ = true;
    rnr_allowed_ = expected_;
    nak_owed_ = false;
    nak_allowed_ = kNone;
  } else if (!gap_reported_) {
    gap_reported_ = true;
    nak_allowed_ = expected_;
  }
}

// One NAK for each gap (9.7.5.2).
void ResponderWatch::HandleGap() {
  if (gap_reported_) return;
  gap_reported_ = nak_owed_ = true;
  nak_allowed_ = expected_;
}

void ResponderWatch::NoteKept(const roce::Packet& packet, int change) {
  const Position at = requests_->Locate(packet.psn, expected_);
  if (change > 0) kept_.insert(at);
  if (change < 0) kept_.erase(at);
}

// SENDs and WRITEs are acknowledged again. The responses to other requests are sent again, as far
// back as the responder keeps those requests (9.7.5).
void ResponderWatch::HandleDuplicate(const ExpectedRequest& request, Position at,
                                     const roce::Packet& packet) {
  if (!request.is_answered) {
    ack_owed_ = at;
    return;
  }
  if (!IsAnswerable(request)) return;
  const Position end = request.is_read ? requests_->EndOfRead(at, packet) : request.end;
  if (selective_ && end != request.end) {
    if (replays_.size() < roce::kMostRereads) replays_.push_back({request.end, at, end, at});
  } else if (end == request.end) {
    Owe(request, at);
  }
}

// Of the requests with responses of their own, the responder keeps as many as may be outstanding.
bool ResponderWatch::IsAnswerable(const ExpectedRequest& request) const {
  const size_t kept = std::min<size_t>(answerable_.size(), MaxDestRdAtomic(connection_));
  const auto first = answerable_.end() - static_cast<ptrdiff_t>(kept);
  return std::find(first, answerable_.end(), request.end) != answerable_.end();
}

void ResponderWatch::Owe(const ExpectedRequest& request, Position start) {
  const auto place = std::find_if(owed_.begin(), owed_.end(),
                                  [&](const Owed& owed) { return owed.begin >= request.begin; });
  const Owed owed{request.begin, request.end, start, start};
  if (place != owed_.end() && place->begin == request.begin) {
    *place = owed;
  } else {
    owed_.insert(place, owed);
  }
  // A request that is no longer kept is not answered again.
  const uint8_t kept = MaxDestRdAtomic(connection_);
  if (answerable_.size() <= kept) return;
  const Position oldest = *(answerable_.end() - kept);
  std::erase_if(owed_, [oldest](const Owed& other) { return other.end < oldest; });
  std::erase_if(replays_, [oldest](const Replay& other) { return other.request_end < oldest; });
}

std::optional<std::string> ResponderWatch::NoteAnswer(const roce::Packet& packet) {
  const Position at = requests_->Locate(packet.psn, expected_);
  const std::string name = "answer " + std::to_string(at) + ": ";
  const roce::Aeth aeth = packet.ext.aeth;
  std::optional<std::string> wrong;
  // An unsolicited ACK before the first packet has the PSN before it.
  const bool is_report = at == -1 && packet.info->operation == roce::Operation::kAcknowledge &&
                         aeth.kind() == roce::AethKind::kAck;
  if (is_report) {
    wrong = CheckCredits(aeth);
  } else if (at < 0 || at > expected_) {
    wrong = "beyond what was executed";
  } else if (packet.info->operation != roce::Operation::kAcknowledge) {
    wrong = NoteResponse(at, packet);
  } else if (aeth.kind() == roce::AethKind::kAck) {
    wrong = NoteAcknowledge(at, aeth);
  } else if (packet.info->Has(roce::ExtHeader::kMissing)) {
    wrong = NoteSelectiveNak(at, packet);
  } else {
    wrong = NoteNak(at, aeth);
  }
  if (wrong) return name + *wrong;
  return std::nullopt;
}

std::optional<std::string> ResponderWatch::NoteAcknowledge(Position at, roce::Aeth aeth) {
  if (at == expected_) return "acknowledges what was not executed";
  // A request that is no longer kept was answered, else the requester would not have sent the next.
  const ExpectedRequest* request = requests_->Find(at);
  if (request->is_answered && IsAnswerable(*request)) {
    return "an ACK for a READ or atomic, which its response acknowledges (9.7.5)";
  }
  if (!owed_.empty() && owed_.front().next <= at) return "overtakes a response (9.7.5)";
  if (auto wrong = CheckCredits(aeth)) return wrong;
  if (at >= ack_owed_) ack_owed_ = kNone;
  return CheckMessages(aeth.msn, at + 1, expected_);
}

std::optional<std::string> ResponderWatch::NoteNak(Position at, roce::Aeth aeth) {
  const bool is_sequence = aeth.kind() == roce::AethKind::kNak && aeth.value() == 0;
  const bool is_not_ready = aeth.kind() == roce::AethKind::kRnrNak;
  if (!is_sequence && !is_not_ready) {
    has_failed_ = true;  // other tests check whether the request deserves it
    return std::nullopt;
  }
  const bool is_missing = !kept_.empty() && at == expected_ && !gap_reported_;
  if (is_sequence && at != nak_allowed_ && !is_missing) {
    return "a NAK for no gap, or a second one (9.7.5.2)";
  }
  if (is_not_ready) {
    if (at != rnr_allowed_) return "an RNR NAK for nothing, or a second one (9.7.5.2.8)";
    if (aeth.value() != connection_.min_rnr_timer) return "another timer than min_rnr_timer";
  }
  (is_sequence ? nak_allowed_ : rnr_allowed_) = kNone;
  gap_reported_ |= is_sequence && at == expected_;
  (is_sequence ? nak_owed_ : rnr_owed_) = false;
  if (!owed_.empty() && owed_.front().next < at) return "overtakes a response (9.7.5)";
  if (at > ack_owed_) ack_owed_ = kNone;
  return CheckMessages(aeth.msn, at, expected_);
}

// A selective NAK asks for packets that others have overtaken, and for none that is kept.
std::optional<std::string> ResponderWatch::NoteSelectiveNak(Position at,
                                                            const roce::Packet& packet) {
  if (at != expected_) return "a selective NAK for another packet than the next one";
  bool asks = false;
  for (uint32_t i = 0; i < roce::MissingEth::kPsns; ++i) {
    if (!packet.ext.missing.Has(i)) continue;
    asks = true;
    const std::string name = "asks for " + std::to_string(at + i);
    if (kept_.empty() || at + i > *kept_.rbegin()) return name + ", which nothing has overtaken";
    auto kept = kept_.upper_bound(at + i);
    if (kept == kept_.begin()) continue;
    const ExpectedRequest* request = requests_->Find(*--kept);
    if (at + i < (request->is_read ? request->end : *kept + 1)) return name + ", which is kept";
  }
  if (!asks) return "a selective NAK that asks for nothing";
  if (!owed_.empty() && owed_.front().next < at) return "overtakes a response (9.7.5)";
  if (at > ack_owed_) ack_owed_ = kNone;
  return CheckMessages(packet.ext.aeth.msn, at, expected_);
}

// READ and atomic responses come in the order of the requests. Those of a READ start at the
// requested PSN and have no gap (9.7.5).
std::optional<std::string> ResponderWatch::NoteResponse(Position at, const roce::Packet& packet) {
  if (!replays_.empty()) return NoteReplay(at, packet);
  if (owed_.empty()) return "nobody asks for it";
  Owed& owed = owed_.front();
  if (at != owed.next) return "instead of " + std::to_string(owed.next);
  const ExpectedRequest* request = requests_->Find(at);
  const bool is_atomic = packet.info->operation == roce::Operation::kAtomicAcknowledge;
  if (is_atomic != request->is_atomic) return "of another kind than the request";
  if (packet.payload.size() != requests_->ResponseBytes(*request, at)) return "payload length";
  const Position end = request->is_read ? owed.end : at + 1;
  if (packet.info->IsFirst() != (at == owed.start) || packet.info->IsLast() != (at + 1 == end)) {
    return "FIRST, MIDDLE or LAST";
  }
  ++owed.next;
  const Position message_end = owed.end;
  if (owed.next == end) owed_.erase(owed_.begin());
  if (at > ack_owed_) ack_owed_ = kNone;
  if (!packet.info->Has(roce::ExtHeader::kAeth)) return std::nullopt;
  if (packet.ext.aeth.kind() != roce::AethKind::kAck) return "its AETH is no ACK";
  if (auto wrong = CheckCredits(packet.ext.aeth)) return wrong;
  return CheckMessages(packet.ext.aeth.msn, message_end, message_end);
}

std::optional<std::string> ResponderWatch::NoteReplay(Position at, const roce::Packet& packet) {
  Replay& replay = replays_.front();
  if (at != replay.next) return "instead of a repeated " + std::to_string(replay.next);
  const ExpectedRequest* request = requests_->Find(at);
  if (packet.info->operation != roce::Operation::kReadResponse) return "of another kind";
  if (packet.payload.size() != requests_->ResponseBytes(*request, at)) return "payload length";
  if (packet.info->IsFirst() != (at == replay.start) ||
      packet.info->IsLast() != (at + 1 == replay.end)) {
    return "FIRST, MIDDLE or LAST of a part";
  }
  const Position message_end = replay.request_end;
  if (++replay.next == replay.end) replays_.pop_front();
  if (!packet.info->Has(roce::ExtHeader::kAeth)) return std::nullopt;
  if (packet.ext.aeth.kind() != roce::AethKind::kAck) return "its AETH is no ACK";
  if (auto wrong = CheckCredits(packet.ext.aeth)) return wrong;
  return CheckMessages(packet.ext.aeth.msn, message_end, message_end);
}

// The message sequence number counts complete messages (9.7.7.1): at least those before `least`, at
// most those before `most`.
std::optional<std::string> ResponderWatch::CheckMessages(roce::Msn msn, Position least,
                                                         Position most) {
  const uint32_t low = requests_->MessagesBefore(least);
  const uint32_t high = requests_->MessagesBefore(most);
  if (msn.value() >= low && msn.value() <= high) return std::nullopt;
  return "MSN " + std::to_string(msn.value()) + " instead of " + std::to_string(low) + " to " +
         std::to_string(high) + " (9.7.7.1)";
}

// Credits are the receives for messages that are not complete (9.7.7.2), rounded down.
std::optional<std::string> ResponderWatch::CheckCredits(roce::Aeth aeth) {
  if (receiver_ == nullptr) {
    if (aeth.value() == kNoCreditInformation) return std::nullopt;
    return "credits without a receive queue of its own (9.7.7.2)";
  }
  if (has_failed_) return std::nullopt;  // the receives have been flushed
  // A receive that the program has just posted is reported when it has called the queue pair.
  if (denied_ && !has_noted_receives_ && aeth.value() == 0) return std::nullopt;
  const size_t left = receiver_->recvs().size() - ReceivesTaken();
  const auto above = std::upper_bound(kCreditCounts.begin(), kCreditCounts.end(), left);
  const auto code = above - kCreditCounts.begin() - 1;
  denied_ = left == 0;
  has_noted_receives_ = false;
  if (aeth.value() == code) return std::nullopt;
  return "credit code " + std::to_string(aeth.value()) + " for " + std::to_string(left) +
         " receives (9.7.7.2)";
}

std::optional<std::string> ResponderWatch::NoteQuiet() {
  if (has_failed_) return std::nullopt;
  if (denied_ && has_noted_receives_ && receiver_->PostedReceives() != 0) {
    return "new receives are not reported (9.7.7.2)";
  }
  if (!owed_.empty()) {
    return "no answer to request packet " + std::to_string(owed_.front().start);
  }
  if (!replays_.empty()) return "no answer to a part of a READ";
  if (nak_owed_ || rnr_owed_) return "no NAK for packet " + std::to_string(expected_);
  if (ack_owed_ != kNone) return "no ACK for packet " + std::to_string(ack_owed_);
  return std::nullopt;
}

}  // namespace roci::sim
