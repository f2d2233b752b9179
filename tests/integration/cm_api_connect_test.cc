// Connections of librdmacm: parameters that each end learns from the other, and the results of
// calls in each state.
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/cm_end.h"

namespace roci::testing {
namespace {

// Private data that the RDMA IP CM header leaves in REQ, REP and REJ (IBTA vol 1, A11).
constexpr size_t kMostOfRequest = 56;
constexpr size_t kMostOfReply = 196;
constexpr size_t kMostOfReject = 148;
constexpr int kConsumerReject = 28;
constexpr int kInvalidServiceId = 8;

std::string Padded(std::string data, size_t size) {
  data.resize(size, '\0');
  return data;
}

// A type of service as the daemon uses it: six bits, without the ECN bits.
constexpr uint8_t kTypeOfService = 0x68;

TEST(CmConnect, RequestReportsThePeersParameters) {
  EventChannel server, client;
  const Id listener = server.Listen(kFar, 7401);
  const Id active = client.Route(kFar, 7401);
  const std::string data = Padded("hello", kMostOfRequest);
  const std::string too_long = Padded("hello", kMostOfRequest + 1);
  rdma_conn_param wrong = Parameters(too_long);
  EXPECT_EQ(ErrorOf(rdma_connect(active.get(), &wrong)), EINVAL);
  rdma_conn_param asked = Parameters(data);
  asked.srq = 1;
  ASSERT_EQ(rdma_connect(active.get(), &asked), 0) << strerror(errno);
  EXPECT_EQ(ErrorOf(rdma_connect(active.get(), &asked)), EINVAL) << "under way";
  Seen seen;
  const Id passive = server.ExpectRequest(&seen);
  ASSERT_NE(passive, nullptr);
  EXPECT_EQ(seen.listener, listener.get());
  EXPECT_EQ(seen.data, data);
  // Each side's responder serves the other's initiator.
  EXPECT_EQ(seen.conn.responder_resources, asked.initiator_depth);
  EXPECT_EQ(seen.conn.initiator_depth, asked.responder_resources);
  EXPECT_EQ(seen.conn.flow_control, 1);
  EXPECT_EQ(seen.conn.retry_count, asked.retry_count);
  EXPECT_EQ(seen.conn.rnr_retry_count, asked.rnr_retry_count);
  EXPECT_EQ(seen.conn.srq, 1);
  EXPECT_EQ(seen.conn.qp_num, asked.qp_num);
  EXPECT_EQ(ntohs(rdma_get_src_port(passive.get())), 7401);
  EXPECT_EQ(rdma_get_dst_port(passive.get()), rdma_get_src_port(active.get()));
  EXPECT_EQ(passive->qp_type, IBV_QPT_RC);
}

TEST(CmConnect, ReplyReportsThePeersParameters) {
  Connection c(7402);
  const std::string data = Padded("world", kMostOfReply);
  rdma_conn_param answer = Parameters(data);
  answer.responder_resources = 2;
  answer.initiator_depth = 1;
  answer.rnr_retry_count = 3;
  answer.srq = 1;
  ASSERT_EQ(rdma_accept(c.passive.get(), &answer), 0) << strerror(errno);
  const Seen seen = c.near_channel.Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(seen.id, c.active.get());
  EXPECT_EQ(seen.status, 0);
  EXPECT_EQ(seen.data, data);
  EXPECT_EQ(seen.conn.responder_resources, 1);
  EXPECT_EQ(seen.conn.initiator_depth, 2);
  EXPECT_EQ(seen.conn.flow_control, 1);
  EXPECT_EQ(seen.conn.rnr_retry_count, 3);
  EXPECT_EQ(seen.conn.srq, 1);
  EXPECT_EQ(seen.conn.qp_num, answer.qp_num);
}

TEST(CmConnect, LongPrivateDataOfAnAcceptRejects) {
  Connection c(7403);
  const std::string too_long = Padded("world", kMostOfReply + 1);
  rdma_conn_param answer = Parameters(too_long);
  EXPECT_EQ(ErrorOf(rdma_accept(c.passive.get(), &answer)), EINVAL);
  EXPECT_EQ(c.near_channel.Expect(RDMA_CM_EVENT_REJECTED).status, kConsumerReject);
  answer = Parameters();
  EXPECT_EQ(ErrorOf(rdma_accept(c.passive.get(), &answer)), EINVAL) << "it is over";
}

TEST(CmConnect, RejectCarriesPrivateData) {
  Connection c(7404);
  const std::string too_long = Padded("no", kMostOfReject + 1);
  EXPECT_EQ(ErrorOf(rdma_reject(c.passive.get(), too_long.data(), kMostOfReject + 1)), EINVAL);
  ASSERT_EQ(rdma_reject(c.passive.get(), "no", 3), 0) << strerror(errno);
  const Seen seen = c.near_channel.Expect(RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.status, kConsumerReject);
  EXPECT_EQ(seen.data, Padded("no", kMostOfReject));
  EXPECT_EQ(ErrorOf(rdma_reject(c.passive.get(), "no", 3)), EINVAL) << "rejected already";
  rdma_conn_param again = Parameters();
  EXPECT_EQ(ErrorOf(rdma_connect(c.active.get(), &again)), EINVAL) << "an identifier connects once";
}

TEST(CmConnect, ActiveSideRejectsTheReply) {
  Connection c(7405);
  c.Accept();
  ASSERT_EQ(rdma_reject(c.active.get(), "x", 2), 0) << strerror(errno);
  const Seen seen = c.far_channel.Expect(RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.id, c.passive.get());
  EXPECT_EQ(seen.data, Padded("x", kMostOfReject));
}

TEST(CmConnect, WithoutAListenerAndAfterItsEnd) {
  EventChannel server, client;
  const Id alone = client.Route(kFar, 7406);
  rdma_conn_param parameters = Parameters();
  ASSERT_EQ(rdma_connect(alone.get(), &parameters), 0);
  EXPECT_EQ(client.Expect(RDMA_CM_EVENT_REJECTED).status, kInvalidServiceId);

  // Destroyed by the passive program, or with the listener before the program got the event.
  Id listener = server.Listen(kFar, 7406);
  for (const bool is_seen : {true, false}) {
    const Id active = client.Route(kFar, 7406);
    parameters = Parameters();
    ASSERT_EQ(rdma_connect(active.get(), &parameters), 0);
    if (is_seen) {
      server.ExpectRequest().reset();
    } else {
      while (!server.IsWaiting()) usleep(1000);
      listener.reset();
    }
    EXPECT_EQ(client.Expect(RDMA_CM_EVENT_REJECTED).status, kConsumerReject);
  }
}

TEST(CmConnect, DisconnectBeforeThereIsAPeer) {
  EventChannel channel;
  const Id idle = channel.Create();
  EXPECT_EQ(ErrorOf(rdma_disconnect(idle.get())), EINVAL);
  const Id routed = channel.Route(kFar, 7407);
  EXPECT_EQ(ErrorOf(rdma_disconnect(routed.get())), EINVAL);
  EXPECT_EQ(ErrorOf(rdma_reject(routed.get(), nullptr, 0)), EINVAL);
  EXPECT_EQ(ErrorOf(rdma_notify(routed.get(), IBV_EVENT_COMM_EST)), EINVAL);
}

TEST(CmConnect, DisconnectWhileConnectingChangesNothing) {
  Connection c(7408);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.active.get())), 0);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.passive.get())), 0);
  c.Establish();
}

