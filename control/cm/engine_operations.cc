// Operations of a connection's owner.
#include <algorithm>
#include <cassert>

#include "control/cm/engine.h"
#include "roce/headers.h"

namespace roci::control::cm {
namespace {

template <size_t kSize>
bool Fill(Data<kSize>& out, std::span<const std::byte> in) {
  if (in.size() > kSize) return false;
  std::copy(in.begin(), in.end(), out.begin());
  return true;
}

absl::Status TooLong() { return absl::InvalidArgumentError("the private data is too long"); }
absl::Status WrongState() {
  return absl::FailedPreconditionError("not possible in this state of the connection");
}
absl::Status NoRoom() { return absl::ResourceExhaustedError("too many connections"); }

// IBTA vol 1, 12.7.34: the local ACK timeout is twice the packet life time plus the peer's ACK
// delay. Exponent + 1 doubles the life time; the ACK delay is neglected.
uint8_t AckTimeout(uint8_t packet_life_time) {
  return static_cast<uint8_t>(std::min<int>(packet_life_time + 1, roce::kMaxTimeoutExponent));
}

PathFields PrimaryPath(const ConnectOptions& options, uint8_t packet_life_time) {
  PathFields primary;
  // RoCE has no LIDs; peers expect the permissive one (IBTA vol 1, A16.5.1).
  constexpr uint16_t kPermissiveLid = 0xFFFF;
  primary.local_lid = kPermissiveLid;
  primary.remote_lid = kPermissiveLid;
  primary.local_gid = options.path.src_gid;
  primary.remote_gid = options.path.dst_gid;
  primary.flow_label = options.path.flow_label;
  primary.packet_rate = 0;
  primary.traffic_class = options.path.traffic_class;
  primary.hop_limit = options.path.hop_limit;
  primary.sl = ServiceLevelOf(options.path);
  primary.local_ack_timeout = AckTimeout(packet_life_time);
  return primary;
}

}  // namespace

absl::StatusOr<uint32_t> Engine::Connect(roce::TimeNs now, const ConnectOptions& options) {
  Req req;
  if (!Fill(req.private_data, options.private_data)) return TooLong();
  Connection* connection = Add();
  if (connection == nullptr) return NoRoom();
  BeginConnection(*connection, options);
  FillReq(*connection, options, req);
  SendRepeatedly(now, *connection, req);
  return connection->local_id;
}

uint8_t Engine::LifeTimeOf(const ConnectOptions& options) const {
  return options.packet_life_time != 0 ? options.packet_life_time : config_.packet_life_time;
}

void Engine::BeginConnection(Connection& c, const ConnectOptions& options) {
  c.owner = options.owner;
  c.account = options.account;
  c.state = State::kReqSent;
  c.is_active = true;
  c.transaction = random_.Next();
  c.service_id = options.service_id;
  c.path = options.path;
  c.local_qpn = options.qpn;
  c.local_psn = options.psn;
  c.transport = options.transport;
  c.extended_transport = options.extended_transport;
  c.path_mtu = options.path_mtu;
  c.responder_resources = options.responder_resources;
  c.initiator_depth = options.initiator_depth;
  c.retry_count = options.retry_count;
  c.rnr_retry_count = options.rnr_retry_count;
  c.ack_timeout = AckTimeout(LifeTimeOf(options));
  c.traffic_class = options.path.traffic_class;
  c.max_retries = config_.max_retries;
  c.response_timeout =
      roce::TimeoutNs(config_.response_timeout) + 2 * roce::TimeoutNs(config_.packet_life_time);
}

void Engine::FillReq(const Connection& c, const ConnectOptions& options, Req& req) const {
  req.local_id = c.local_id;
  req.service_id = c.service_id;
  req.local_ca_guid = config_.ca_guid;
  req.local_qpn = c.local_qpn;
  req.responder_resources = c.responder_resources;
  req.initiator_depth = c.initiator_depth;
  req.remote_response_timeout = config_.response_timeout;
  req.transport_service = c.transport;
  req.extended_transport = c.extended_transport;
  req.flow_control = options.flow_control;
  req.starting_psn = c.local_psn;
  req.local_response_timeout = config_.response_timeout;
  req.retry_count = c.retry_count;
  req.pkey = options.path.pkey;
  req.path_mtu = c.path_mtu;
  req.rnr_retry_count = c.rnr_retry_count;
  req.max_cm_retries = config_.max_retries;
  req.srq = options.srq;
  req.primary = PrimaryPath(options, LifeTimeOf(options));
  req.vendor_id = options.ece.vendor_id;
  req.ece_options = options.ece.options;
}

absl::StatusOr<uint32_t> Engine::ConnectDatagram(roce::TimeNs now, const DatagramOptions& options) {
  SidrReq req;
  if (!Fill(req.private_data, options.private_data)) return TooLong();
  Connection* c = Add();
  if (c == nullptr) return NoRoom();
  c->owner = options.owner;
  c->account = options.account;
  c->state = State::kSidrReqSent;
  c->is_active = true;
  c->is_datagram = true;
  c->transaction = random_.Next();
  c->service_id = options.service_id;
  c->path = options.path;
  c->max_retries = config_.max_retries;
  c->response_timeout =
      roce::TimeoutNs(config_.response_timeout) + 2 * roce::TimeoutNs(config_.packet_life_time);
  req.request_id = c->local_id;
  req.pkey = options.path.pkey;
  req.service_id = options.service_id;
  SendRepeatedly(now, *c, req);
  return c->local_id;
}

void Engine::Adopt(uint32_t id, uint64_t owner, uint32_t account) {
  Connection* connection = Get(id);
  if (connection == nullptr) return;
  connection->owner = owner;
  connection->account = account;
}

absl::Status Engine::Accept(roce::TimeNs now, uint32_t id, const AcceptOptions& options) {
  Connection* c = Get(id);
  if (c == nullptr || (c->state != State::kReqReceived && c->state != State::kMraReqSent)) {
    return WrongState();
  }
  Rep rep;
  if (!Fill(rep.private_data, options.private_data)) return TooLong();
  c->local_qpn = options.qpn;
  c->local_psn = options.psn;
  c->responder_resources = options.responder_resources;
  c->initiator_depth = options.initiator_depth;
  rep.local_id = c->local_id;
  rep.remote_id = c->remote_id;
  rep.local_qpn = options.qpn;
  rep.starting_psn = options.psn;
  rep.responder_resources = options.responder_resources;
  rep.initiator_depth = options.initiator_depth;
  // 1: alternate paths are not supported.
  rep.failover_accepted = c->has_alternate ? 1 : 0;
  rep.flow_control = options.flow_control;
  rep.rnr_retry_count = options.rnr_retry_count;
  rep.srq = options.srq;
  rep.local_ca_guid = config_.ca_guid;
  rep.vendor_high = static_cast<uint8_t>(options.ece.vendor_id >> 16);
  rep.vendor_middle = static_cast<uint8_t>(options.ece.vendor_id >> 8);
  rep.vendor_low = static_cast<uint8_t>(options.ece.vendor_id);
  rep.ece_options = options.ece.options;
  c->state = State::kRepSent;
  SendRepeatedly(now, *c, rep);
  return absl::OkStatus();
}

absl::Status Engine::AnswerDatagram(roce::TimeNs now, uint32_t id, const DatagramAnswer& answer) {
  Connection* c = Get(id);
  if (c == nullptr || c->state != State::kSidrReqReceived) return WrongState();
  SidrRep rep;
  if (!Fill(rep.private_data, answer.private_data)) return TooLong();
  rep.request_id = c->remote_id;
  rep.status = static_cast<uint8_t>(answer.status);
  if (answer.status == SidrStatus::kValid) {
    rep.qpn = answer.qpn;
    rep.qkey = answer.qkey;
    rep.vendor_high = static_cast<uint16_t>(answer.ece.vendor_id >> 8);
    rep.vendor_low = static_cast<uint8_t>(answer.ece.vendor_id);
    rep.ece_options = answer.ece.options;
  }
  rep.service_id = c->service_id;
  SendOnce(*c, rep);
  Linger(now, *c, State::kSidrAnswered);
  return absl::OkStatus();
}

absl::Status Engine::Ready(roce::TimeNs, uint32_t id) {
  Connection* c = Get(id);
  if (c == nullptr || (c->state != State::kRepReceived && c->state != State::kMraRepSent)) {
    return WrongState();
  }
  c->state = State::kEstablished;
  SetDeadline(*c, roce::kNever);
  SendOnce(*c, Rtu{c->local_id, c->remote_id, {}});
  return absl::OkStatus();
}

void Engine::SendReject(Connection& connection, AboutMessage about, RejectReason reason,
                        std::span<const std::byte> info, std::span<const std::byte> private_data) {
  Rej rej;
  rej.local_id = connection.local_id;
  rej.remote_id = connection.remote_id;
  rej.about = static_cast<uint8_t>(about);
  rej.reason = static_cast<uint16_t>(reason);
  rej.info_length = static_cast<uint8_t>(info.size());
  const bool fits = Fill(rej.info, info) && Fill(rej.private_data, private_data);
  assert(fits);
  (void)fits;
  SendOnce(connection, rej);
}

absl::Status Engine::Reject(roce::TimeNs now, uint32_t id, RejectReason reason,
                            std::span<const std::byte> info,
                            std::span<const std::byte> private_data) {
  if (info.size() > sizeof(Rej::info) || private_data.size() > sizeof(Rej::private_data)) {
    return TooLong();
  }
  Connection* c = Get(id);
  if (c == nullptr) return WrongState();
  switch (c->state) {
    case State::kReqReceived:
    case State::kMraReqSent:
      SendReject(*c, AboutMessage::kReq, reason, info, private_data);
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
      SendReject(*c, AboutMessage::kRep, reason, info, private_data);
      break;
    default:
      return WrongState();
  }
  Linger(now, *c, State::kRejected);
  return absl::OkStatus();
}

void Engine::RefuseRequest(Connection& c, RejectReason reason) {
  if (c.state == State::kSidrReqReceived) {
    SidrRep rep;
    rep.request_id = c.remote_id;
    rep.status =
        static_cast<uint8_t>(reason == RejectReason::kInvalidServiceId ? SidrStatus::kNotSupported
                                                                       : SidrStatus::kRejected);
    rep.service_id = c.service_id;
    SendOnce(c, rep);
  } else {
    SendReject(c, AboutMessage::kReq, reason, {}, {});
  }
  Forget(c);
}

void Engine::Recount(MadReason why) {
  --reasons_[static_cast<size_t>(MadReason::kNone)];
  CountReason(why);
}

void Engine::Refuse(uint32_t id, RejectReason reason, MadReason why) {
  Connection* c = Get(id);
  if (c == nullptr) return;
  RefuseRequest(*c, reason);
  Recount(why);
}

void Engine::Drop(uint32_t id, MadReason why) {
  Connection* c = Get(id);
  if (c == nullptr) return;
  Forget(*c);
  Recount(why);
}

absl::Status Engine::Disconnect(roce::TimeNs now, uint32_t id) {
  Connection* c = Get(id);
  if (c == nullptr) return WrongState();
  switch (c->state) {
    case State::kEstablished:
    case State::kRepReceived:
    case State::kMraRepSent:
    case State::kRepSent:
    case State::kMraRepReceived:
      BeginRelease(now, *c);
      return absl::OkStatus();
    case State::kDreqSent:
    case State::kTimewait:  // the peer was first
      return absl::OkStatus();
    default:
      return WrongState();
  }
}

absl::Status Engine::NoticeEstablished(roce::TimeNs, uint32_t id) {
  Connection* c = Get(id);
  if (c == nullptr) return WrongState();
  if (c->state == State::kEstablished) return absl::AlreadyExistsError("established");
  if (c->state != State::kRepSent && c->state != State::kMraRepReceived) return WrongState();
  c->state = State::kEstablished;
  SetDeadline(*c, roce::kNever);
  Tell(*c, EventKind::kEstablished);
  return absl::OkStatus();
}

void Engine::AbandonRequest(Connection& connection) {
  // The peer's ID may be unknown: our ID and GUID identify the connection (12.6.7).
  std::array<std::byte, sizeof(uint64_t)> guid;
  roce::StoreBe<uint64_t>(guid.data(), config_.ca_guid);
  SendReject(connection, AboutMessage::kReq, RejectReason::kTimeout, guid, {});
  Forget(connection);
}

void Engine::Release(roce::TimeNs now, uint32_t id) {
  Connection* c = Get(id);
  if (c == nullptr) return;
  LeaveBehind(*c);
  std::erase_if(events_, [id](const Event& event) { return event.id == id; });
  switch (c->state) {
    case State::kReqSent:
    case State::kMraReqReceived:
      return AbandonRequest(*c);
    case State::kReqReceived:
    case State::kMraReqSent:
      SendReject(*c, AboutMessage::kReq, RejectReason::kConsumer, {}, {});
      return Linger(now, *c, State::kRejected);
    case State::kRepReceived:
    case State::kMraRepSent:
      SendReject(*c, AboutMessage::kRep, RejectReason::kConsumer, {}, {});
      return Linger(now, *c, State::kRejected);
    case State::kRepSent:
    case State::kMraRepReceived:
    case State::kEstablished:
      return BeginRelease(now, *c);
    case State::kSidrReqReceived:
      return RefuseRequest(*c, RejectReason::kConsumer);
    case State::kSidrReqSent:
      return Forget(*c);
    case State::kDreqSent:
    case State::kRejected:
    case State::kTimewait:
    case State::kSidrAnswered:
      return;  // the timer removes them
  }
}

}  // namespace roci::control::cm
