// The communication manager's engine: single messages, refusals, limits. tests/sim/cm_sim_test.cc
// has complete connections over lossy networks.
#include <gtest/gtest.h>

#include "control/cm/command_decoder.h"
#include "control/cm/engine.h"
#include "control/loop/errno_status.h"
#include "control/net/ip_text.h"

namespace roci::control::cm {
namespace {

const roce::Gid kOurs = *ParseIp("10.0.0.1");
const roce::Gid kTheirs = *ParseIp("10.0.0.2");

roce::Path Back() {
  roce::Path path;
  path.src_gid = kOurs;
  path.dst_gid = kTheirs;
  return path;
}

Req GoodReq(uint32_t id = 5, uint32_t qpn = 77) {
  Req req;
  req.local_id = id;
  req.local_ca_guid = 9;
  req.local_qpn = qpn;
  req.path_mtu = 3;
  req.max_cm_retries = 3;
  req.primary.local_gid = kTheirs;
  req.primary.remote_gid = kOurs;
  return req;
}

class CmEngine : public testing::Test {
 protected:
  MadReason Receive(Body body) { return engine_.HandleMad(1, Back(), BuildMad({1, body})); }
  // Returns the message to be sent; there must be exactly one.
  template <class T>
  T Sent() {
    const std::vector<Outgoing> out = engine_.TakeOutgoing();
    EXPECT_EQ(out.size(), 1u);
    Message message;
    EXPECT_EQ(ParseMad(out.at(0).mad, message), MadReason::kNone);
    return std::get<T>(message.body);
  }
  RejectReason RejectionOf(const Req& req) {
    Receive(req);
    EXPECT_TRUE(engine_.TakeEvents().empty());
    const Rej rej = Sent<Rej>();
    EXPECT_EQ(rej.remote_id, req.local_id);
    return static_cast<RejectReason>(rej.reason);
  }
  // Creates an established connection with this side passive.
  uint32_t Establish(uint32_t id, uint32_t qpn) {
    EXPECT_EQ(Receive(GoodReq(id, qpn)), MadReason::kNone);
    const uint32_t ours = engine_.TakeEvents().at(0).id;
    engine_.Adopt(ours, 1, 0);
    EXPECT_TRUE(engine_.Accept(1, ours, {.qpn = 8}).ok());
    EXPECT_EQ(Receive(Rtu{id, ours, {}}), MadReason::kNone);
    EXPECT_EQ(engine_.TakeEvents().at(0).kind, EventKind::kEstablished);
    engine_.TakeOutgoing();
    return ours;
  }

