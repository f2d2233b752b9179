#include "tools/judge/cm_messages.h"

#include <string>
#include <string_view>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace roci::tools::judge {
namespace {

namespace cm = control::cm;
using cm::MadReason;
using cm::Message;
using cm::MessageType;

std::string NameOf(MessageType type) {
  const std::string_view name = cm::kMessageNames[static_cast<size_t>(type) - cm::kFirstMessage];
  return absl::AsciiStrToUpper(absl::string_view(name.data(), name.size()));
}

// FNV-1a.
uint64_t DigestOf(std::span<const std::byte> bytes) {
  uint64_t digest = 0xCBF29CE484222325;
  for (const std::byte b : bytes) digest = (digest ^ std::to_integer<uint64_t>(b)) * 0x100000001B3;
  return digest;
}

struct Ids {
  uint32_t local = 0, remote = 0;
};
// Of the messages between connected sides; nothing: REQ and SIDR have no pair of IDs.
std::optional<Ids> IdsOf(const cm::Body& body) {
  return std::visit(
      [](const auto& message) -> std::optional<Ids> {
        if constexpr (requires { message.remote_id; }) {
          return Ids{message.local_id, message.remote_id};
        } else {
          return std::nullopt;
        }
      },
      body);
}

// 4.096 us * 2^exponent.
int64_t TimeoutNs(uint8_t exponent) { return int64_t{4096} << (exponent & 0x1F); }

bool CheckHeader(const SeenFrame& frame, MadReason reason, Flow& flow, Reporter& out) {
  if (reason == MadReason::kManagementClass) return false;  // not of the connection manager
  if (reason == MadReason::kNone) return true;
  out.Sure(Rule::kMadHeader, flow, frame,
           [reason] { return std::string(cm::kMadReasonNames[static_cast<size_t>(reason)]); });
  return false;
}

void CheckDatagram(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const roce::Deth& deth = frame.packet.ext.deth;
  if (deth.qkey != cm::kGsiQkey) {
    out.Sure(Rule::kCmQkey, flow, frame, [&] { return absl::StrFormat("0x%08x", deth.qkey); });
  }
  if (deth.src_qpn != roce::kGsiQpn) {
    out.Sure(Rule::kCmSourceQp, flow, frame, [&] { return absl::StrCat(deth.src_qpn.value()); });
  }
}

}  // namespace

CmMessages::Found CmMessages::Find(const SeenFrame& frame, uint32_t local_id, uint32_t remote_id) {
  const auto by_active =
      conversations_.find({frame.src.bytes, frame.dst.bytes, frame.interface, local_id});
  if (by_active != conversations_.end()) return {&by_active->second, true};
  const auto by_passive =
      conversations_.find({frame.dst.bytes, frame.src.bytes, frame.interface, remote_id});
  if (by_passive != conversations_.end()) return {&by_passive->second, false};
  return {};
}

// A message of the passive side whose IDs are of no conversation.
CmMessages::Conversation* CmMessages::FindByTransaction(const SeenFrame& frame,
                                                        uint64_t transaction) {
  auto at = conversations_.lower_bound({frame.dst.bytes, frame.src.bytes, frame.interface, 0});
  for (size_t looked = 0; at != conversations_.end() && looked < 64; ++at, ++looked) {
    if (std::get<0>(at->first) != frame.dst.bytes || std::get<1>(at->first) != frame.src.bytes)
      break;
    if (at->second.transaction == transaction) return &at->second;
  }
  return nullptr;
}

// Counts a message; a repeated one must be the same as before.
void CmMessages::NoteSent(const SeenFrame& frame, const Message& message, Found found, Flow& flow,
                          Reporter& out) {
  Sent& sent = found.conversation->Of(message.type(), found.by_active);
  const uint64_t digest = DigestOf(frame.packet.payload);
  const bool again = sent.count != 0 && sent.transaction == message.transaction;
  if (!again) {
    sent = {
        .count = 1, .transaction = message.transaction, .digest = digest, .last_ns = frame.time_ns};
    return;
  }
  ++sent.count;
  if (digest != sent.digest) {
    out.Sure(Rule::kCmRetryDiffers, flow, frame, [&] { return NameOf(message.type()); });
  }
  const cm::Req& req = found.conversation->req;
  if (sent.count - 1 > req.max_cm_retries) {
    out.Sure(Rule::kCmRetries, flow, frame, [&] {
      return absl::StrCat(NameOf(message.type()), ", repeated ", sent.count - 1, " times, allowed ",
                          req.max_cm_retries);
    });
  }
  const int64_t waited = frame.time_ns - sent.last_ns;
  const int64_t least = TimeoutNs(req.remote_response_timeout);
  if (message.type() == MessageType::kReq && frame.has_time && waited < least) {
    out.Sure(Rule::kCmEarly, flow, frame, [&] {
      return absl::StrCat("REQ after ", waited / 1000, " us, time-out ", least / 1000, " us");
    });
  }
  sent.last_ns = frame.time_ns;
}

