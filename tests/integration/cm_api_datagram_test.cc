// Datagram identifiers of librdmacm: service ID resolution and multicast groups.
#include <rdma/rdma_cma.h>

#include <cstring>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/cm_end.h"

namespace roci::testing {
namespace {

// Private data of SIDR REQ and SIDR REP.
constexpr size_t kMostOfRequest = 180;
constexpr size_t kMostOfReply = 136;
constexpr int kNotSupported = 1;
constexpr int kRejected = 2;
constexpr uint32_t kMulticastQpn = 0xFFFFFF;

std::string Padded(std::string data, size_t size) {
  data.resize(size, '\0');
  return data;
}

// The active and the passive identifier.
struct Question {
  EventChannel far_channel, near_channel;
  Id listener, active, passive;
  Seen request;

  Question(uint16_t port, const std::string& data)
      : listener(far_channel.Listen(kFar, port, RDMA_PS_UDP)) {
    active = near_channel.Route(kFar, port, RDMA_PS_UDP);
    rdma_conn_param parameters = Parameters(data);
    EXPECT_EQ(rdma_connect(active.get(), &parameters), 0) << strerror(errno);
    passive = far_channel.ExpectRequest(&request);
  }
};

TEST(CmDatagram, ServiceIsFound) {
  const std::string asked = Padded("a question", kMostOfRequest);
  Question q(7501, asked);
  EXPECT_EQ(q.request.data, asked);
  EXPECT_EQ(q.request.listener, q.listener.get());
  EXPECT_EQ(q.passive->qp_type, IBV_QPT_UD);
  EXPECT_EQ(q.passive->ps, RDMA_PS_UDP);
  ASSERT_EQ(CreateQueuePair(q.passive.get()), 0) << strerror(errno);
  const std::string answered = Padded("an answer", kMostOfReply);
  rdma_conn_param answer = Parameters(answered);
  ASSERT_EQ(rdma_accept(q.passive.get(), &answer), 0) << strerror(errno);
  const Seen seen = q.near_channel.Expect(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(seen.id, q.active.get());
  EXPECT_EQ(seen.data, answered);
  EXPECT_EQ(seen.ud.qp_num, q.passive->qp->qp_num);
  EXPECT_EQ(seen.ud.qkey, uint32_t{RDMA_UDP_QKEY});
  EXPECT_EQ(seen.ud.ah_attr.is_global, 1);
  EXPECT_EQ(seen.ud.ah_attr.port_num, 1);
  ASSERT_EQ(CreateQueuePair(q.active.get()), 0) << strerror(errno);
  ibv_ah_attr to_passive = seen.ud.ah_attr;
  ibv_ah* handle = ibv_create_ah(q.active->pd, &to_passive);
  ASSERT_NE(handle, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_destroy_ah(handle), 0);
}

TEST(CmDatagram, DisconnectEndsNothing) {
  Question q(7506, "");
  rdma_conn_param answer = Parameters();
  ASSERT_EQ(rdma_accept(q.passive.get(), &answer), 0) << strerror(errno);
  q.near_channel.Expect(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(ErrorOf(rdma_disconnect(q.active.get())), 0);
  EXPECT_EQ(ErrorOf(rdma_disconnect(q.passive.get())), 0);
  EXPECT_TRUE(q.near_channel.IsQuiet());
  EXPECT_TRUE(q.far_channel.IsQuiet());
}

TEST(CmDatagram, LongPrivateDataOfARequest) {
  EventChannel channel;
  const Id id = channel.Route(kFar, 7502, RDMA_PS_UDP);
  const std::string too_long = Padded("a question", kMostOfRequest + 1);
  rdma_conn_param parameters = Parameters(too_long);
  EXPECT_EQ(ErrorOf(rdma_connect(id.get(), &parameters)), EINVAL);
  // No request was sent, so it may still connect.
  parameters = Parameters();
  EXPECT_EQ(rdma_connect(id.get(), &parameters), 0) << strerror(errno);
  EXPECT_EQ(channel.Expect(RDMA_CM_EVENT_UNREACHABLE).status, kNotSupported) << "no listener";
}

TEST(CmDatagram, LongPrivateDataOfAnAcceptRejects) {
  Question q(7503, "");
  const std::string too_long = Padded("an answer", kMostOfReply + 1);
  rdma_conn_param answer = Parameters(too_long);
  EXPECT_EQ(ErrorOf(rdma_accept(q.passive.get(), &answer)), EINVAL);
  EXPECT_EQ(q.near_channel.Expect(RDMA_CM_EVENT_UNREACHABLE).status, kRejected);
}

TEST(CmDatagram, RejectCarriesPrivateData) {
  Question q(7504, "");
  ASSERT_EQ(rdma_reject(q.passive.get(), "nope", 5), 0) << strerror(errno);
  const Seen seen = q.near_channel.Expect(RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(seen.status, kRejected);
  EXPECT_EQ(seen.data, Padded("nope", kMostOfReply));
}

TEST(CmDatagram, DestroyingARequestRejectsIt) {
  Question q(7505, "");
  q.passive.reset();
  EXPECT_EQ(q.near_channel.Expect(RDMA_CM_EVENT_UNREACHABLE).status, kRejected);
}

Id Bound(EventChannel& channel, const char* ip) {
  Id id = channel.Create(RDMA_PS_UDP);
  EXPECT_EQ(rdma_bind_addr(id.get(), Address(ip).get()), 0) << strerror(errno);
  return id;
}

int Join(const Id& id, const char* group) {
  static int context;
  return ErrorOf(rdma_join_multicast(id.get(), Address(group).get(), &context));
}

// The device's GID index that a created handle uses.
std::string SourceOf(const Id& id, const Seen& seen) {
  ibv_ah_attr attributes = seen.ud.ah_attr;
  ibv_pd* domain = ibv_alloc_pd(id->verbs);
  ibv_ah* handle = ibv_create_ah(domain, &attributes);
  EXPECT_NE(handle, nullptr) << strerror(errno);
  if (handle != nullptr) ibv_destroy_ah(handle);
  ibv_dealloc_pd(domain);
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(id->verbs, 1, attributes.grh.sgid_index, &gid), 0);
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
}

TEST(CmDatagram, JoinReportsTheAddressVector) {
  EventChannel channel;
  const Id id = Bound(channel, kNear);
  int context = 0;
  ASSERT_EQ(rdma_join_multicast(id.get(), Address("239.1.1.1").get(), &context), 0)
      << strerror(errno);
  const Seen seen = channel.Expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(seen.id, id.get());
  EXPECT_EQ(seen.context, &context);
  EXPECT_EQ(seen.ud.qp_num, kMulticastQpn);
  EXPECT_EQ(seen.ud.qkey, uint32_t{RDMA_UDP_QKEY});
  EXPECT_EQ(seen.ud.ah_attr.is_global, 1);
  EXPECT_EQ(SourceOf(id, seen), std::string("::ffff:") + kNear);
}

TEST(CmDatagram, GroupsOfTheOtherFamily) {
  EventChannel channel;
  const Id ipv4 = Bound(channel, kNear);
  ASSERT_EQ(Join(ipv4, "ff0e::77"), 0);
  EXPECT_EQ(SourceOf(ipv4, channel.Expect(RDMA_CM_EVENT_MULTICAST_JOIN)), "fd72:6f63:6900::1");
  const Id ipv6 = Bound(channel, "fd72:6f63:6900::2");
  ASSERT_EQ(Join(ipv6, "239.1.1.2"), 0);
  EXPECT_EQ(SourceOf(ipv6, channel.Expect(RDMA_CM_EVENT_MULTICAST_JOIN)),
            std::string("::ffff:") + kFar);
}

TEST(CmDatagram, JoinsAndLeavesOfGroupsAreCounted) {
  EventChannel channel;
  const Id id = Bound(channel, kNear);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Join(id, "239.1.1.3"), 0);
    channel.Expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  }
  EXPECT_EQ(rdma_leave_multicast(id.get(), Address("239.1.1.3").get()), 0) << strerror(errno);
  EXPECT_EQ(rdma_leave_multicast(id.get(), Address("239.1.1.3").get()), 0) << strerror(errno);
  EXPECT_EQ(ErrorOf(rdma_leave_multicast(id.get(), Address("239.1.1.3").get())), EADDRNOTAVAIL);
}

TEST(CmDatagram, GroupsThatCannotBeJoined) {
  EventChannel channel;
  const Id unbound = channel.Create(RDMA_PS_UDP);
  EXPECT_EQ(Join(unbound, "239.1.1.4"), EINVAL);
  const Id id = Bound(channel, kNear);
  EXPECT_EQ(Join(id, "10.1.1.1"), EINVAL);
  EXPECT_EQ(Join(id, "0.0.0.0"), EINVAL);
  const Id connected = channel.Create(RDMA_PS_TCP);
  ASSERT_EQ(rdma_bind_addr(connected.get(), Address(kNear).get()), 0);
  EXPECT_EQ(Join(connected, "239.1.1.4"), EINVAL);
  EXPECT_TRUE(channel.IsQuiet());
}

TEST(CmDatagram, JoinToSendOnly) {
  EventChannel channel;
  const Id id = Bound(channel, kNear);
  Address group("239.1.1.5");
  rdma_cm_join_mc_attr_ex join = {};
  join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  join.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  join.addr = group.get();
  int context = 0;
  ASSERT_EQ(rdma_join_multicast_ex(id.get(), &join, &context), 0) << strerror(errno);
  const Seen seen = channel.Expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(seen.context, &context);
  EXPECT_EQ(SourceOf(id, seen), std::string("::ffff:") + kNear);
  join.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
  EXPECT_EQ(ErrorOf(rdma_join_multicast_ex(id.get(), &join, &context)), EINVAL);
}

}  // namespace
}  // namespace roci::testing
