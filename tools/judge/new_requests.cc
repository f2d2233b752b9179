#include "tools/judge/new_requests.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::OpcodeInfo;
using roce::Operation;
using roce::Position;

// Without credits a requester is not limited, and does not know of the first ones at once.
constexpr int64_t kCreditsKnownNs = 10'000'000;

void CheckSuccession(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const OpcodeInfo& info = *frame.packet.info;
  if (state.in_step) {
    const bool fits =
        state.in_message ? !info.IsFirst() && info.operation == state.operation : info.IsFirst();
    if (!fits) {
      out.Sure(Rule::kOpcodeSequence, flow, frame, [&] {
        return absl::StrCat(info.name, state.in_message ? " within a message" : " without a FIRST");
      });
      state.knows_bytes = false;
    }
  }
  state.in_step = true;
  state.in_message = !info.IsLast();
  state.operation = info.operation;
}

// FIRST and MIDDLE fill the path MTU; LAST has a byte at least.
void CheckPayload(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const OpcodeInfo& info = *frame.packet.info;
  const auto bytes = static_cast<uint32_t>(frame.packet.payload.size());
  if (info.payload != roce::PayloadRule::kAny) return;
  if (!info.IsLast()) LearnMtu(flow, bytes);
  const bool is_full = !info.IsLast();
  const bool is_wrong = is_full ? bytes != flow.mtu
                                : (flow.mtu != 0 && bytes > flow.mtu) ||
                                      (info.position == Position::kLast && bytes == 0);
  if (!is_wrong) return;
  out.Sure(Rule::kPayloadLength, flow, frame, [&] {
    return absl::StrCat(info.name, " of ", bytes, " bytes",
                        flow.mtu != 0 ? absl::StrCat(", path MTU ", flow.mtu) : "");
  });
}

// A WRITE has the length of its RETH; no message is longer than 2^31 bytes.
void CheckMessage(const SeenFrame& frame, Flow& flow, Reporter& out) {
  constexpr uint32_t kMostBytes = 1u << 31;
  RequestState& state = flow.requests;
  const roce::Packet& packet = frame.packet;
  const OpcodeInfo& info = *packet.info;
  if (info.Has(roce::ExtHeader::kReth) && info.operation != Operation::kFlush) {
    const uint32_t stated = packet.ext.reth.length;
    if (stated > kMostBytes) {
      out.Sure(Rule::kMessageLength, flow, frame, [=] { return absl::StrCat(stated, " bytes"); });
    }
    state.stated_bytes = stated;
  }
  if (IsAtomic(info.operation) && packet.ext.atomic.va % 8 != 0) {
    out.Sure(Rule::kAtomicAddress, flow, frame,
             [&] { return absl::StrFormat("0x%x", packet.ext.atomic.va); });
  }
  if (info.IsFirst()) {
    state.knows_bytes = true;
    state.bytes = 0;
    state.message_begin = packet.psn;
  }
  state.bytes += packet.payload.size();
  if (info.operation != Operation::kWrite || !state.knows_bytes) return;
  const bool is_wrong =
      info.IsLast() ? state.bytes != state.stated_bytes : state.bytes >= state.stated_bytes;
  if (!is_wrong) return;
  out.Sure(Rule::kWriteLength, flow, frame, [&] {
    return absl::StrCat(state.bytes, " bytes with ", info.name, ", RETH ", state.stated_bytes);
  });
  state.knows_bytes = false;
}

// Without a credit, one packet may be sent; the rest when it is acknowledged (9.7.7.2).
void CheckCredits(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const OpcodeInfo& info = *frame.packet.info;
  if (!state.has_credits || state.credit_epoch != state.epoch || !TakesReceive(info)) return;
  if (!frame.has_time || frame.time_ns - state.credits_since_ns < kCreditsKnownNs) return;
  const uint32_t number = state.receives + 1;
  const auto beyond = static_cast<int32_t>(number - state.credit_limit);
  const bool may_go_on = info.IsFirst() || Distance(state.message_begin, state.unanswered) > 0;
  if (beyond <= 0 || (beyond == 1 && may_go_on)) return;
  out.Missing(Rule::kCredits, flow, frame, [&] {
    return absl::StrCat(PsnText(frame.packet.psn), ", ", beyond, " beyond the last credit");
  });
  state.has_credits = false;
}

}  // namespace

void TakeNew(const SeenFrame& frame, Flow& flow, Reporter& out) {
  CheckSuccession(frame, flow, out);
  CheckPayload(frame, flow, out);
  CheckMessage(frame, flow, out);
  CheckCredits(frame, flow, out);
  AppendRequest(frame, flow);
  flow.totals.payload_bytes += frame.packet.payload.size();
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, frame.packet.payload.size());
}

}  // namespace roci::tools::judge
