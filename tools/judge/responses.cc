#include "tools/judge/responses.h"

#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/judge/acknowledgements.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/read_responses.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::AethKind;
using roce::Distance;
using roce::Operation;
using roce::Psn;

bool CheckSyndrome(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (!frame.packet.info->Has(roce::ExtHeader::kAeth)) return true;
  const roce::Aeth aeth = frame.packet.ext.aeth;
  constexpr uint8_t kLastNak = 4;
  const bool is_reserved = aeth.kind() == AethKind::kReserved ||
                           (aeth.kind() == AethKind::kNak && aeth.value() > kLastNak);
  if (!is_reserved) return true;
  out.Sure(Rule::kSyndrome, flow, frame, [&] { return absl::StrFormat("0x%02x", aeth.syndrome); });
  return false;
}

// Nothing comes after a fatal NAK but responses to earlier requests.
void CheckFault(const SeenFrame& frame, Flow& flow, Reporter& out) {
  std::optional<Psn>& fault = flow.responses.fault;
  if (!fault || Distance(*fault, frame.packet.psn) < 0) return;
  const Psn psn = *fault;
  fault.reset();
  const bool is_ack = frame.packet.info->operation != Operation::kAcknowledge ||
                      frame.packet.ext.aeth.kind() == AethKind::kAck;
  if (!is_ack) return;
  out.Missing(Rule::kAckAfterFault, flow, frame,
              [&] { return absl::StrCat(PsnText(frame.packet.psn), ", refused ", PsnText(psn)); });
}

// A READ whose length in PSNs is not known yet reaches beyond `next`.
bool MayBeOfOpenRead(const Flow& asked, const SeenFrame& frame) {
  const std::deque<SentRequest>& sent = asked.requests.sent;
  return frame.packet.info->operation == Operation::kReadResponse && !sent.empty() &&
         sent.back().span == 0;
}

}  // namespace

void JudgeResponse(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (!CheckSyndrome(frame, flow, out) || flow.peer == nullptr) return;
  Flow& asked = *flow.peer;
  if (!asked.requests.known) return;
  const Psn psn = frame.packet.psn;
  if (Distance(psn, asked.requests.next) > 0 && !MayBeAnswered(asked, psn)) return;
  CheckFault(frame, flow, out);
  if (Distance(asked.requests.next, psn) >= 0 && !MayBeOfOpenRead(asked, frame)) {
    const bool is_nak = frame.packet.info->operation == Operation::kAcknowledge &&
                        frame.packet.ext.aeth.kind() == AethKind::kNak;
    flow.responses.open =
        OpenQuestion{is_nak ? Rule::kNakWithoutGap : Rule::kAckUnsent, psn, FrameRef::Of(frame)};
    return;
  }
  switch (frame.packet.info->operation) {
    case Operation::kReadResponse:
      TakeReadResponse(frame, flow, asked, out);
      break;
    case Operation::kAtomicAcknowledge:
      TakeAtomicResponse(frame, flow, asked, out);
      break;
    default:
      if (frame.packet.ext.aeth.kind() == AethKind::kAck) {
        TakeAck(frame, flow, asked, out);
      } else {
        TakeNak(frame, flow, asked, out);
      }
  }
}

}  // namespace roci::tools::judge
