#include "tools/judge/judge.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/judge/constants.h"
#include "tools/judge/missing_responses.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/requests.h"
#include "tools/judge/responses.h"

namespace roci::tools::judge {
namespace {

using roce::Operation;

// A request with AckReq that is this old at the end of the capture should have had an answer.
constexpr int64_t kAnswerNs = 1'000'000'000;

// Queue pair numbers are used again, by other connections.
void StartAgain(Flow& flow) {
  if (flow.peer != nullptr) {
    flow.peer->peer = nullptr;
    flow.peer->responses = {};
  }
  flow.peer = nullptr;
  flow.requests = {};
  flow.responses = {};
  flow.constants = {};
  flow.mtu = 0;
}

void CheckAnswered(Flow& flow, int64_t last_ns, Reporter& out) {
  const RequestState& state = flow.requests;
  for (auto each = state.sent.rbegin(); each != state.sent.rend(); ++each) {
    if (roce::Distance(each->last(), state.unanswered) > 0) return;
    if (!each->ack_request || last_ns - each->last_ns < kAnswerNs) continue;
    out.Unsure(Rule::kAckMissing, flow, {each->frame, true, each->last_ns},
               [&] { return absl::StrCat(PsnText(each->psn), ", sent ", each->sends, " times"); });
    return;
  }
}

}  // namespace

Flow* Judge::FlowOf(const SeenFrame& frame) {
  const bool is_packet = frame.kind == SeenKind::kPacket;
  const uint16_t vlan = is_packet ? frame.packet.vlan() : uint16_t{0};
  const uint32_t qpn = frame.dest_qpn ? frame.dest_qpn->value() : 0;
  return flows_.FindOrAdd({frame.src, frame.dst, qpn, frame.interface, vlan});
}

void Judge::TakeMalformed() {
  Flow* flow = FlowOf(frame_);
  if (flow == nullptr) {
    ++totals_.unfollowed;
    return;
  }
  out_.Sure(RuleOf(frame_.malformed), *flow, frame_, [&] {
    return absl::StrCat("a device drops it: ", std::string(roce::DropReasonName(frame_.malformed)));
  });
}

// The receiver drops the packet. It was sent, if it fits into the requests.
void Judge::TakeDamaged(Flow& flow) {
  ++flow.totals.damaged;
  out_.Sure(Rule::kIcrc, flow, frame_, [&] {
    return absl::StrCat(frame_.packet.info->name, ", ", PsnText(frame_.packet.psn));
  });
  const bool fits = frame_.packet.info->is_request && flow.requests.known &&
                    frame_.packet.info->transport == flow.transport &&
                    frame_.packet.psn == flow.requests.next;
  if (fits && flow.transport != roce::Transport::kUd) JudgeRequest(frame_, flow, out_);
}

void Judge::TakePacket(Flow& flow) {
  const roce::OpcodeInfo& info = *frame_.packet.info;
  if (info.operation == Operation::kCnp) {
    congestion_.NoteCnp(frame_, flow, out_);
    return;
  }
  if (flow.constants.known && info.transport != flow.transport) StartAgain(flow);
  flow.transport = info.transport;
  CheckConstants(frame_, flow, out_);
  congestion_.NotePacket(frame_, flow, out_);
  if (info.transport == roce::Transport::kUd) {
    flow.totals.payload_bytes += frame_.packet.payload.size();
    ++flow.totals.messages;
    if (frame_.has_time) flow.totals.goodput.Add(frame_.time_ns, frame_.packet.payload.size());
    if (frame_.packet.dest_qpn != roce::kGsiQpn) return;
    if (const auto pair = cm_.Judge(frame_, flow, out_)) Learn(*pair);
    return;
  }
  if (info.is_request) {
    JudgeRequest(frame_, flow, out_);
    return;
  }
  if (flow.peer == nullptr) flows_.Pair(flow, frame_.packet.psn);
  JudgeResponse(frame_, flow, out_);
}

// A REP has connected two queue pairs.
void Judge::Learn(const LearnedPair& pair) {
  Flow* out =
      flows_.FindOrAdd({pair.active, pair.passive, pair.passive_qpn, pair.interface, pair.vlan});
  Flow* back =
      flows_.FindOrAdd({pair.passive, pair.active, pair.active_qpn, pair.interface, pair.vlan});
  if (out == nullptr || back == nullptr || out == back) return;
  for (Flow* flow : {out, back}) {
    StartAgain(*flow);
    flow->mtu = pair.mtu;
  }
  out->peer = back;
  back->peer = out;
  out->requests.starting_psn = pair.active_starts;
  back->requests.starting_psn = pair.passive_starts;
  back->requests.ack_timeout_ns = pair.passive_ack_timeout_ns;
}

void Judge::Add(const CaptureRecord& record) {
  ++totals_.frames;
  totals_.bytes += record.bytes.size();
  parser_.Parse(record, frame_);
  if (frame_.kind == SeenKind::kOther) {
    totals_.v1 += frame_.is_v1 ? 1 : 0;
    totals_.hidden += frame_.hidden ? 1 : 0;
    return;
  }
  if (frame_.has_time) last_ns_ = std::max(last_ns_, frame_.time_ns);
  if (frame_.kind == SeenKind::kCut) {
    ++totals_.cut;
    return;
  }
  ++totals_.roce;
  if (own_copies_.IsCopy(record, frame_.interface)) {
    ++totals_.own_copies;
    return;
  }
  if (frame_.kind == SeenKind::kMalformed) {
    TakeMalformed();
    return;
  }
  Flow* flow = FlowOf(frame_);
  if (flow == nullptr) {
    ++totals_.unfollowed;
    return;
  }
  ++flow->totals.packets;
  totals_.unchecked += frame_.payload_is_whole ? 0 : 1;
  if (frame_.icrc_is_good) {
    TakePacket(*flow);
  } else {
    TakeDamaged(*flow);
  }
}

void Judge::Finish(uint64_t dropped) {
  totals_.dropped = dropped;
  for (Flow& flow : flows_.flows()) {
    if (flow.responses.open) {
      const OpenQuestion& open = *flow.responses.open;
      out_.Unsure(open.rule, flow, open.frame,
                  [&] { return absl::StrCat(PsnText(open.psn), "; no later request shows more"); });
      flow.responses.open.reset();
    }
    ReportLosses(flow, out_);
    if (flow.requests.odd) {
      out_.Unsure(Rule::kPsnOrder, flow, flow.requests.odd->second, [&] {
        return absl::StrCat(PsnText(flow.requests.odd->first), " among ",
                            PsnText(flow.requests.next), ", or a new connection");
      });
      flow.requests.odd.reset();
    }
    if (flow.peer != nullptr) CheckAnswered(flow, last_ns_, out_);
  }
  // (Cut headers are as if the frame were missing.)
  findings_.Settle(dropped == 0 && totals_.cut == 0 && totals_.unfollowed == 0);
}

}  // namespace roci::tools::judge
