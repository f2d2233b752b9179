// See requester_watch.h.
#include "tests/sim/requester_watch.h"

#include <algorithm>
#include <array>

namespace roci::sim {
namespace {

using roce::CompletionStatus;
using roce::kNever;
using roce::TimeNs;

// RNR NAK timer codes in units of 10 microseconds (IBTA vol 1, 9.7.5.2.8, table 45).
constexpr std::array<uint32_t, 32> kRnrTens = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

// Tolerance for the end of an RNR wait: the simulation handles that event exactly when it is due.
constexpr TimeNs kSlackNs = 1'000;
constexpr uint8_t kForEver = 7;

}  // namespace

// 4.096 us * 2^timeout (9.7.6.1.3).
TimeNs RequesterWatch::timeout_ns() const {
  return connection_.timeout == 0 ? kNever : TimeNs{4096} << connection_.timeout;
}

std::optional<std::string> RequesterWatch::NoteRequest(TimeNs now, const roce::Packet& packet) {
  const Position at = requests_->Locate(packet.psn, unacknowledged_);
  const ExpectedRequest* request = requests_->Find(at);
  if (at < 0 || request == nullptr) return "a request packet whose PSN is no work request's";
  if (auto wrong = requests_->Compare(*request, at, packet, selective_)) {
    return "request packet " + std::to_string(at) + ": " + *wrong;
  }
  if (rnr_end_ != kNever) {
    if (now < rnr_end_) return "a request before the wait after an RNR NAK is over (9.7.5.2.8)";
    rnr_end_ = kNever;
  }
  const Position end = request->is_read ? requests_->EndOfRead(at, packet) : at + 1;
  if (IsReread(*request, at, end)) return NoteReread(now, *request, at, end);
  const bool may_go_on = may_go_back_to_.contains(at);
  may_go_back_to_.clear();
  if (may_go_on && at != next_) {
    TakeGoBack(at);
  } else if (may_go_on) {
    may_go_back_to_.insert(end);
  }
  if (at != next_) {
    if (auto wrong = CheckRewind(now, at)) return wrong;
  }
  if (request->is_read && end != request->end) return "a part of a READ that nothing shows missing";
  if (at - unacknowledged_ >= connection_.limits.window_packets) return "beyond the window";
  if (at == request->begin && at == sent_end_) {
    if (auto wrong = CheckStart(*request)) return wrong;
    if (auto wrong = CheckCredit(*request)) return wrong;
  }
  if (probe_ == request->begin && unacknowledged_ <= probe_ && at != probe_) {
    return "a second packet of a request without a credit (9.7.7.2)";
  }
  since_ack_request_ = packet.ack_request ? 0 : since_ack_request_ + 1;
  if (since_ack_request_ >= connection_.limits.ack_every_packets) return "AckReq is missing";
  next_ = request->is_read ? request->end : at + 1;
  sent_end_ = std::max(sent_end_, next_);
  if (packet.ack_request) asked_until_ = repeats_.empty() ? next_ : std::max(asked_until_, next_);
  if (next_ - unacknowledged_ >= connection_.limits.window_packets &&
      asked_until_ <= unacknowledged_) {
    return "the window is full, and no packet in it asks for an ACK";
  }
  must_send_ = false;
  kept_since_request_ = kept_ != 0;
  if (timer_start_ == kNever) timer_start_ = now;
  if (!repeats_.empty()) SeekRepeat(next_);
  return std::nullopt;
}

// With selective repeat, responses that others have overtaken are asked for alone.
bool RequesterWatch::IsReread(const ExpectedRequest& request, Position at, Position end) const {
  if (!selective_ || !request.is_answered || (kept_ == 0 && at >= shown_until_)) return false;
  const bool is_part = request.is_read && end != request.end;
  return at >= unacknowledged_ && at < sent_end_ && (at != next_ || is_part);
}

std::optional<std::string> RequesterWatch::NoteReread(TimeNs now, const ExpectedRequest& request,
                                                      Position at, Position end) {
  if (at - unacknowledged_ >= connection_.limits.window_packets) return "beyond the window";
  if (timer_start_ == kNever) timer_start_ = now;
  const bool may_go_on = may_go_back_to_.erase(at) != 0;
  if (at == unacknowledged_) may_go_back_since_ = now;
  if ((at == unacknowledged_ || may_go_on) && end == request.end) {
    may_go_back_to_.insert(end);
    may_recover_ = true;
    ++possible_retries_;
  }
  return std::nullopt;
}

// Notes that the requester went back N. `at` is the second packet of its repeats.
void RequesterWatch::TakeGoBack(Position at) {
  ++retries_;
  GoBack();
  must_send_ = false;
  next_ = at;
  timer_start_ = may_go_back_since_;
}

// After the last packet to be repeated, sending goes on where it was.
void RequesterWatch::SeekRepeat(Position from) {
  repeats_.erase(repeats_.begin(), repeats_.lower_bound(from));
  next_ = repeats_.empty() ? std::max(resume_, unacknowledged_) : *repeats_.begin();
}

// The timer runs at most four times as long as requested (9.7.6.1.3).
bool RequesterWatch::IsLate(TimeNs now) const {
  const TimeNs timeout = timeout_ns();
  if (timer_start_ == kNever || timeout == kNever) return false;
  const TimeNs start = may_recover_ ? std::max(timer_start_, may_go_back_since_) : timer_start_;
  return now > start + 4 * timeout;
}

// Go-back-N without a NAK requires a timeout, after at least the requested time (9.7.6.1.3).
std::optional<std::string> RequesterWatch::CheckRewind(TimeNs now, Position at) {
  const std::string name = "request packet " + std::to_string(at);
  const bool is_probe = IsProbe(at);
  if ((at != unacknowledged_ && !is_probe) || at == sent_end_) {
    return name + " instead of " + std::to_string(next_) + ", unacknowledged from " +
           std::to_string(unacknowledged_);
  }
  const TimeNs timeout = timeout_ns();
  const bool gave_up_missing =
      (kept_since_request_ && !recovering_ && rnr_end_ == kNever) || may_rewind_;
  if (gave_up_missing) {
    // A response that others have overtaken counts as lost, as for an implied NAK (9.7.5). It may
    // have come since.
  } else if (timer_start_ == kNever || timeout == kNever || now - timer_start_ < timeout) {
    return name + " again without a NAK and before the timeout";
  }
  if (IsLate(now)) return name + " again after more than four timeouts (9.7.6.1.3)";
  const bool answers_probe = may_rewind_ && probed_tail_;  // the probe was a retry for both
  if (!answers_probe && retries_ == connection_.retry_count) {
    return "more retries than retry_cnt (9.9.2)";
  }
  if (!answers_probe) ++retries_;
  GoBack();
  if (!is_probe) return std::nullopt;
  repeats_ = {at};
  resume_ = sent_end_;
  // A NAK that is not selective makes it go back.
  probed_tail_ = may_recover_ = true;
  return std::nullopt;
}

// With selective repeat, the first timeout repeats the last packet of a SEND or WRITE, so that the
// peer asks for what is missing before it.
bool RequesterWatch::IsProbe(Position at) {
  return selective_ && retries_ == 0 && at == sent_end_ - 1 && at != unacknowledged_ &&
         !requests_->Find(at)->is_answered;
}

// Checks the limit of READs and atomics (9.7.3) and the fence (10.8.3.3).
std::optional<std::string> RequesterWatch::CheckStart(const ExpectedRequest& request) {
  if (!request.fence && !request.is_answered) return std::nullopt;
  uint32_t outstanding = 0;
  const size_t slot = requests_->SlotOf(&request);
  for (size_t i = slot; i != 0 && requests_->At(i - 1).end > unacknowledged_; --i) {
    outstanding += requests_->At(i - 1).is_answered ? 1 : 0;
  }
  const std::string name = "request " + std::to_string(slot);
  if (request.fence && outstanding != 0) return name + " starts in spite of its fence";
  if (request.is_answered && outstanding >= connection_.max_rd_atomic) {
    return name + ": more than max_rd_atomic outstanding";
  }
  return std::nullopt;
}

// A request without a credit is sent alone, and only its first packet at first (9.7.7.2).
std::optional<std::string> RequesterWatch::CheckCredit(const ExpectedRequest& request) {
  if (!obeys_credits_ || !requests_->TakesCredit(request)) return std::nullopt;
  if (requests_->ReceivesOf(requests_->MessagesBefore(request.end)) <= credit_limit_) {
    return std::nullopt;
  }
  probe_ = request.begin;
  if (request.begin == unacknowledged_) return std::nullopt;
  return "request " + std::to_string(requests_->SlotOf(&request)) + " without a credit (9.7.7.2)";
}

// The requester may take the credits of a response that it drops, or that is older than others, but
// need not obey them.
void RequesterWatch::TakeCredits(roce::Aeth aeth, bool is_dropped) {
  if (aeth.value() == kNoCreditInformation) {
    obeys_credits_ = false;
    credit_limit_ = 0;
    probe_ = -1;
    return;
  }
  obeys_credits_ |= !is_dropped;
  const uint32_t limit = requests_->ReceivesOf(aeth.msn.value()) + kCreditCounts[aeth.value()];
  if (limit > credit_limit_) probe_ = -1;
  credit_limit_ = std::max(limit, credit_limit_);
}

std::optional<std::string> RequesterWatch::NoteResponse(TimeNs now, const roce::Packet& packet) {
  const Position at = requests_->Locate(packet.psn, unacknowledged_);
  const bool is_stale = at < unacknowledged_ || at >= sent_end_;  // a duplicate or a ghost
  const bool is_acknowledge = packet.info->operation == roce::Operation::kAcknowledge;
  const bool is_in_order = !is_stale && HandleInWindow(now, at, packet);
  if (packet.info->Has(roce::ExtHeader::kAeth) && packet.ext.aeth.kind() == roce::AethKind::kAck &&
      !(is_stale && packet.ext.aeth.value() == kNoCreditInformation)) {
    const bool is_old = packet.ext.aeth.msn.value() < requests_->MessagesBefore(unacknowledged_);
    TakeCredits(packet.ext.aeth, is_old || (!is_in_order && !(is_stale && is_acknowledge)));
  }
  return std::nullopt;
}

// It acknowledges the requests before the first one whose response is missing.
void RequesterWatch::NoteKept(TimeNs now, const roce::Packet& packet, int change) {
  kept_ += change;
  kept_since_request_ |= kept_ != 0;
  const Position at = requests_->Locate(packet.psn, unacknowledged_);
  Position reached = unacknowledged_;
  for (; change >= 0 && reached < at; reached = requests_->Find(reached)->end) {
    if (requests_->Find(reached)->is_answered) break;
  }
  if (reached != unacknowledged_) Progress(now, reached);
}

// False: the packet shows a gap.
bool RequesterWatch::HandleInWindow(TimeNs now, Position at, const roce::Packet& packet) {
  if (packet.info->operation == roce::Operation::kAcknowledge) {
    if (packet.info->Has(roce::ExtHeader::kMissing)) {
      if (selective_) HandleSelectiveNak(now, at, packet);
      return true;
    }
    if (packet.ext.aeth.kind() == roce::AethKind::kAck) return Acknowledge(now, at + 1);
    HandleNak(now, at, packet.ext.aeth);
    return true;
  }
  if (!Acknowledge(now, at)) return false;
  const ExpectedRequest* request = requests_->Find(at);
  const bool is_atomic = packet.info->operation == roce::Operation::kAtomicAcknowledge;
  if (at != unacknowledged_ || !request->is_answered || request->is_atomic != is_atomic) {
    return false;
  }
  Progress(now, at + 1);
  return true;
}

void RequesterWatch::HandleNak(TimeNs now, Position at, roce::Aeth aeth) {
  const bool is_sequence_nak = aeth.kind() == roce::AethKind::kNak && aeth.value() == 0;
  if (aeth.kind() == roce::AethKind::kNak && !is_sequence_nak) {
    is_refused_ = true;
    return;
  }
  if (!Acknowledge(now, at) || at != unacknowledged_) return;
  if (!is_sequence_nak) {
    HandleRnrNak(now, aeth.value());
  } else if (may_recover_ && rnr_end_ == kNever) {
    may_rewind_ = true;
  } else if (!recovering_ && rnr_end_ == kNever) {
    exhausted_ = retries_ == connection_.retry_count;
    ++retries_;
    GoBack();
  }
}

// What the peer asks for is sent again before anything else, unless all is sent again anyway.
void RequesterWatch::HandleSelectiveNak(TimeNs now, Position at, const roce::Packet& packet) {
  Position reached = unacknowledged_;
  while (reached < at && !requests_->Find(reached)->is_answered) {
    reached = std::min(at, requests_->Find(reached)->end);
  }
  if (reached != unacknowledged_) Progress(now, reached);
  if (reached != at) shown_until_ = std::max(shown_until_, at);
  if (rnr_end_ != kNever) return;
  if (repeats_.empty() && next_ == unacknowledged_) return;
  if (repeats_.empty()) resume_ = next_;
  repeats_.erase(repeats_.begin(), repeats_.lower_bound(at));  // have arrived
  for (uint32_t i = 0; i < roce::MissingEth::kPsns; ++i) {
    if (packet.ext.missing.Has(i) && at + i < sent_end_) repeats_.insert(at + i);
  }
  if (repeats_.empty()) {
    next_ = resume_;
    return;
  }
  next_ = *repeats_.begin();
  must_send_ |= next_ == unacknowledged_;
}

void RequesterWatch::HandleRnrNak(TimeNs now, uint8_t code) {
  if (rnr_end_ != kNever) return;  // a duplicate of the RNR NAK
  if (connection_.rnr_retry != kForEver) {
    rnr_exhausted_ = rnr_retries_ == connection_.rnr_retry;
    ++rnr_retries_;
  }
  retries_ = 0;
  GoBack();
  must_send_ = false;
  rnr_end_ = now + TimeNs{kRnrTens[code]} * 10'000;
}

// Acknowledges everything before `end`, up to the first request that needs a response of its own.
// False: there is one, so its response was lost, which counts as a NAK (9.7.5).
bool RequesterWatch::Acknowledge(TimeNs now, Position end) {
  Position reached = unacknowledged_;
  bool is_complete = true;
  while (reached < end) {
    const ExpectedRequest* request = requests_->Find(reached);
    is_complete = !request->is_answered;
    if (!is_complete) break;
    reached = std::min(end, request->end);
  }
  if (reached != unacknowledged_) Progress(now, reached);
  if (!is_complete && may_recover_) {
    may_rewind_ = true;
  } else if (!is_complete && !recovering_ && rnr_end_ == kNever) {
    exhausted_ = retries_ == connection_.retry_count;
    ++retries_;
    GoBack();
  }
  return is_complete;
}

void RequesterWatch::Progress(TimeNs now, Position end) {
  unacknowledged_ = end;
  if (repeats_.empty()) {
    next_ = std::max(next_, end);
  } else {
    SeekRepeat(end);
  }
  may_recover_ = may_rewind_ = probed_tail_ = false;
  const auto acknowledged = may_go_back_to_.lower_bound(end);
  const bool may_go_on = acknowledged != may_go_back_to_.begin();
  may_go_back_to_.erase(may_go_back_to_.begin(), acknowledged);
  if (may_go_on) may_go_back_to_.insert(end);
  retries_ = possible_retries_ = rnr_retries_ = 0;
  recovering_ = must_send_ = false;
  rnr_end_ = kNever;
  timer_start_ = next_ == end ? kNever : now;
}

void RequesterWatch::GoBack() {
  repeats_.clear();
  may_recover_ = may_rewind_ = probed_tail_ = false;
  next_ = asked_until_ = unacknowledged_;
  recovering_ = true;
  must_send_ = true;
  timer_start_ = kNever;
}

std::optional<std::string> RequesterWatch::NoteQuiet(TimeNs now) {
  if (is_refused_) return "in RTS after a fatal NAK";
  if (exhausted_) return "more retries than retry_cnt (9.9.2)";
  if (rnr_exhausted_) return "more RNR retries than rnr_retry (9.9.2)";
  if (must_send_ && !MayBeHeldBack()) return "nothing is sent again after a NAK";
  if (IsLate(now)) return "no retransmission within four timeouts (9.7.6.1.3)";
  if (rnr_end_ != kNever && now > rnr_end_ + kSlackNs && !MayBeHeldBack()) {
    return "the wait after an RNR NAK does not end";
  }
  // An acknowledged request must have completed.
  const size_t slot = host_->send_completions().size();
  if (slot < host_->sends().size()) {
    const ExpectedRequest& oldest = requests_->At(slot);
    if (oldest.begin != oldest.end && oldest.end <= unacknowledged_) {
      return "request " + std::to_string(slot) + " is acknowledged and does not complete";
    }
  }
  return std::nullopt;
}

std::optional<std::string> RequesterWatch::NoteCompletions(TimeNs now) {
  const auto& completions = host_->send_completions();
  for (; completions_ < completions.size(); ++completions_) {
    const roce::Completion& completion = completions[completions_];
    const std::string name = "request " + std::to_string(completions_);
    if (completion.slot != completions_) return name + " completes out of order";
    if (has_failed_) {
      if (completion.status == CompletionStatus::kWorkRequestFlushed) continue;
      return name + " completes after an error and is not flushed (10.3.1)";
    }
    if (completion.status != CompletionStatus::kSuccess) {
      has_failed_ = true;
      if (auto wrong = CheckFailure(now, completion.status)) return name + ": " + *wrong;
    } else if (requests_->At(completions_).end > unacknowledged_ && !is_refused_) {
      return name + " completes before it is acknowledged";
    }
  }
  return std::nullopt;
}

std::optional<std::string> RequesterWatch::CheckFailure(TimeNs now, CompletionStatus status) const {
  if (status == CompletionStatus::kRnrRetryExceeded && !rnr_exhausted_) {
    return "fewer RNR retries than rnr_retry (9.9.2)";
  }
  if (status != CompletionStatus::kRetryExceeded || exhausted_) return std::nullopt;
  if (kept_ != 0 && retries_ == connection_.retry_count) return std::nullopt;
  if (retries_ + possible_retries_ < connection_.retry_count && !MayBeHeldBack()) {
    return "fewer retries than retry_cnt (9.9.2)";
  }
  if (IsLate(now)) return "gives up after more than four timeouts (9.7.6.1.3)";
  if (!MayBeHeldBack() && (timer_start_ == kNever || now - timer_start_ < timeout_ns())) {
    return "gives up before the last timeout (9.7.6.1.3)";
  }
  return std::nullopt;
}

}  // namespace roci::sim