void CmMessages::TakeReq(const SeenFrame& frame, const Message& message, Flow& flow,
                         Reporter& out) {
  const auto& req = std::get<cm::Req>(message.body);
  const Key key{frame.src.bytes, frame.dst.bytes, frame.interface, req.local_id};
  if (!conversations_.contains(key) && conversations_.size() == kMostConversations) {
    conversations_.erase(conversations_.begin());
  }
  Conversation& conversation = conversations_[key];
  if (conversation.transaction != message.transaction) {
    conversation = {};
    conversation.transaction = message.transaction;
    conversation.req = req;
  }
  NoteSent(frame, message, {&conversation, true}, flow, out);
}

std::optional<LearnedPair> CmMessages::TakeRep(const SeenFrame& frame, const Message& message,
                                               Flow& flow, Reporter& out) {
  const auto& rep = std::get<cm::Rep>(message.body);
  const auto at =
      conversations_.find({frame.dst.bytes, frame.src.bytes, frame.interface, rep.remote_id});
  if (at == conversations_.end()) {
    if (FindByTransaction(frame, message.transaction) != nullptr) {
      out.Sure(Rule::kCmIds, flow, frame, [&] {
        return absl::StrFormat("REP to ID 0x%08x, its REQ has another", rep.remote_id);
      });
    } else {
      out.Unsure(Rule::kCmOrder, flow, FrameRef::Of(frame),
                 [] { return std::string("REP without REQ"); });
    }
    return std::nullopt;
  }
  Conversation& conversation = at->second;
  if (message.transaction != conversation.transaction) {
    out.Sure(Rule::kCmTransaction, flow, frame, [] { return std::string("REP"); });
  }
  NoteSent(frame, message, {&conversation, false}, flow, out);
  if (conversation.has_rep) return std::nullopt;
  conversation.has_rep = true;
  conversation.passive_id = rep.local_id;
  ++totals_.connections;
  const cm::Req& req = conversation.req;
  LearnedPair pair{.active = frame.dst,
                   .passive = frame.src,
                   .interface = frame.interface,
                   .vlan = frame.packet.vlan(),
                   .active_qpn = req.local_qpn,
                   .passive_qpn = rep.local_qpn,
                   .active_starts = roce::Psn(rep.starting_psn),
                   .passive_starts = roce::Psn(req.starting_psn),
                   .passive_ack_timeout_ns = {}};
  if (const auto mtu = roce::PathMtuFromCode(req.path_mtu)) pair.mtu = roce::PathMtuBytes(*mtu);
  if (req.primary.local_ack_timeout != 0) {
    pair.passive_ack_timeout_ns = TimeoutNs(req.primary.local_ack_timeout);
  }
  return pair;
}

// Messages that need an earlier one: of the connection, or of the other side.
void CmMessages::TakeOther(const SeenFrame& frame, const Message& message, Flow& flow,
                           Reporter& out) {
  const std::optional<Ids> ids = IdsOf(message.body);
  if (!ids) return;
  const Found found = Find(frame, ids->local, ids->remote);
  const MessageType type = message.type();
  if (found.conversation == nullptr) {
    // Each side may reject what it does not know.
    if (type == MessageType::kRej) return;
    out.Unsure(Rule::kCmOrder, flow, FrameRef::Of(frame),
               [&] { return absl::StrCat(NameOf(type), " of an unknown connection"); });
    return;
  }
  Conversation& conversation = *found.conversation;
  const bool has_peer_id =
      conversation.has_rep && type != MessageType::kRej && type != MessageType::kMra;
  const uint32_t passive_id = found.by_active ? ids->remote : ids->local;
  if (has_peer_id && passive_id != conversation.passive_id) {
    out.Sure(Rule::kCmIds, flow, frame, [&] {
      return absl::StrFormat("%s with ID 0x%08x, the REP has 0x%08x", NameOf(type), passive_id,
                             conversation.passive_id);
    });
  }
  if (type == MessageType::kRtu && !conversation.has_rep) {
    out.Unsure(Rule::kCmOrder, flow, FrameRef::Of(frame),
               [] { return std::string("RTU without REP"); });
  }
  if (type == MessageType::kRtu && message.transaction != conversation.transaction) {
    out.Sure(Rule::kCmTransaction, flow, frame, [] { return std::string("RTU"); });
  }
  if (type == MessageType::kDrep) {
    const Sent& dreq = conversation.Of(MessageType::kDreq, !found.by_active);
    if (dreq.count == 0) {
      out.Unsure(Rule::kCmOrder, flow, FrameRef::Of(frame),
                 [] { return std::string("DREP without DREQ"); });
    } else if (dreq.transaction != message.transaction) {
      out.Sure(Rule::kCmTransaction, flow, frame, [] { return std::string("DREP"); });
    }
  }
  totals_.rejected += type == MessageType::kRej ? 1 : 0;
  NoteSent(frame, message, found, flow, out);
}

std::optional<LearnedPair> CmMessages::Judge(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (frame.packet.info->transport != roce::Transport::kUd || !frame.payload_is_whole) {
    return std::nullopt;
  }
  CheckDatagram(frame, flow, out);
  Message message;
  if (!CheckHeader(frame, cm::ParseMad(frame.packet.payload, message), flow, out)) {
    return std::nullopt;
  }
  ++totals_.messages;
  switch (message.type()) {
    case MessageType::kReq:
      TakeReq(frame, message, flow, out);
      return std::nullopt;
    case MessageType::kRep:
      return TakeRep(frame, message, flow, out);
    default:
      TakeOther(frame, message, flow, out);
      return std::nullopt;
  }
}

}  // namespace roci::tools::judge
