// The engine's handling of received messages.
#include "control/cm/engine.h"
#include "roce/headers.h"

namespace roci::control::cm {
namespace {

// The communication IDs in a message, as the sender names them; 0: none.
struct Ids {
  uint32_t sender = 0;
  uint32_t receiver = 0;
};

template <class T>
constexpr bool kHasIds = requires(const T& body) {
  body.local_id;
  body.remote_id;
};

Ids IdsOf(const Message& message) {
  return std::visit(
      [](const auto& body) -> Ids {
        if constexpr (kHasIds<std::decay_t<decltype(body)>>) {
          return {body.local_id, body.remote_id};
        } else {
          return {};
        }
      },
      message.body);
}

// A REJ of an abandoned REQ, which has the sender's GUID instead of our ID (IBTA vol 1, 12.6.7.2);
// null: another message.
const Rej* AsTimeoutReject(const Message& message) {
  const Rej* rej = std::get_if<Rej>(&message.body);
  return rej != nullptr && rej->reason == static_cast<uint16_t>(RejectReason::kTimeout) &&
                 rej->info_length >= sizeof(uint64_t)
             ? rej
             : nullptr;
}

bool IsKnownTransport(const Req& req) {
  switch (static_cast<TransportService>(req.transport_service)) {
    case TransportService::kRc:
    case TransportService::kUc:
      return true;
    case TransportService::kExtended:
      return req.extended_transport == kExtendedXrc;
    case TransportService::kRd:
      break;
  }
  return false;
}

// `to`: the IDs as the receiver of the REJ names them.
Rej RejectFor(Ids to, AboutMessage about, RejectReason reason) {
  Rej rej;
  rej.local_id = to.receiver;
  rej.remote_id = to.sender;
  rej.about = static_cast<uint8_t>(about);
  rej.reason = static_cast<uint16_t>(reason);
  return rej;
}

Apr RefusalOfPath(Ids to, AprStatus status) {
  Apr apr;
  apr.local_id = to.receiver;
  apr.remote_id = to.sender;
  apr.status = static_cast<uint8_t>(status);
  return apr;
}

}  // namespace

MadReason Engine::HandleMad(roce::TimeNs now, const roce::Path& reply,
                            std::span<const std::byte> mad) {
  Message message;
  MadReason reason = ParseMad(mad, message);
  if (reason == MadReason::kNone) reason = Dispatch(now, reply, message);
  CountReason(reason);
  return reason;
}

MadReason Engine::Dispatch(roce::TimeNs now, const roce::Path& reply, const Message& message) {
  if (const Req* req = std::get_if<Req>(&message.body)) {
    return HandleReq(now, reply, message, *req);
  }
  if (const SidrReq* req = std::get_if<SidrReq>(&message.body)) {
    return HandleSidrReq(now, reply, message, *req);
  }
  if (const SidrRep* rep = std::get_if<SidrRep>(&message.body)) return HandleSidrRep(reply, *rep);
  Connection* connection = Match(reply, message);
  if (connection == nullptr) return AnswerStranger(reply, message);
  return Act(now, *connection, message);
}

void Engine::Answer(const roce::Path& reply, uint64_t transaction, Body body) {
  outgoing_.push_back({reply, BuildMad({transaction, body})});
}

Connection* Engine::Match(const roce::Path& reply, const Message& message) {
  const Ids ids = IdsOf(message);
  Connection* connection = Get(ids.receiver);
  const Rej* timeout = connection == nullptr ? AsTimeoutReject(message) : nullptr;
  if (timeout != nullptr) {
    const auto it = peers_.find({roce::LoadBe<uint64_t>(timeout->info.data()), ids.sender});
    if (it != peers_.end()) connection = Get(it->second);
  }
  if (connection == nullptr || !IsSamePeer(connection->path, reply)) return nullptr;
  const bool knows_sender = connection->remote_id != 0;
  // A peer that rejects a request at once may not have assigned an ID.
  const bool is_early_reject = std::holds_alternative<Rej>(message.body) && ids.sender == 0;
  if (knows_sender && connection->remote_id != ids.sender && !is_early_reject) return nullptr;
  return connection;
}

// Without an answer, the peer would retry, or take the connection for established.
MadReason Engine::AnswerStranger(const roce::Path& reply, const Message& message) {
  const Ids ids = IdsOf(message);
  switch (message.type()) {
    case MessageType::kDreq:
      Answer(reply, message.transaction, Drep{ids.receiver, ids.sender, {}});
      break;
    case MessageType::kRep:
      Answer(reply, message.transaction,
             RejectFor(ids, AboutMessage::kRep, RejectReason::kInvalidCommunicationId));
      break;
    case MessageType::kLap:
      Answer(reply, message.transaction, RefusalOfPath(ids, AprStatus::kInvalidCommunicationId));
      break;
    default:
      break;
  }
  return MadReason::kUnknownConnection;
}

MadReason Engine::HandleReq(roce::TimeNs now, const roce::Path& reply, const Message& message,
                            const Req& req) {
  const auto known = peers_.find({req.local_ca_guid, req.local_id});
  if (known != peers_.end()) {
    Connection* connection = Get(known->second);
    if (!IsSamePeer(connection->path, reply)) return MadReason::kSource;
    return Act(now, *connection, message);
  }
  const Ids peer{.sender = req.local_id};  // there is no ID of ours yet
  const auto refuse = [&](RejectReason reason) {
    Answer(reply, message.transaction, RejectFor(peer, AboutMessage::kReq, reason));
  };
  if (req.primary.local_gid != reply.dst_gid || req.primary.remote_gid != reply.src_gid) {
    refuse(RejectReason::kPrimaryRemoteGid);
    return MadReason::kSource;
  }
  if (!IsKnownTransport(req)) {
    refuse(RejectReason::kInvalidTransportServiceType);
    return MadReason::kUnexpected;
  }
  if (req.path_mtu < 1 || req.path_mtu > config_.max_path_mtu) {
    Rej rej = RejectFor(peer, AboutMessage::kReq, RejectReason::kInvalidPathMtu);
    rej.info_length = 1;
    rej.info[0] = static_cast<std::byte>(config_.max_path_mtu << 4);
    Answer(reply, message.transaction, rej);
    return MadReason::kUnexpected;
  }
  // 12.9.8.3.1: the peer has restarted and reuses a QP of a connection that exists here.
  const auto stale = peer_qpns_.find({req.local_ca_guid, req.local_qpn});
  if (stale != peer_qpns_.end()) {
    refuse(RejectReason::kStaleConnection);
    Connection* old = Get(stale->second);
    if (old->state == State::kEstablished && IsSamePeer(old->path, reply)) {
      BeginRelease(now, *old);
    }
    return MadReason::kUnexpected;
  }
  Connection* connection = Add();
  if (connection == nullptr) {
    refuse(RejectReason::kNoResources);
    return MadReason::kNoRoom;
  }
  AcceptRequest(now, reply, message, req, *connection);
  return MadReason::kNone;
}

void Engine::AcceptRequest(roce::TimeNs, const roce::Path& reply, const Message& message,
                           const Req& req, Connection& c) {
  c.remote_id = req.local_id;
  c.state = State::kReqReceived;
  c.transaction = message.transaction;
  c.service_id = req.service_id;
  c.remote_guid = req.local_ca_guid;
  c.path = reply;
  c.remote_qpn = req.local_qpn;
  c.remote_psn = req.starting_psn;
  c.transport = req.transport_service;
  c.extended_transport = req.extended_transport;
  c.path_mtu = req.path_mtu;
  // The peer's initiator depth is our number of responder resources, and vice versa.
  c.responder_resources = req.initiator_depth;
  c.initiator_depth = req.responder_resources;
  c.retry_count = req.retry_count;
  c.rnr_retry_count = req.rnr_retry_count;
  c.ack_timeout = req.primary.local_ack_timeout;
  c.traffic_class = req.primary.traffic_class;
  c.has_alternate = !req.alternate.remote_gid.IsZero();
  c.max_retries = req.max_cm_retries;
  c.response_timeout =
      PeerTime(req.local_response_timeout) + 2 * roce::TimeoutNs(config_.packet_life_time);
  c.indexed_by_peer = peers_.emplace(PeerKey{c.remote_guid, c.remote_id}, c.local_id).second;
  IndexByQpn(c);
  Tell(c, EventKind::kRequest, req);
}

MadReason Engine::HandleSidrReq(roce::TimeNs, const roce::Path& reply, const Message& message,
                                const SidrReq& req) {
  const SidrKey key{FarEndOf(reply), req.request_id};
  const auto known = sidr_peers_.find(key);
  if (known != sidr_peers_.end()) {
    const Connection& old = *Find(known->second);
    if (old.state == State::kSidrAnswered) outgoing_.push_back({old.path, old.last});
    return MadReason::kNone;
  }
  Connection* c = Add();
  if (c == nullptr) return MadReason::kNoRoom;
  c->remote_id = req.request_id;
  c->state = State::kSidrReqReceived;
  c->is_datagram = true;
  c->transaction = message.transaction;
  c->service_id = req.service_id;
  c->path = reply;
  c->indexed_by_peer = sidr_peers_.emplace(key, c->local_id).second;
  Tell(*c, EventKind::kDatagramRequest, req);
  return MadReason::kNone;
}

MadReason Engine::HandleSidrRep(const roce::Path& reply, const SidrRep& rep) {
  Connection* c = Get(rep.request_id);
  if (c == nullptr || !IsSamePeer(c->path, reply)) return MadReason::kUnknownConnection;
  if (c->state != State::kSidrReqSent) return MadReason::kUnexpected;
  Tell(*c, EventKind::kDatagramReply, rep);
  Forget(*c);
  return MadReason::kNone;
}

MadReason Engine::Act(roce::TimeNs now, Connection& connection, const Message& message) {
  const Ids peer{connection.remote_id, connection.local_id};
  switch (ActionOf(message.type(), connection.state)) {
    case Action::kTakeReply:
      TakeReply(now, connection, std::get<Rep>(message.body));
      return MadReason::kNone;
    case Action::kAskPatience:
      AskPatience(now, connection);
      return MadReason::kNone;
    case Action::kRepeatLast:
      outgoing_.push_back({connection.path, connection.last});
      return MadReason::kNone;
    case Action::kTakeReady:
      connection.state = State::kEstablished;
      SetDeadline(connection, roce::kNever);
      Tell(connection, EventKind::kEstablished, message.body);
      return MadReason::kNone;
    case Action::kTakeReject:
      TakeReject(now, connection, std::get<Rej>(message.body));
      return MadReason::kNone;
    case Action::kEndByPeer:
      if (const Dreq* dreq = std::get_if<Dreq>(&message.body);
          dreq != nullptr && dreq->remote_qpn != connection.local_qpn) {
        return MadReason::kUnexpected;
      }
      EndByPeer(now, connection, message);
      return MadReason::kNone;
    case Action::kRepeatRelease:
      Answer(connection.path, message.transaction,
             Drep{connection.local_id, connection.remote_id, {}});
      return MadReason::kNone;
    case Action::kEndByUs:
      Tell(connection, EventKind::kDisconnected);
      EnterTimewait(now, connection);
      return MadReason::kNone;
    case Action::kWaitLonger:
      WaitLonger(now, connection, std::get<Mra>(message.body));
      return MadReason::kNone;
    case Action::kRefusePath:
      Answer(connection.path, message.transaction, RefusalOfPath(peer, AprStatus::kNotSupported));
      return MadReason::kNone;
    case Action::kRejectStale:
      Answer(connection.path, connection.transaction,
             RejectFor(peer, AboutMessage::kReq, RejectReason::kStaleConnection));
      return MadReason::kNone;
    case Action::kIgnore:
      break;
  }
  return MadReason::kUnexpected;
}

void Engine::TakeReply(roce::TimeNs now, Connection& c, const Rep& rep) {
  c.remote_id = rep.local_id;
  c.remote_guid = rep.local_ca_guid;
  c.remote_qpn = rep.local_qpn;
  c.remote_psn = rep.starting_psn;
  c.responder_resources = rep.initiator_depth;
  c.initiator_depth = rep.responder_resources;
  c.rnr_retry_count = rep.rnr_retry_count;
  SetDeadline(c, roce::kNever);
  if (!IndexByQpn(c)) {
    SendReject(c, AboutMessage::kRep, RejectReason::kStaleConnection, {}, {});
    Rej told;
    told.reason = static_cast<uint16_t>(RejectReason::kStaleConnection);
    Tell(c, EventKind::kRejected, told);
    return Linger(now, c, State::kRejected);
  }
  c.state = State::kRepReceived;
  Tell(c, EventKind::kReply, rep);
}

void Engine::TakeReject(roce::TimeNs now, Connection& c, const Rej& rej) {
  Tell(c, EventKind::kRejected, rej);
  if (c.is_active) return Forget(c);
  LeaveBehind(c);
  // Copies of the peer's REQ may still be in flight.
  EnterTimewait(now, c);
}

void Engine::EndByPeer(roce::TimeNs now, Connection& c, const Message& message) {
  if (message.type() == MessageType::kDreq) {
    Answer(c.path, message.transaction, Drep{c.local_id, c.remote_id, {}});
  }
  Tell(c, EventKind::kDisconnected);
  EnterTimewait(now, c);
}

void Engine::WaitLonger(roce::TimeNs now, Connection& c, const Mra& mra) {
  const bool about_req = mra.about == static_cast<uint8_t>(AboutMessage::kReq);
  if (about_req != c.is_active) return;
  c.state = c.is_active ? State::kMraReqReceived : State::kMraRepReceived;
  SetDeadline(c,
              now + PeerTime(mra.service_timeout) + 2 * roce::TimeoutNs(config_.packet_life_time));
}

// A REQ or REP was received again, and the program has not decided yet.
void Engine::AskPatience(roce::TimeNs, Connection& c) {
  const AboutMessage about = c.is_active ? AboutMessage::kRep : AboutMessage::kReq;
  c.state = c.is_active ? State::kMraRepSent : State::kMraReqSent;
  SendOnce(c, Mra{c.local_id, c.remote_id, static_cast<uint8_t>(about), config_.patience, {}});
}

}  // namespace roci::control::cm
