// The attributes that librdmacm gives for manual transitions of each type of queue pair
// (rdma_init_qp_attr); ibv_modify_qp must accept them.
#include <fcntl.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/cm_end.h"

namespace roci::testing {
namespace {

constexpr int kToInit = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kToRts = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kRequester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

using AddressInfo = std::unique_ptr<rdma_addrinfo, decltype(&rdma_freeaddrinfo)>;

// On `channel`, for the IB port space, where the program chooses the type.
Id CreateOfType(EventChannel& channel, uint16_t port, ibv_qp_type type, int flags) {
  rdma_addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_IB;
  hints.ai_qp_type = type;
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(rdma_getaddrinfo(kFar, std::to_string(port).c_str(), &hints, &found), 0)
      << strerror(errno);
  const AddressInfo place(found, rdma_freeaddrinfo);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_ep(&id, found, nullptr, nullptr), 0) << strerror(errno);
  EXPECT_EQ(rdma_migrate_id(id, channel.get()), 0) << strerror(errno);
  return Id(id);
}

// Two connected identifiers without queue pairs.
struct TypedPair {
  EventChannel far_channel, near_channel;
  Id listener, active, passive;

  TypedPair(uint16_t port, ibv_qp_type type, ibv_qp_type far_type)
      : listener(CreateOfType(far_channel, port, far_type, RAI_PASSIVE)),
        active(CreateOfType(near_channel, port, type, 0)) {
    EXPECT_EQ(rdma_listen(listener.get(), 1), 0) << strerror(errno);
    rdma_conn_param parameters = Parameters();
    EXPECT_EQ(rdma_connect(active.get(), &parameters), 0) << strerror(errno);
    passive = far_channel.ExpectRequest();
    parameters = Parameters();
    EXPECT_EQ(rdma_accept(passive.get(), &parameters), 0) << strerror(errno);
    near_channel.Expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
};

void ExpectMasks(rdma_cm_id* id, int rtr, int rts) {
  EXPECT_EQ(Connection::Mask(id, IBV_QPS_INIT), kToInit);
  EXPECT_EQ(Connection::Mask(id, IBV_QPS_RTR), rtr);
  EXPECT_EQ(Connection::Mask(id, IBV_QPS_RTS), rts);
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_ERR}) {
    EXPECT_EQ(Connection::Mask(id, state), 0) << state;
  }
}

using QueuePair = std::unique_ptr<ibv_qp, decltype(&ibv_destroy_qp)>;
using Domain = std::unique_ptr<ibv_pd, decltype(&ibv_dealloc_pd)>;
using XrcDomain = std::unique_ptr<ibv_xrcd, decltype(&ibv_close_xrcd)>;
using Queue = std::unique_ptr<ibv_cq, decltype(&ibv_destroy_cq)>;

void Move(ibv_qp* qp, rdma_cm_id* id) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes;
    const int mask = Connection::Mask(id, state, &attributes);
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, mask), 0) << "to state " << state;
  }
}