  EngineConfig config_{.ca_guid = 4, .max_path_mtu = 4, .max_connections = 3};
  Engine engine_{config_, 1};
};

TEST_F(CmEngine, RefusesInvalidRequests) {
  Req req = GoodReq();
  req.path_mtu = 5;
  EXPECT_EQ(RejectionOf(req), RejectReason::kInvalidPathMtu);
  req = GoodReq();
  req.primary.remote_gid = *ParseIp("10.0.0.3");
  EXPECT_EQ(RejectionOf(req), RejectReason::kPrimaryRemoteGid);
  req = GoodReq();
  req.transport_service = static_cast<uint8_t>(TransportService::kRd);
  EXPECT_EQ(RejectionOf(req), RejectReason::kInvalidTransportServiceType);
  EXPECT_EQ(engine_.size(), 0u);
}

TEST_F(CmEngine, HasALimitOfConnections) {
  for (uint32_t i = 1; i <= 3; ++i) EXPECT_EQ(Receive(GoodReq(i, i)), MadReason::kNone);
  engine_.TakeEvents();
  EXPECT_EQ(RejectionOf(GoodReq(4, 4)), RejectReason::kNoResources);
  EXPECT_FALSE(engine_.Connect(1, {}).ok());
}

TEST_F(CmEngine, APeerInAnotherVlanIsAnother) {
  const uint32_t ours = Establish(5, 77);
  roce::Path elsewhere = Back();
  elsewhere.has_vlan = true;
  elsewhere.vlan_tci = 7;
  const Dreq dreq{5, ours, 8, {}};
  EXPECT_EQ(engine_.HandleMad(1, elsewhere, BuildMad({1, dreq})), MadReason::kUnknownConnection);
  EXPECT_TRUE(engine_.TakeEvents().empty());
  engine_.TakeOutgoing();
  EXPECT_EQ(Receive(dreq), MadReason::kNone);
}

TEST_F(CmEngine, TheServiceLevelIsTheVlansPriority) {
  ConnectOptions options;
  options.path = Back();
  options.path.has_vlan = true;
  options.path.vlan_tci = 7 | 5 << 13;
  ASSERT_TRUE(engine_.Connect(1, options).ok());
  EXPECT_EQ(Sent<Req>().primary.sl, 5);
}

TEST_F(CmEngine, AnswersStrangers) {
  EXPECT_EQ(Receive(Dreq{3, 4, 5, {}}), MadReason::kUnknownConnection);
  EXPECT_EQ(Sent<Drep>().remote_id, 3u);
  Rep rep;
  rep.local_id = 3;
  EXPECT_EQ(Receive(rep), MadReason::kUnknownConnection);
  EXPECT_EQ(Sent<Rej>().reason, static_cast<uint16_t>(RejectReason::kInvalidCommunicationId));
  for (const Body& body : {Body(Rtu{3, 4, {}}), Body(Drep{3, 4, {}}), Body(Mra{}), Body(Rej{})}) {
    EXPECT_EQ(Receive(body), MadReason::kUnknownConnection);
    EXPECT_TRUE(engine_.TakeOutgoing().empty());
  }
}

TEST_F(CmEngine, RefusesAnotherPath) {
  const uint32_t ours = Establish(5, 77);
  Lap lap;
  lap.local_id = 5;
  lap.remote_id = ours;
  EXPECT_EQ(Receive(lap), MadReason::kNone);
  EXPECT_EQ(Sent<Apr>().status, static_cast<uint8_t>(AprStatus::kNotSupported));
}

// 12.9.8.3.1: a peer that reuses a connected QP has lost the connection.
TEST_F(CmEngine, EndsStaleConnections) {
  const uint32_t ours = Establish(5, 77);
  EXPECT_EQ(Receive(GoodReq(6, 77)), MadReason::kUnexpected);
  const std::vector<Outgoing> out = engine_.TakeOutgoing();
  ASSERT_EQ(out.size(), 2u);
  Message message;
  ASSERT_EQ(ParseMad(out[0].mad, message), MadReason::kNone);
  EXPECT_EQ(std::get<Rej>(message.body).reason,
            static_cast<uint16_t>(RejectReason::kStaleConnection));
  EXPECT_EQ(engine_.Find(ours)->state, State::kDreqSent);
}

TEST_F(CmEngine, TakesNoDisconnectionFromOthers) {
  const uint32_t ours = Establish(5, 77);
  EXPECT_EQ(Receive(Dreq{5, ours, 9, {}}), MadReason::kUnexpected);  // another QP
  EXPECT_EQ(Receive(Dreq{6, ours, 8, {}}), MadReason::kUnknownConnection);
  roce::Path stranger = Back();
  stranger.dst_gid = *ParseIp("10.0.0.3");
  EXPECT_EQ(engine_.HandleMad(1, stranger, BuildMad({1, Dreq{5, ours, 8, {}}})),
            MadReason::kUnknownConnection);
  EXPECT_EQ(engine_.Find(ours)->state, State::kEstablished);
  EXPECT_TRUE(engine_.TakeEvents().empty());
  EXPECT_EQ(Receive(Dreq{5, ours, 8, {}}), MadReason::kNone);
  EXPECT_EQ(engine_.TakeEvents().at(0).kind, EventKind::kDisconnected);
}

TEST_F(CmEngine, CarriesEnhancedConnectionEstablishment) {
  const Ece offered{0xABCDEF, 0x12345678};
  ConnectOptions options;
  options.path = Back();
  options.ece = offered;
  ASSERT_TRUE(engine_.Connect(1, options).ok());
  EXPECT_EQ(Sent<Req>().ece(), offered);
  EXPECT_EQ(Receive(GoodReq()), MadReason::kNone);
  const uint32_t id = engine_.TakeEvents().at(0).id;
  AcceptOptions accept;
  accept.ece = offered;
  ASSERT_TRUE(engine_.Accept(1, id, accept).ok());
  EXPECT_EQ(Sent<Rep>().ece(), offered);
  for (const SidrStatus status : {SidrStatus::kValid, SidrStatus::kRejected}) {
    SidrReq sidr;
    sidr.request_id = 6 + static_cast<uint32_t>(status);
    EXPECT_EQ(Receive(sidr), MadReason::kNone);
    DatagramAnswer answer;
    answer.status = status;
    answer.ece = offered;
    ASSERT_TRUE(engine_.AnswerDatagram(1, engine_.TakeEvents().at(0).id, answer).ok());
    EXPECT_EQ(Sent<SidrRep>().ece(), status == SidrStatus::kValid ? offered : Ece{});
  }
}

TEST_F(CmEngine, ChecksTheOwnersRequests) {
  std::vector<std::byte> data(300);
  const std::span<const std::byte> all(data);
  EXPECT_FALSE(engine_.Connect(1, {.private_data = all.first(93)}).ok());
  EXPECT_FALSE(engine_.ConnectDatagram(1, {.private_data = all.first(217)}).ok());
  EXPECT_EQ(engine_.size(), 0u);
  EXPECT_EQ(Receive(GoodReq()), MadReason::kNone);
  const uint32_t id = engine_.TakeEvents().at(0).id;
  EXPECT_TRUE(absl::IsInvalidArgument(engine_.Accept(1, id, {.private_data = all.first(197)})));
  EXPECT_TRUE(
      absl::IsInvalidArgument(engine_.Reject(1, id, RejectReason::kConsumer, {}, all.first(149))));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_.Ready(1, id)));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_.Disconnect(1, id)));
  EXPECT_TRUE(engine_.Reject(1, id, RejectReason::kConsumer, {}, all.first(148)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_.Accept(1, id, {})));
}

