// The messages that the communication manager's engine sends: every field that an owner or a peer
// determines, retransmissions, timewait (IBTA vol 1, 12.6 to 12.9).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "control/cm/engine.h"
#include "control/net/ip_text.h"

namespace roci::control::cm {
namespace {

constexpr roce::TimeNs kStart = 1000;
constexpr uint64_t kTransaction = 0xA1B2'C3D4'E5F6'0718;
constexpr uint64_t kService = 0x0102'0304'0506'0708;
const roce::Gid kOurs = *ParseIp("10.0.0.1");
const roce::Gid kTheirs = *ParseIp("10.0.0.2");

roce::Path Back() {
  roce::Path path;
  path.src_gid = kOurs;
  path.dst_gid = kTheirs;
  return path;
}

Req GoodReq() {
  Req req;
  req.local_id = 5;
  req.local_ca_guid = 9;
  req.local_qpn = 77;
  req.service_id = kService;
  req.path_mtu = 3;
  req.max_cm_retries = 3;
  req.local_response_timeout = 18;
  req.responder_resources = 11;
  req.initiator_depth = 6;
  req.primary.local_gid = kTheirs;
  req.primary.remote_gid = kOurs;
  return req;
}

class CmMessages : public testing::Test {
 protected:
  MadReason Receive(roce::TimeNs now, Body body) {
    return engine_.HandleMad(now, Back(), BuildMad({kTransaction, body}));
  }
  Message SentMessage() {
    const std::vector<Outgoing> out = engine_.TakeOutgoing();
    EXPECT_EQ(out.size(), 1u);
    Message message;
    EXPECT_EQ(ParseMad(out.at(0).mad, message), MadReason::kNone);
    return message;
  }
  template <class T>
  T Sent() {
    return std::get<T>(SentMessage().body);
  }
  uint32_t Connect() {
    ConnectOptions options;
    options.owner = 1;
    options.path = Back();
    options.service_id = kService;
    options.qpn = 0x123456;
    options.psn = 0x654321;
    options.path_mtu = 4;
    options.responder_resources = 7;
    options.initiator_depth = 9;
    options.retry_count = 5;
    options.rnr_retry_count = 6;
    return *engine_.Connect(kStart, options);
  }
  uint32_t TakeRequest() {
    EXPECT_EQ(Receive(kStart, GoodReq()), MadReason::kNone);
    const uint32_t ours = engine_.TakeEvents().at(0).id;
    engine_.Adopt(ours, 1, 0);
    return ours;
  }
  uint32_t Establish() {
    const uint32_t ours = TakeRequest();
    EXPECT_TRUE(engine_.Accept(kStart, ours, {.qpn = 8}).ok());
    EXPECT_EQ(Receive(kStart, Rtu{5, ours, {}}), MadReason::kNone);
    engine_.TakeEvents();
    engine_.TakeOutgoing();
    return ours;
  }
  // Advances time until the engine reports an event to the owner. Returns how often it repeated the
  // message `first`, each time `interval` after the previous one, before it sent another message.
  uint32_t Repetitions(const MadBytes& first, roce::TimeNs interval) {
    roce::TimeNs last = kStart;
    for (uint32_t count = 0;; ++count) {
      const roce::TimeNs next = engine_.NextTimeout();
      EXPECT_EQ(next, last + interval) << "repetition " << count;
      if (next == roce::kNever) return count;
      engine_.HandleTimeout(next - 1);
      EXPECT_TRUE(engine_.TakeOutgoing().empty()) << "too early";
      engine_.HandleTimeout(next);
      last_events_ = engine_.TakeEvents();
      if (!last_events_.empty()) return count;
      const std::vector<Outgoing> out = engine_.TakeOutgoing();
      EXPECT_EQ(out.size(), 1u);
      if (out.size() != 1) return count;
      EXPECT_EQ(out[0].mad, first);
      last = next;
    }
  }
  roce::TimeNs Interval(uint8_t exponent) const {
    return roce::TimeoutNs(exponent) + 2 * roce::TimeoutNs(config_.packet_life_time);
  }

