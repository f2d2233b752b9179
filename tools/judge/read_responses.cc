#include "tools/judge/read_responses.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/judge/answered_requests.h"
#include "tools/judge/missing_responses.h"
#include "tools/judge/msn_and_credits.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::AethKind;
using roce::Distance;
using roce::Operation;
using roce::Psn;

Operation OperationOf(const SentRequest& sent) { return roce::InfoOf(sent.opcode).operation; }

// Answered by READ responses.
bool IsRead(const SentRequest& sent) {
  const Operation operation = OperationOf(sent);
  return operation == Operation::kReadRequest || operation == Operation::kFlush ||
         operation == Operation::kAtomicWrite;
}

// False: it is a repetition that no request asked for.
bool CheckReadPlace(const SeenFrame& frame, Flow& flow, Flow& asked, const SentRequest& sent,
                    Reporter& out) {
  ResponseState& state = flow.responses;
  const Psn psn = frame.packet.psn;
  const Psn expected = state.reading ? state.read_next : sent.psn;
  const int32_t ahead = Distance(expected, psn);
  if (sent.sends == 1 && (ahead < 0 || sent.is_answered)) {
    out.Unsure(Rule::kReadRepeated, flow, FrameRef::Of(frame), [&] {
      return absl::StrCat(PsnText(psn), ", or the network has copied or delayed it");
    });
    return false;
  }
  if (ahead > 0 && (sent.sends == 1 || state.reading)) {
    flow.totals.missing += static_cast<uint64_t>(ahead);
    NoteLoss(frame, Rule::kReadGap, expected, flow, asked, out);
  }
  return true;
}

void CheckReadForm(const SeenFrame& frame, Flow& flow, const Flow& asked, const SentRequest& sent,
                   Reporter& out) {
  if (sent.span == 0) return;
  const roce::OpcodeInfo& info = *frame.packet.info;
  const Psn psn = frame.packet.psn;
  const bool is_last = psn == sent.last();
  // A READ that is asked for again may begin anywhere.
  const bool first_fits = sent.sends > 1 || info.IsFirst() == (psn == sent.psn);
  if (info.IsLast() != is_last || !first_fits) {
    out.Sure(Rule::kReadPosition, flow, frame, [&] {
      return absl::StrCat(info.name, " with ", PsnText(psn), ", the READ has ", PsnText(sent.psn),
                          " to ", sent.last().value());
    });
    return;
  }
  const uint32_t length = OperationOf(sent) == Operation::kReadRequest ? sent.length : 0;
  const uint32_t mtu = MtuOf(asked, sent);
  const uint32_t expected = is_last ? length - (sent.span - 1) * mtu : mtu;
  if (frame.packet.payload.size() == expected) return;
  out.Sure(Rule::kReadLength, flow, frame, [&] {
    return absl::StrCat(info.name, " of ", frame.packet.payload.size(), " bytes instead of ",
                        expected);
  });
}

// MSN and syndrome of a response to `sent`, which itself is one message.
void CheckResponseAeth(const SeenFrame& frame, Flow& flow, Flow& asked, const SentRequest& sent,
                       Reporter& out) {
  if (!frame.packet.info->Has(roce::ExtHeader::kAeth)) return;
  if (frame.packet.ext.aeth.kind() != AethKind::kAck) {
    out.Sure(Rule::kReadSyndrome, flow, frame,
             [&] { return absl::StrFormat("0x%02x", frame.packet.ext.aeth.syndrome); });
    return;
  }
  CheckMsn(frame, flow, asked, sent, sent.messages - 1, out);
}

// Selective repeat: the next response of a part of a READ that was asked for again.
bool IsReread(RequestState& state, Psn psn) {
  const auto part = std::ranges::find_if(
      state.rereads, [psn](const PsnRange& range) { return range.begin == psn; });
  if (part == state.rereads.end()) return false;
  part->begin = psn + 1;
  if (part->begin == part->end) state.rereads.erase(part);
  return true;
}

// It fills a gap in the responses, and tells nothing about those that follow it.
void TakeReread(const SeenFrame& frame, Flow& flow, Flow& asked, SentRequest& sent, Reporter& out) {
  const auto bytes = static_cast<uint32_t>(frame.packet.payload.size());
  const bool is_last = sent.span != 0 && frame.packet.psn == sent.last();
  CheckResponseAeth(frame, flow, asked, sent, out);
  if (is_last) SetAnswered(asked, sent);
  asked.requests.progress_ns = frame.time_ns;
  flow.totals.payload_bytes += bytes;
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, bytes);
}

}  // namespace

void TakeReadResponse(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  const auto bytes = static_cast<uint32_t>(frame.packet.payload.size());
  if (!frame.packet.info->IsLast()) LearnMtu(asked, bytes);
  SentRequest* sent = FindSent(asked, psn);
  if (sent == nullptr || !IsRead(*sent)) {
    out.Missing(Rule::kReadUnasked, flow, frame, [&] {
      return absl::StrCat(PsnText(psn), sent == nullptr ? "" : ", the request is ",
                          sent == nullptr ? "" : roce::InfoOf(sent->opcode).name);
    });
    return;
  }
  Advance(frame, flow, asked, sent->psn, out);
  ForgetLoss(flow, psn);
  if (IsReread(asked.requests, psn)) return TakeReread(frame, flow, asked, *sent, out);
  if (!CheckReadPlace(frame, flow, asked, *sent, out)) return;
  CheckReadForm(frame, flow, asked, *sent, out);
  CheckResponseAeth(frame, flow, asked, *sent, out);
  if (psn == sent->psn) MeasureRtt(frame, asked, sent);
  const bool is_last = sent->span != 0 && psn == sent->last();
  if (is_last) SetAnswered(asked, *sent);
  RequestState& state = asked.requests;
  if (Distance(state.unanswered, psn + 1) > 0) state.unanswered = psn + 1;
  state.has_answer = true;
  state.progress_ns = frame.time_ns;
  flow.responses.reading = !is_last;
  flow.responses.read_next = psn + 1;
  flow.totals.payload_bytes += bytes;
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, bytes);
}

void TakeAtomicResponse(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  SentRequest* sent = FindSent(asked, psn);
  if (sent == nullptr || !IsAtomic(OperationOf(*sent))) {
    out.Missing(Rule::kAtomicUnasked, flow, frame, [&] { return PsnText(psn); });
    return;
  }
  Advance(frame, flow, asked, sent->psn, out);
  ForgetLoss(flow, psn);
  const uint64_t original = frame.packet.ext.atomic_ack.original;
  if (sent->has_original && sent->original != original) {
    out.Sure(Rule::kAtomicReplay, flow, frame, [&] {
      return absl::StrFormat("%s: 0x%x, at first 0x%x", PsnText(psn), original, sent->original);
    });
  }
  sent->has_original = true;
  sent->original = original;
  CheckResponseAeth(frame, flow, asked, *sent, out);
  MeasureRtt(frame, asked, sent);
  SetAnswered(asked, *sent);
  Advance(frame, flow, asked, psn + 1, out);
}

}  // namespace roci::tools::judge