TEST(CmAttributes, BeforeAConnection) {
  EventChannel channel;
  const Id idle = channel.Create();
  EXPECT_EQ(Connection::Mask(idle.get(), IBV_QPS_INIT), 0) << "no device";
  const Id connected = channel.Route(kFar, 7601);
  EXPECT_EQ(Connection::Mask(connected.get(), IBV_QPS_INIT), kToInit);
  EXPECT_EQ(Connection::Mask(connected.get(), IBV_QPS_RTR), 0);
  const Id datagram = channel.Route(kFar, 7601, RDMA_PS_UDP);
  ibv_qp_attr attributes;
  EXPECT_EQ(Connection::Mask(datagram.get(), IBV_QPS_INIT, &attributes),
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  EXPECT_EQ(attributes.qkey, uint32_t{RDMA_UDP_QKEY});
}

TEST(CmAttributes, ReliableConnection) {
  Connection c(7602);
  EXPECT_EQ(Connection::Mask(c.passive.get(), IBV_QPS_RTR), kToRtr | kResponder)
      << "with the request";
  EXPECT_EQ(Connection::Mask(c.active.get(), IBV_QPS_RTR), 0) << "no reply yet";
  c.Accept();
  for (rdma_cm_id* id : {c.active.get(), c.passive.get()}) {
    ExpectMasks(id, kToRtr | kResponder, kToRts | kRequester | IBV_QP_TIMEOUT);
  }
  ibv_qp_attr active, passive;
  Connection::Mask(c.active.get(), IBV_QPS_RTR, &active);
  Connection::Mask(c.passive.get(), IBV_QPS_RTS, &passive);
  EXPECT_EQ(active.rq_psn, passive.sq_psn);
  EXPECT_EQ(active.max_dest_rd_atomic, passive.max_rd_atomic);
  Connection::Mask(c.active.get(), IBV_QPS_RTS, &active);
  Connection::Mask(c.passive.get(), IBV_QPS_RTR, &passive);
  EXPECT_EQ(active.sq_psn, passive.rq_psn);
  ASSERT_EQ(rdma_disconnect(c.active.get()), 0);
  c.near_channel.Expect(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(Connection::Mask(c.active.get(), IBV_QPS_RTS), 0) << "it is over";
}

TEST(CmAttributes, UnreliableConnection) {
  const TypedPair pair(7603, IBV_QPT_UC, IBV_QPT_UC);
  for (rdma_cm_id* id : {pair.active.get(), pair.passive.get()}) {
    EXPECT_EQ(id->qp_type, IBV_QPT_UC);
    ExpectMasks(id, kToRtr, kToRts);
    ASSERT_EQ(CreateQueuePair(id), 0) << strerror(errno);
    ibv_qp_attr reset = {};
    reset.qp_state = IBV_QPS_RESET;  // librdmacm has moved it to INIT
    ASSERT_EQ(ibv_modify_qp(id->qp, &reset, IBV_QP_STATE), 0);
    Move(id->qp, id);
  }
}

TEST(CmAttributes, ExtendedReliableConnection) {
  const TypedPair pair(7604, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV);
  EXPECT_EQ(pair.passive->qp_type, IBV_QPT_XRC_RECV);
  // Each end has one half of the connection.
  ExpectMasks(pair.active.get(), kToRtr, kToRts | kRequester | IBV_QP_TIMEOUT);
  ExpectMasks(pair.passive.get(), kToRtr | kResponder, kToRts | IBV_QP_TIMEOUT);

  ibv_context* near = pair.active->verbs;
  const Domain domain(ibv_alloc_pd(near), ibv_dealloc_pd);
  const Queue queue(ibv_create_cq(near, 4, nullptr, nullptr, 0), ibv_destroy_cq);
  ibv_qp_init_attr_ex sending = {};
  sending.qp_type = IBV_QPT_XRC_SEND;
  sending.send_cq = queue.get();
  sending.cap.max_send_wr = sending.cap.max_send_sge = 1;
  sending.comp_mask = IBV_QP_INIT_ATTR_PD;
  sending.pd = domain.get();
  const QueuePair sender(ibv_create_qp_ex(near, &sending), ibv_destroy_qp);
  ASSERT_NE(sender, nullptr) << strerror(errno);
  Move(sender.get(), pair.active.get());

  ibv_xrcd_init_attr wanted = {};
  wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  wanted.fd = -1;
  wanted.oflags = O_CREAT;
  const XrcDomain xrc_domain(ibv_open_xrcd(pair.passive->verbs, &wanted), ibv_close_xrcd);
  ASSERT_NE(xrc_domain, nullptr) << strerror(errno);
  ibv_qp_init_attr_ex receiving = {};
  receiving.qp_type = IBV_QPT_XRC_RECV;
  receiving.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  receiving.xrcd = xrc_domain.get();
  const QueuePair receiver(ibv_create_qp_ex(pair.passive->verbs, &receiving), ibv_destroy_qp);
  ASSERT_NE(receiver, nullptr) << strerror(errno);
  Move(receiver.get(), pair.passive.get());
}

}  // namespace
}  // namespace roci::testing