  EngineConfig config_{.ca_guid = 4, .max_path_mtu = 4, .max_retries = 4};
  Engine engine_{config_, 1};
  std::vector<Event> last_events_;
};

TEST_F(CmMessages, ARequestHasTheOwnersParameters) {
  const uint32_t ours = Connect();
  const Req req = Sent<Req>();
  EXPECT_EQ(req.local_id, ours);
  EXPECT_EQ(req.service_id, kService);
  EXPECT_EQ(req.local_ca_guid, 4u);
  EXPECT_EQ(req.local_qpn, 0x123456u);
  EXPECT_EQ(req.starting_psn, 0x654321u);
  EXPECT_EQ(req.path_mtu, 4);
  EXPECT_EQ(req.responder_resources, 7);
  EXPECT_EQ(req.initiator_depth, 9);
  EXPECT_EQ(req.retry_count, 5);
  EXPECT_EQ(req.rnr_retry_count, 6);
  EXPECT_EQ(req.max_cm_retries, config_.max_retries);
  EXPECT_EQ(req.local_response_timeout, config_.response_timeout);
  EXPECT_EQ(req.primary.local_gid, kOurs);
  EXPECT_EQ(req.primary.remote_gid, kTheirs);
}

TEST_F(CmMessages, ARequestIsRepeatedAsOftenAsItSays) {
  Connect();
  const MadBytes first = engine_.TakeOutgoing().at(0).mad;
  EXPECT_EQ(Repetitions(first, Interval(config_.response_timeout)), config_.max_retries);
  EXPECT_EQ(last_events_.at(0).kind, EventKind::kUnreachable);
  EXPECT_EQ(Sent<Rej>().reason, static_cast<uint16_t>(RejectReason::kTimeout));
  EXPECT_EQ(engine_.size(), 0u);
}

TEST_F(CmMessages, AReplyIsRepeatedAsOftenAsThePeerSays) {
  const uint32_t ours = TakeRequest();
  ASSERT_TRUE(engine_.Accept(kStart, ours, {.qpn = 8}).ok());
  const MadBytes first = engine_.TakeOutgoing().at(0).mad;
  EXPECT_EQ(Repetitions(first, Interval(18)), 3u);
  EXPECT_EQ(last_events_.at(0).kind, EventKind::kUnreachable);
  EXPECT_EQ(Sent<Dreq>().remote_id, 5u);
}

TEST_F(CmMessages, EachSideAppliesTheParametersOfTheOther) {
  const uint32_t ours = TakeRequest();
  EXPECT_EQ(engine_.Find(ours)->responder_resources, 6);
  EXPECT_EQ(engine_.Find(ours)->initiator_depth, 11);
  const uint32_t active = Connect();
  engine_.TakeOutgoing();
  Rep rep;
  rep.local_id = 6;
  rep.remote_id = active;
  rep.local_ca_guid = 9;
  rep.local_qpn = 78;
  rep.responder_resources = 2;
  rep.initiator_depth = 3;
  EXPECT_EQ(Receive(kStart, rep), MadReason::kNone);
  EXPECT_EQ(engine_.Find(active)->responder_resources, 3);
  EXPECT_EQ(engine_.Find(active)->initiator_depth, 2);
}

TEST_F(CmMessages, AnswersHaveTheTransactionOfTheRequest) {
  const uint32_t ours = TakeRequest();
  ASSERT_TRUE(engine_.Accept(kStart, ours, {.qpn = 8}).ok());
  Message message = SentMessage();
  EXPECT_EQ(message.type(), MessageType::kRep);
  EXPECT_EQ(message.transaction, kTransaction);
  EXPECT_EQ(Receive(kStart, Dreq{5, ours, 8, {}}), MadReason::kNone);
  message = SentMessage();
  EXPECT_EQ(message.type(), MessageType::kDrep);
  EXPECT_EQ(message.transaction, kTransaction);
  SidrReq sidr;
  sidr.request_id = 6;
  EXPECT_EQ(Receive(kStart, sidr), MadReason::kNone);
  ASSERT_TRUE(engine_.AnswerDatagram(kStart, engine_.TakeEvents().back().id, {}).ok());
  EXPECT_EQ(SentMessage().transaction, kTransaction);
}

TEST_F(CmMessages, ARejectionHasItsReasonAndMessage) {
  for (const RejectReason reason :
       {RejectReason::kConsumer, RejectReason::kNoResources, RejectReason::kInvalidServiceId}) {
    const uint32_t ours = TakeRequest();
    const std::array info = {std::byte{0x5A}, std::byte{0xA5}};
    const std::array data = {std::byte{1}, std::byte{2}, std::byte{3}};
    ASSERT_TRUE(engine_.Reject(kStart, ours, reason, info, data).ok());
    const Rej rej = Sent<Rej>();
    EXPECT_EQ(rej.local_id, ours);
    EXPECT_EQ(rej.remote_id, 5u);
    EXPECT_EQ(rej.about, static_cast<uint8_t>(AboutMessage::kReq));
    EXPECT_EQ(rej.reason, static_cast<uint16_t>(reason));
    EXPECT_EQ(rej.info_length, info.size());
    EXPECT_TRUE(std::equal(info.begin(), info.end(), rej.info.begin()));
    EXPECT_TRUE(std::equal(data.begin(), data.end(), rej.private_data.begin()));
    engine_.HandleTimeout(engine_.NextTimeout());
    EXPECT_EQ(engine_.size(), 0u);
  }
}

TEST_F(CmMessages, ADatagramAnswerHasTheOwnersParameters) {
  SidrReq req;
  req.request_id = 6;
  req.service_id = kService;
  EXPECT_EQ(Receive(kStart, req), MadReason::kNone);
  const std::array data = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(engine_
                  .AnswerDatagram(kStart, engine_.TakeEvents().at(0).id,
                                  {.qpn = 0x123456, .qkey = 0x89ABCDEF, .private_data = data})
                  .ok());
  const SidrRep rep = Sent<SidrRep>();
  EXPECT_EQ(rep.request_id, 6u);
  EXPECT_EQ(rep.status, static_cast<uint8_t>(SidrStatus::kValid));
  EXPECT_EQ(rep.qpn, 0x123456u);
  EXPECT_EQ(rep.qkey, 0x89ABCDEFu);
  EXPECT_EQ(rep.service_id, kService);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), rep.private_data.begin()));
}