TEST(CmConnect, DisconnectAfterRejection) {
  Connection c(7409);
  ASSERT_EQ(rdma_reject(c.passive.get(), nullptr, 0), 0);
  c.near_channel.Expect(RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.active.get())), 0);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.passive.get())), 0);
  EXPECT_TRUE(c.near_channel.IsQuiet());
  EXPECT_TRUE(c.far_channel.IsQuiet());
}

TEST(CmConnect, DisconnectFromBothSidesAtAnyTime) {
  Connection c(7410);
  c.Establish();
  ASSERT_EQ(rdma_disconnect(c.active.get()), 0) << strerror(errno);
  c.near_channel.Expect(RDMA_CM_EVENT_DISCONNECTED);
  c.far_channel.Expect(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.active.get())), 0);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.passive.get())), 0);
  c.near_channel.Expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
  c.far_channel.Expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.active.get())), 0) << "like a slow program";
  EXPECT_EQ(ErrorOf(rdma_disconnect(c.passive.get())), 0);
  EXPECT_TRUE(c.far_channel.IsQuiet());
}

TEST(CmConnect, EstablishAndNotify) {
  Connection c(7411);
  EXPECT_EQ(ErrorOf(rdma_establish(c.active.get())), EINVAL) << "no reply yet";
  c.Accept();
  EXPECT_EQ(ErrorOf(rdma_notify(c.passive.get(), IBV_EVENT_PATH_MIG)), EINVAL);
  // The first message arrived before the RTU.
  EXPECT_EQ(rdma_notify(c.passive.get(), IBV_EVENT_COMM_EST), 0) << strerror(errno);
  c.far_channel.Expect(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(rdma_establish(c.active.get()), 0) << strerror(errno);
  EXPECT_EQ(ErrorOf(rdma_establish(c.active.get())), EINVAL);
  EXPECT_EQ(ErrorOf(rdma_notify(c.passive.get(), IBV_EVENT_COMM_EST)), EISCONN);
  EXPECT_EQ(ErrorOf(rdma_notify(c.active.get(), IBV_EVENT_COMM_EST)), EISCONN);
  EXPECT_TRUE(c.far_channel.IsQuiet());
}

TEST(CmConnect, LibraryEstablishesWithQueuePairs) {
  EventChannel server, client;
  const Id listener = server.Listen(kFar, 7412);
  const Id active = client.Route(kFar, 7412);
  ASSERT_EQ(CreateQueuePair(active.get()), 0) << strerror(errno);
  rdma_conn_param parameters = Parameters();
  ASSERT_EQ(rdma_connect(active.get(), &parameters), 0) << strerror(errno);
  Seen request;
  const Id passive = server.ExpectRequest(&request);
  EXPECT_EQ(request.conn.qp_num, active->qp->qp_num);
  ASSERT_EQ(CreateQueuePair(passive.get()), 0) << strerror(errno);
  ASSERT_EQ(rdma_accept(passive.get(), &parameters), 0) << strerror(errno);
  EXPECT_EQ(client.Expect(RDMA_CM_EVENT_ESTABLISHED).conn.qp_num, passive->qp->qp_num);
  server.Expect(RDMA_CM_EVENT_ESTABLISHED);
  ibv_qp_attr attributes;
  ibv_qp_init_attr unused;
  const int mask = IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_MAX_DEST_RD_ATOMIC |
                   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  ASSERT_EQ(ibv_query_qp(active->qp, &attributes, mask, &unused), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.dest_qp_num, passive->qp->qp_num);
  EXPECT_EQ(attributes.max_dest_rd_atomic, parameters.initiator_depth) << "value of the reply";
  EXPECT_EQ(attributes.retry_cnt, parameters.retry_count);
  EXPECT_EQ(attributes.rnr_retry, parameters.rnr_retry_count);
  ASSERT_EQ(rdma_disconnect(active.get()), 0) << strerror(errno);
  server.Expect(RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(ibv_query_qp(active->qp, &attributes, IBV_QP_STATE, &unused), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
}

TEST(CmConnect, TypeOfServiceAppliesToBothDirections) {
  Connection c(7413, kTypeOfService);
  EXPECT_EQ(c.active->route.path_rec->traffic_class, kTypeOfService);
  ASSERT_NE(c.passive->route.path_rec, nullptr);
  EXPECT_EQ(c.passive->route.path_rec->traffic_class, kTypeOfService);
  c.Establish();
  for (rdma_cm_id* id : {c.active.get(), c.passive.get()}) {
    ibv_qp_attr attributes;
    EXPECT_NE(Connection::Mask(id, IBV_QPS_RTR, &attributes), 0);
    EXPECT_EQ(attributes.ah_attr.grh.traffic_class, kTypeOfService);
  }
}

TEST(CmConnect, ListenersTypeOfServiceDoesNotApplyToPeers) {
  EventChannel server, client;
  const Id listener = server.Create();
  uint8_t type_of_service = 0x20;
  ASSERT_EQ(
      rdma_set_option(listener.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &type_of_service, 1), 0);
  ASSERT_EQ(rdma_bind_addr(listener.get(), Address(kFar, 7414).get()), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  const Id active = client.Route(kFar, 7414, RDMA_PS_TCP, kTypeOfService);
  rdma_conn_param parameters = Parameters();
  ASSERT_EQ(rdma_connect(active.get(), &parameters), 0);
  const Id passive = server.ExpectRequest();
  ibv_qp_attr attributes;
  EXPECT_NE(Connection::Mask(passive.get(), IBV_QPS_RTR, &attributes), 0);
  EXPECT_EQ(attributes.ah_attr.grh.traffic_class, kTypeOfService);
}

TEST(CmConnect, AckTimeoutAppliesToBothEnds) {
  EventChannel server, client;
  const Id listener = server.Listen(kFar, 7415);
  const Id active = client.Route(kFar, 7415);
  uint8_t exponent = 21;
  ASSERT_EQ(rdma_set_option(active.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent, 1),
            0);
  rdma_conn_param parameters = Parameters();
  ASSERT_EQ(rdma_connect(active.get(), &parameters), 0);
  const Id passive = server.ExpectRequest();
  ASSERT_EQ(rdma_accept(passive.get(), &parameters), 0);
  client.Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  for (rdma_cm_id* id : {active.get(), passive.get()}) {
    ibv_qp_attr attributes;
    EXPECT_NE(Connection::Mask(id, IBV_QPS_RTS, &attributes), 0);
    EXPECT_EQ(attributes.timeout, exponent);
  }
}

TEST(CmConnect, RequestsBeyondTheBacklogArriveLater) {
  EventChannel server, client;
  const Id listener = server.Listen(kFar, 7416, RDMA_PS_TCP, 1);
  const Id first = client.Route(kFar, 7416);
  const Id second = client.Route(kFar, 7416);
  const Id last = client.Route(kFar, 7417);
  for (const Id* id : {&first, &second, &last}) {
    rdma_conn_param parameters = Parameters();
    ASSERT_EQ(rdma_connect(id->get(), &parameters), 0) << strerror(errno);
  }
  // Messages keep their order, so the others have arrived, too.
  EXPECT_EQ(client.Expect(RDMA_CM_EVENT_REJECTED).id, last.get());
  const Id passive = server.ExpectRequest();
  EXPECT_EQ(rdma_get_dst_port(passive.get()), rdma_get_src_port(first.get()));
  EXPECT_TRUE(server.IsQuiet());
  // The peer retransmits its request after some seconds.
  const Id later = server.ExpectRequest();
  ASSERT_NE(later, nullptr);
  EXPECT_EQ(rdma_get_dst_port(later.get()), rdma_get_src_port(second.get()));
}

TEST(CmConnect, PeerThatIsKilled) {
  EventChannel server;
  const Id listener = server.Listen(kFar, 7418);
  const pid_t child = fork();
  if (child == 0) {
    EventChannel client;
    const Id active = client.Route(kFar, 7418);
    rdma_conn_param parameters = Parameters();
    const bool is_connected = rdma_connect(active.get(), &parameters) == 0 &&
                              client.Next().event == RDMA_CM_EVENT_CONNECT_RESPONSE &&
                              rdma_establish(active.get()) == 0;
    if (is_connected) pause();
    _exit(1);
  }
  const Id passive = server.ExpectRequest();
  ASSERT_NE(passive, nullptr);
  rdma_conn_param parameters = Parameters();
  EXPECT_EQ(rdma_accept(passive.get(), &parameters), 0) << strerror(errno);
  server.Expect(RDMA_CM_EVENT_ESTABLISHED);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  server.Expect(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(ErrorOf(rdma_disconnect(passive.get())), 0);
}

TEST(CmConnect, EventsMigrateWithTheirIdentifier) {
  EventChannel before, after;
  const Id id = before.Create();
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, Address(kFar, 7419).get(), 10'000), 0);
  while (!before.IsWaiting()) usleep(1000);
  ASSERT_EQ(rdma_migrate_id(id.get(), after.get()), 0) << strerror(errno);
  EXPECT_FALSE(before.IsWaiting());
  EXPECT_EQ(after.Expect(RDMA_CM_EVENT_ADDR_RESOLVED).id, id.get());
  ASSERT_EQ(rdma_resolve_route(id.get(), 10'000), 0);
  after.Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_FALSE(before.IsWaiting());
}

TEST(CmConnect, RequestsMigrateWithTheirListener) {
  EventChannel before, after, own, client;
  const Id listener = before.Listen(kFar, 7420);
  const Id active = client.Route(kFar, 7420);
  rdma_conn_param parameters = Parameters();
  ASSERT_EQ(rdma_connect(active.get(), &parameters), 0);
  while (!before.IsWaiting()) usleep(1000);
  ASSERT_EQ(rdma_migrate_id(listener.get(), after.get()), 0) << strerror(errno);
  EXPECT_FALSE(before.IsWaiting());
  Seen seen;
  const Id passive = after.ExpectRequest(&seen);
  ASSERT_NE(passive, nullptr);
  EXPECT_EQ(seen.listener, listener.get());
  EXPECT_EQ(passive->channel, after.get());
  // Migrates again, to a new channel, then to none.
  ASSERT_EQ(rdma_migrate_id(passive.get(), own.get()), 0);
  parameters = Parameters();
  ASSERT_EQ(rdma_accept(passive.get(), &parameters), 0);
  client.Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_establish(active.get()), 0);
  own.Expect(RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(rdma_migrate_id(passive.get(), nullptr), 0) << strerror(errno);
  EXPECT_EQ(rdma_disconnect(passive.get()), 0) << "waits for its event: " << strerror(errno);
  client.Expect(RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace
}  // namespace roci::testing