class CmTable : public CmEngine {
 protected:
  static constexpr roce::TimeNs kMs = 1'000'000;

  uint32_t Request(uint32_t number, uint32_t account) {
    EXPECT_EQ(Receive(GoodReq(number, number)), MadReason::kNone);
    const uint32_t ours = engine_.TakeEvents().at(0).id;
    engine_.Adopt(ours, number, account);
    return ours;
  }
  uint32_t Rejected(uint32_t number, uint32_t account) {
    const uint32_t ours = Request(number, account);
    EXPECT_TRUE(engine_.Reject(1, ours, RejectReason::kConsumer, {}, {}).ok());
    engine_.TakeOutgoing();
    return ours;
  }
};

TEST_F(CmTable, ARejectedRequestIsRememberedForHalfASecond) {
  Rejected(5, 0);
  engine_.HandleTimeout(300 * kMs);
  Receive(GoodReq(5, 5));
  EXPECT_EQ(Sent<Rej>().reason, static_cast<uint16_t>(RejectReason::kConsumer));
  EXPECT_TRUE(engine_.TakeEvents().empty());
  engine_.HandleTimeout(600 * kMs);
  EXPECT_EQ(engine_.size(), 0u);
  Request(5, 0);  // a new one
}

TEST_F(CmTable, AnAnsweredDatagramRequestIsRememberedForHalfASecond) {
  SidrReq req;
  req.request_id = 6;
  EXPECT_EQ(Receive(req), MadReason::kNone);
  const uint32_t ours = engine_.TakeEvents().at(0).id;
  engine_.Adopt(ours, 1, 0);
  ASSERT_TRUE(engine_.AnswerDatagram(1, ours, {.qpn = 8}).ok());
  EXPECT_EQ(Sent<SidrRep>().qpn, 8u);
  EXPECT_EQ(Receive(req), MadReason::kNone);
  EXPECT_EQ(Sent<SidrRep>().qpn, 8u);
  EXPECT_TRUE(engine_.TakeEvents().empty());
  engine_.HandleTimeout(600 * kMs);
  EXPECT_EQ(engine_.size(), 0u);
}

TEST_F(CmTable, NoPeerDecidesHowLongItIsRemembered) {
  const roce::TimeNs most = roce::TimeoutNs(config_.max_peer_timeout) + 1000 * kMs;
  Req req = GoodReq();
  req.local_response_timeout = 31;
  Receive(req);
  const uint32_t ours = engine_.TakeEvents().at(0).id;
  engine_.Adopt(ours, 1, 0);
  ASSERT_TRUE(engine_.Accept(1, ours, {}).ok());
  EXPECT_LT(engine_.NextTimeout(), most);
  Mra mra{5, ours, static_cast<uint8_t>(AboutMessage::kRep), 31, {}};
  EXPECT_EQ(Receive(mra), MadReason::kNone);
  EXPECT_EQ(engine_.Find(ours)->state, State::kMraRepReceived);
  EXPECT_LT(engine_.NextTimeout(), most);
}