TEST_F(CmMessages, APeerThatAsksForPatienceGetsIt) {
  const uint32_t active = Connect();
  engine_.TakeOutgoing();
  Mra mra{6, active, static_cast<uint8_t>(AboutMessage::kReq), 22, {}};
  EXPECT_EQ(Receive(kStart, mra), MadReason::kNone);
  EXPECT_EQ(engine_.NextTimeout(), kStart + Interval(22));
  engine_.HandleTimeout(engine_.NextTimeout() - 1);
  EXPECT_TRUE(engine_.TakeOutgoing().empty());
}

// 12.9.8.4: the connection answers until no copy of a message can be in flight.
TEST_F(CmMessages, TimewaitLastsTwoLifeTimesAndAnswersMeanwhile) {
  const uint32_t ours = Establish();
  EXPECT_EQ(Receive(kStart, Dreq{5, ours, 8, {}}), MadReason::kNone);
  EXPECT_EQ(engine_.TakeEvents().at(0).kind, EventKind::kDisconnected);
  EXPECT_EQ(Sent<Drep>().remote_id, 5u);
  const roce::TimeNs end = kStart + 2 * roce::TimeoutNs(config_.packet_life_time);
  EXPECT_EQ(engine_.NextTimeout(), end);
  engine_.HandleTimeout(end - 1);
  EXPECT_EQ(Receive(end - 1, Dreq{5, ours, 8, {}}), MadReason::kNone);
  const Drep drep = Sent<Drep>();
  EXPECT_EQ(drep.local_id, ours);
  EXPECT_EQ(drep.remote_id, 5u);
  EXPECT_EQ(Receive(end - 1, GoodReq()), MadReason::kNone);
  EXPECT_EQ(Sent<Rej>().reason, static_cast<uint16_t>(RejectReason::kStaleConnection));
  EXPECT_TRUE(engine_.TakeEvents().empty());
  engine_.HandleTimeout(end);
  EXPECT_EQ(engine_.TakeEvents().at(0).kind, EventKind::kTimewaitOver);
  EXPECT_EQ(engine_.size(), 0u);
}

TEST_F(CmMessages, ARequestThatCameTwiceIsOne) {
  const uint32_t ours = TakeRequest();
  EXPECT_EQ(Receive(kStart, GoodReq()), MadReason::kNone);
  EXPECT_TRUE(engine_.TakeEvents().empty());
  EXPECT_EQ(engine_.size(), 1u);
  EXPECT_EQ(Sent<Mra>().local_id, ours);
  ASSERT_TRUE(engine_.Accept(kStart, ours, {.qpn = 8}).ok());
  const MadBytes reply = engine_.TakeOutgoing().at(0).mad;
  EXPECT_EQ(Receive(kStart, GoodReq()), MadReason::kNone);
  EXPECT_EQ(engine_.TakeOutgoing().at(0).mad, reply);
}

}  // namespace
}  // namespace roci::control::cm
