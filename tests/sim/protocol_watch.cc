// See protocol_watch.h.
#include "tests/sim/protocol_watch.h"

#include <utility>

#include "roce/parse.h"

namespace roci::sim {

using roce::Operation;

void ProtocolWatch::Note(int node, roce::TimeNs now, std::optional<std::string> wrong) {
  if (!wrong || wrong_) return;
  wrong_ = "node " + std::to_string(node) + " at " + std::to_string(now) + " ns: " + *wrong;
}

void ProtocolWatch::NoteSent(int node, roce::TimeNs now, std::span<const std::byte> frame,
                             const roce::Qp<SimHost>& qp) {
  if (wrong_) return;
  if (qp.state() == roce::QpState::kErr) SideOf(node).responder->NoteFailure();
  if (roce::ParseHeaders(frame, packet_) != roce::DropReason::kNone) {
    return Note(node, now, "a frame that does not parse");
  }
  if (packet_.info->operation == Operation::kCnp) return Note(node, now, NoteCnp(node, now));
  Note(node, now, SideOf(node).turns.NoteSent(packet_));
  if (!packet_.info->is_request)
    return Note(node, now, SideOf(node).responder->NoteAnswer(packet_));
  Note(node, now, SideOf(node).requester.NoteRequest(now, packet_));
  Note(node, now, SideOf(node).rate.NoteFrame(now, frame.size()));
}

// IBTA vol 1, A17.9.3: a CNP has BECN set, and at most one is sent in an interval.
std::optional<std::string> ProtocolWatch::NoteCnp(int node, roce::TimeNs now) {
  constexpr roce::TimeNs kInterval = roce::CongestionParameters{}.cnp_interval_ns;
  roce::TimeNs& last = SideOf(node).last_cnp;
  if (!packet_.becn) return "a congestion notification without BECN";
  if (last != 0 && now - last < kInterval) return "congestion notifications too close together";
  last = now;
  return std::nullopt;
}

void ProtocolWatch::NoteHandled(int node, roce::TimeNs now, const roce::Packet& packet,
                                roce::QpState before, const roce::Qp<SimHost>& qp) {
  if (wrong_ || before < roce::QpState::kRtr || before == roce::QpState::kErr) return;
  if (packet.info->operation == Operation::kCnp) return;
  if (!packet.info->is_request) {
    return Note(node, now, SideOf(node).requester.NoteResponse(now, packet));
  }
  if (qp.state() == roce::QpState::kErr) return SideOf(node).responder->NoteFailure();
  roce::QpAttributes attributes;
  qp.Query(attributes);
  Note(node, now, SideOf(node).responder->NoteRequest(packet, attributes.rq_psn));
}

void ProtocolWatch::NoteQuiet(int node, roce::TimeNs now, const roce::Qp<SimHost>& qp) {
  if (wrong_) return;
  Side& side = SideOf(node);
  side.turns.NoteQuiet();
  Note(node, now, side.requester.NoteCompletions(now));
  if (qp.state() == roce::QpState::kErr) return side.responder->NoteFailure();
  if (qp.state() != roce::QpState::kRts) return;
  Note(node, now, side.requester.NoteQuiet(now));
  if (!holds_back_ && !qp.waits_for_durable()) Note(node, now, side.responder->NoteQuiet());
}

}  // namespace roci::sim