TEST_F(CmTable, ConnectionsWithoutAnOwnerMakeRoom) {
  for (uint32_t i = 1; i <= 3; ++i) Rejected(i, 0);
  EXPECT_EQ(engine_.displaced(), 0u);
  for (uint32_t i = 11; i <= 13; ++i) Request(i, 0);
  EXPECT_EQ(engine_.displaced(), 3u);
  EXPECT_EQ(engine_.size(), config_.max_connections);
  EXPECT_EQ(RejectionOf(GoodReq(14, 14)), RejectReason::kNoResources);
}

TEST_F(CmTable, TheAccountWithTheMostUnownedConnectionsMakesRoom) {
  const uint32_t of_other = Rejected(1, 7);  // the oldest of all
  const uint32_t first = Rejected(2, 8);
  const uint32_t second = Rejected(3, 8);
  const uint32_t wanted = Request(4, 9);
  EXPECT_NE(engine_.Find(of_other), nullptr);
  EXPECT_EQ(engine_.Find(first), nullptr);
  EXPECT_NE(engine_.Find(second), nullptr);
  EXPECT_NE(engine_.Find(wanted), nullptr);
}

TEST_F(CmTable, RefusedRequestsAreNotCountedAsTaken) {
  const auto count = [this](MadReason reason) {
    return engine_.reasons()[static_cast<size_t>(reason)];
  };
  Receive(GoodReq(1, 1));
  engine_.Refuse(engine_.TakeEvents().at(0).id, RejectReason::kInvalidServiceId,
                 MadReason::kNoListener);
  EXPECT_EQ(Sent<Rej>().reason, static_cast<uint16_t>(RejectReason::kInvalidServiceId));
  Receive(GoodReq(2, 2));
  engine_.Drop(engine_.TakeEvents().at(0).id, MadReason::kBacklog);
  EXPECT_TRUE(engine_.TakeOutgoing().empty());
  Request(3, 0);
  EXPECT_EQ(count(MadReason::kNone), 1u);
  EXPECT_EQ(count(MadReason::kNoListener), 1u);
  EXPECT_EQ(count(MadReason::kBacklog), 1u);
  engine_.Drop(99, MadReason::kBacklog);  // of no request
  EXPECT_EQ(count(MadReason::kBacklog), 1u);
}

TEST_F(CmTable, AReleaseThatIsDisplacedIsAStrangers) {
  const uint32_t ours = Establish(5, 77);
  engine_.Release(1, ours);
  engine_.TakeOutgoing();
  for (uint32_t i = 11; i <= 13; ++i) Request(i, 0);
  EXPECT_EQ(engine_.Find(ours), nullptr);
  EXPECT_EQ(Receive(Drep{5, ours, {}}), MadReason::kUnknownConnection);
  engine_.HandleTimeout(roce::kNever - 1);  // no timer of its own is left
}

TEST(CmCommands, AreCheckedForTheirSize) {
  roci_abi_cm_request request = {};
  Command command;
  request.command = RDMA_USER_CM_CMD_CREATE_ID;
  request.in_size = sizeof(rdma_ucm_create_id);
  request.out_size = sizeof(rdma_ucm_create_id_resp);
  EXPECT_TRUE(DecodeCommand(request, command).ok());
  request.in_size -= 1;
  EXPECT_EQ(ErrnoOf(DecodeCommand(request, command)), EINVAL);
  request.in_size += 1;
  request.out_size -= 1;
  EXPECT_EQ(ErrnoOf(DecodeCommand(request, command)), ENOSPC);
  request.out_size += 1;
  request.extra_size = 1;
  EXPECT_EQ(ErrnoOf(DecodeCommand(request, command)), EINVAL);
  request.extra_size = ~0u;
  EXPECT_EQ(ErrnoOf(DecodeCommand(request, command)), EINVAL);
  request.command = RDMA_USER_CM_CMD_GET_OPTION;
  EXPECT_EQ(ErrnoOf(DecodeCommand(request, command)), ENOSYS);
  // An older library's connect has no ECE.
  request = {};
  request.command = RDMA_USER_CM_CMD_CONNECT;
  request.in_size = offsetof(rdma_ucm_connect, ece);
  EXPECT_TRUE(DecodeCommand(request, command).ok());
  // The value of an option follows the command.
  request.command = RDMA_USER_CM_CMD_SET_OPTION;
  request.in_size = sizeof(rdma_ucm_set_option);
  request.extra_size = 4;
  request.data[sizeof(rdma_ucm_set_option)] = 42;
  ASSERT_TRUE(DecodeCommand(request, command).ok());
  EXPECT_EQ(command.extra.size(), 4u);
  EXPECT_EQ(command.extra[0], std::byte{42});
}

}  // namespace
}  // namespace roci::control::cm
