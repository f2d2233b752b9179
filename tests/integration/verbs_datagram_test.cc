// UD through libibverbs: datagrams, their network header, Q_Keys, and multicast groups.
#include "tests/integration/verbs_datagram.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace roci::testing {
namespace {

// Checks that `buffer` from `offset` on equals `from`.
::testing::AssertionResult SameBytes(Buffer& buffer, size_t offset, Buffer& from, size_t length) {
  if (memcmp(buffer.data() + offset, from.data(), length) == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "other bytes";
}

class Families : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ip, Families, ::testing::Values(true, false),
                         [](const auto& family) { return family.param ? "v4" : "v6"; });

// A datagram, and an answer to the source address in its network header.
TEST_P(Families, AnswerByTheReceivedHeader) {
  DatagramEndpoint near(DeviceZero());
  DatagramEndpoint far(DeviceOne());
  const GidChoice from = FindGid(near.device, GetParam());
  const GidChoice to = FindGid(far.device, GetParam());
  const uint32_t mtu = 128u << near.device.port.active_mtu;
  Buffer out(near.device, mtu, 1);
  Buffer in(far.device, mtu + kGrhBytes, 2);
  ibv_ah* ah = near.CreateAh(to.gid, from.index);
  ASSERT_NE(ah, nullptr) << strerror(errno);
  for (const uint32_t length : {0u, 1u, 3u, 64u, 1000u, mtu}) {
    in.Fill(99);
    ASSERT_EQ(far.PostRecv(in.Sge(0, in.size())), 0);
    ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, length)), 0);
    EXPECT_EQ(near.Wait().status, IBV_WC_SUCCESS);
    ibv_wc wc = far.Wait();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, length + kGrhBytes);
    EXPECT_EQ(wc.src_qp, near.qp->qp_num);
    EXPECT_TRUE(wc.wc_flags & IBV_WC_GRH);
    EXPECT_EQ(wc.sl, GetParam() ? 0xA : 0x9);  // the type of network header; see roce/deviations.md
    EXPECT_TRUE(SameBytes(in, kGrhBytes, out, length)) << length;

    auto* grh = reinterpret_cast<ibv_grh*>(in.data());
    ibv_ah_attr attr = {};
    ASSERT_EQ(ibv_init_ah_from_wc(far.device.context, 1, &wc, grh, &attr), 0) << strerror(errno);
    EXPECT_EQ(memcmp(&attr.grh.dgid, &from.gid, sizeof(ibv_gid)), 0);
    EXPECT_EQ(attr.grh.sgid_index, to.index);
    ibv_ah* back = ibv_create_ah_from_wc(far.device.pd, &wc, grh, 1);
    ASSERT_NE(back, nullptr) << strerror(errno);
    ASSERT_EQ(near.PostRecv(out.Sge(0, out.size())), 0);
    ASSERT_EQ(far.PostSend(back, wc.src_qp, in.Sge(kGrhBytes, 16)), 0);
    EXPECT_EQ(far.Wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(near.Wait().byte_len, 16 + kGrhBytes);
    EXPECT_EQ(ibv_destroy_ah(back), 0);
    out.Fill(length + 7);
  }
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST(DatagramTest, LongerThanThePathMtuFailsWhereItIsSent) {
  DatagramEndpoint near(DeviceZero());
  DatagramEndpoint far(DeviceOne());
  const uint32_t mtu = 128u << near.device.port.active_mtu;
  Buffer out(near.device, mtu + 1, 1);
  ibv_ah* ah = near.CreateAh(far.device.gid, static_cast<uint8_t>(near.device.gid_index));
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, mtu + 1)), 0);
  EXPECT_EQ(near.Wait().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// IBTA vol 1, 9.9.3, responder class D: a peer cannot consume a receive or move the QP to ERR.
TEST(DatagramTest, TooLongForItsReceiveLeavesItForTheNext) {
  DatagramEndpoint near(DeviceZero());
  DatagramEndpoint far(DeviceOne());
  Buffer out(near.device, 256, 1);
  Buffer in(far.device, 256, 2);
  ibv_ah* ah = near.CreateAh(far.device.gid, static_cast<uint8_t>(near.device.gid_index));
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(far.PostRecv(in.Sge(0, kGrhBytes + 100), 7), 0);
  ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, 101)), 0);
  EXPECT_EQ(near.Wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far.IsQuiet(50));
  ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, 100)), 0);
  EXPECT_EQ(near.Wait().status, IBV_WC_SUCCESS);
  const ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.byte_len, kGrhBytes + 100);
  EXPECT_EQ(memcmp(in.data() + kGrhBytes, out.data(), 100), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// Adapters fetch WQEs before the queue pair is destroyed. (libfabric's rxd relies on it for its
// acknowledgements.)
TEST(DatagramTest, PostedBeforeTheQueuePairIsDestroyedStillArrives) {
  constexpr uint32_t kDatagrams = 200, kRounds = 5, kBytes = 256;
  DatagramEndpoint far(DeviceOne(), 0, kDatagrams);
  Buffer out(DeviceZero(), 1024, 1);
  Buffer in(far.device, kBytes + kGrhBytes, 2);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kDatagrams; ++i) ASSERT_EQ(far.PostRecv(in.Sge(0, in.size())), 0);
    auto near = std::make_unique<DatagramEndpoint>(DeviceZero(), 0, kDatagrams);
    ibv_ah* ah = near->CreateAh(far.device.gid, static_cast<uint8_t>(near->device.gid_index));
    ASSERT_NE(ah, nullptr);
    for (uint32_t i = 0; i < kDatagrams; ++i)
      ASSERT_EQ(near->PostSend(ah, far.qp->qp_num, out.Sge(0, kBytes)), 0);
    near.reset();
    for (uint32_t i = 0; i < kDatagrams; ++i)
      ASSERT_EQ(far.Wait().status, IBV_WC_SUCCESS) << "round " << round << ", datagram " << i;
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
  }
}

// The address vector belongs to the WQE as soon as it is posted.
TEST(DatagramTest, AddressHandlesMayBeDestroyedRightAfterThePost) {
  constexpr uint32_t kDatagrams = 50, kRounds = 10, kBytes = 64;
  DatagramEndpoint near(DeviceZero(), 0, kDatagrams);
  DatagramEndpoint far(DeviceOne(), 0, kDatagrams);
  Buffer out(near.device, 256, 1);
  Buffer in(far.device, kBytes + kGrhBytes, 2);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kDatagrams; ++i) ASSERT_EQ(far.PostRecv(in.Sge(0, in.size())), 0);
    for (uint32_t i = 0; i < kDatagrams; ++i) {
      // Each handle has a different flow label, so none is reused.
      ibv_ah_attr attr = {};
      attr.grh.dgid = far.device.gid;
      attr.grh.sgid_index = static_cast<uint8_t>(near.device.gid_index);
      attr.grh.flow_label = round * kDatagrams + i + 1;
      attr.grh.hop_limit = 64;
      attr.is_global = 1;
      attr.port_num = 1;
      ibv_ah* ah = ibv_create_ah(near.device.pd, &attr);
      ASSERT_NE(ah, nullptr) << strerror(errno);
      ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, kBytes)), 0);
      ASSERT_EQ(ibv_destroy_ah(ah), 0);
    }
    for (uint32_t i = 0; i < kDatagrams; ++i) {
      ASSERT_EQ(near.Wait().status, IBV_WC_SUCCESS) << "round " << round << ", datagram " << i;
      ASSERT_EQ(far.Wait().status, IBV_WC_SUCCESS) << "round " << round << ", datagram " << i;
    }
  }
}

TEST(DatagramTest, WrongQkeysAreCountedAndDropped) {
  DatagramEndpoint near(DeviceZero());
  DatagramEndpoint far(DeviceOne());
  Buffer out(near.device, 64, 1);
  Buffer in(far.device, 256, 2);
  ibv_ah* ah = near.CreateAh(far.device.gid, static_cast<uint8_t>(near.device.gid_index));
  ASSERT_NE(ah, nullptr);
  ibv_port_attr before, after;
  ASSERT_EQ(ibv_query_port(far.device.context, 1, &before), 0);
  ASSERT_EQ(far.PostRecv(in.Sge(0, 256), 7), 0);
  ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, 64), kQkey + 1), 0);
  EXPECT_EQ(near.Wait().status, IBV_WC_SUCCESS);
  // With the top bit set, the sender's own Q_Key is used, which is correct.
  ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, out.Sge(0, 60), 0x80000000), 0);
  EXPECT_EQ(near.Wait().status, IBV_WC_SUCCESS);
  const ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.byte_len, 60 + kGrhBytes);
  ASSERT_EQ(ibv_query_port(far.device.context, 1, &after), 0);
  EXPECT_EQ(after.qkey_viol_cntr, before.qkey_viol_cntr + 1);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// ---- Multicast

ibv_gid GroupOf(bool ipv4) { return GidOf(ipv4 ? "239.1.2.3" : "ff0e::1:2:3"); }

TEST_P(Families, EveryMemberGetsACopy) {
  const ibv_gid group = GroupOf(GetParam());
  DatagramEndpoint sender(DeviceZero());
  DatagramEndpoint neighbour(DeviceZero());
  DatagramEndpoint far(DeviceOne());
  DatagramEndpoint stranger(DeviceOne());
  Buffer out(DeviceZero(), 300, 5);
  Buffer near_in(DeviceZero(), 1024, 6);
  Buffer far_in(DeviceOne(), 1024, 7);
  ASSERT_EQ(ibv_attach_mcast(sender.qp, &group, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(neighbour.qp, &group, 0xC000), 0) << "the LID does not matter";
  ASSERT_EQ(ibv_attach_mcast(far.qp, &group, 0), 0);
  ASSERT_EQ(sender.PostRecv(near_in.Sge(0, 400), 10), 0);
  ASSERT_EQ(neighbour.PostRecv(near_in.Sge(512, 400), 11), 0);
  ASSERT_EQ(far.PostRecv(far_in.Sge(0, 400), 12), 0);
  ASSERT_EQ(stranger.PostRecv(far_in.Sge(512, 400), 13), 0);
  ibv_ah* ah = sender.CreateAh(group, FindGid(DeviceZero(), GetParam()).index);
  ASSERT_NE(ah, nullptr) << strerror(errno);
  ASSERT_EQ(sender.PostSend(ah, 0xFFFFFF, out.Sge(0, 300)), 0);
  // The sender's own copy and the completion of the request arrive in either order.
  uint64_t seen = sender.Wait().wr_id + sender.Wait().wr_id;
  EXPECT_EQ(seen, 1u + 10u);
  EXPECT_TRUE(SameBytes(near_in, kGrhBytes, out, 300));
  const ibv_wc wc = neighbour.Wait();
  EXPECT_EQ(wc.byte_len, 300 + kGrhBytes);
  EXPECT_EQ(wc.src_qp, sender.qp->qp_num);
  EXPECT_TRUE(SameBytes(near_in, 512 + kGrhBytes, out, 300));
  EXPECT_EQ(far.Wait().wr_id, 12u);
  EXPECT_TRUE(SameBytes(far_in, kGrhBytes, out, 300));
  EXPECT_TRUE(stranger.IsQuiet(20));

  // No copies arrive after the member has left.
  ASSERT_EQ(ibv_detach_mcast(far.qp, &group, 0), 0);
  ASSERT_EQ(far.PostRecv(far_in.Sge(0, 400), 12), 0);
  ASSERT_EQ(neighbour.PostRecv(near_in.Sge(512, 400), 11), 0);
  ASSERT_EQ(sender.PostSend(ah, 0xFFFFFF, out.Sge(0, 300)), 0);
  EXPECT_EQ(neighbour.Wait().wr_id, 11u);
  EXPECT_TRUE(far.IsQuiet(20));
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_detach_mcast(sender.qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(neighbour.qp, &group, 0), 0);
}

TEST(MulticastTest, NoCopyToASenderThatBlocksLoopback) {
  const ibv_gid group = GroupOf(true);
  DatagramEndpoint sender(DeviceZero(), IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
  DatagramEndpoint other(DeviceZero());
  Buffer out(DeviceZero(), 64, 5);
  Buffer in(DeviceZero(), 1024, 6);
  ASSERT_EQ(ibv_attach_mcast(sender.qp, &group, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(other.qp, &group, 0), 0);
  ASSERT_EQ(sender.PostRecv(in.Sge(0, 128), 10), 0);
  ASSERT_EQ(other.PostRecv(in.Sge(128, 128), 11), 0);
  ibv_ah* ah = sender.CreateAh(group, FindGid(DeviceZero(), true).index);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(sender.PostSend(ah, 0xFFFFFF, out.Sge(0, 64)), 0);
  EXPECT_EQ(sender.Wait().wr_id, 1u);
  EXPECT_EQ(other.Wait().wr_id, 11u);
  EXPECT_TRUE(sender.IsQuiet(20));
  // It receives messages of other senders.
  ASSERT_EQ(other.PostSend(ah, 0xFFFFFF, out.Sge(0, 64)), 0);
  EXPECT_EQ(sender.Wait().wr_id, 10u);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_detach_mcast(sender.qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(other.qp, &group, 0), 0);
}

// More members and more datagrams than a receive burst holds.
TEST(MulticastTest, ManyMembersGetManyCopies) {
  constexpr size_t kMembers = 70, kMessages = 40;
  const ibv_gid group = GroupOf(true);
  DatagramEndpoint sender(DeviceZero(), 0, 128);
  Buffer out(DeviceZero(), 64, 5);
  Buffer in(DeviceOne(), 128 * kMessages, 6);
  std::vector<std::unique_ptr<DatagramEndpoint>> members;
  for (size_t i = 0; i < kMembers; ++i) {
    members.push_back(std::make_unique<DatagramEndpoint>(DeviceOne()));
    ASSERT_EQ(ibv_attach_mcast(members[i]->qp, &group, 0), 0);
    for (size_t m = 0; m < kMessages; ++m) {
      ASSERT_EQ(members[i]->PostRecv(in.Sge(128 * m, 128), m), 0);
    }
  }
  ibv_ah* ah = sender.CreateAh(group, FindGid(DeviceZero(), true).index);
  ASSERT_NE(ah, nullptr);
  for (size_t m = 0; m < kMessages; ++m) {
    ASSERT_EQ(sender.PostSend(ah, 0xFFFFFF, out.Sge(0, 64), kQkey, m), 0);
  }
  for (size_t m = 0; m < kMessages; ++m) EXPECT_EQ(sender.Wait().wr_id, m);
  for (auto& member : members) {
    for (size_t m = 0; m < kMessages; ++m) {
      const ibv_wc wc = member->Wait();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, m);
    }
  }
  for (auto& member : members) EXPECT_EQ(ibv_detach_mcast(member->qp, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST(MulticastTest, Refusals) {
  const ibv_gid group = GroupOf(true);
  const ibv_gid unicast = GidOf("10.1.2.3");
  DatagramEndpoint datagram(DeviceZero());
  Endpoint connected(DeviceZero());
  EXPECT_EQ(ibv_attach_mcast(datagram.qp, &unicast, 0), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(connected.qp, &group, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(datagram.qp, &group, 0), EINVAL) << "it is in no group";
  EXPECT_EQ(ibv_attach_mcast(datagram.qp, &group, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(datagram.qp, &group, 0), 0) << "again";
  EXPECT_EQ(ibv_destroy_qp(datagram.qp), EBUSY);
  EXPECT_EQ(ibv_detach_mcast(datagram.qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(datagram.qp, &group, 0), EINVAL) << "already detached";
}

ibv_gid NumberedGroup(uint32_t number) {
  ibv_gid group = GidOf("ff0e::");
  memcpy(group.raw + 12, &number, sizeof(number));
  return group;
}

TEST(MulticastTest, LimitsAreExact) {
  const ibv_device_attr& attr = DeviceZero().attr;
  const auto groups = static_cast<uint32_t>(attr.max_mcast_grp);
  const auto members = static_cast<uint32_t>(attr.max_mcast_qp_attach);
  const auto all = static_cast<uint32_t>(attr.max_total_mcast_qp_attach);
  ASSERT_GT(groups, 0u);
  std::vector<std::unique_ptr<DatagramEndpoint>> qps;
  while (qps.size() <= members) {
    qps.push_back(std::make_unique<DatagramEndpoint>(DeviceZero(), 0, 1));
  }
  uint32_t attached = 0;
  // Joins every possible group, then exceeds the members of one group, then of all groups.
  const ibv_gid first = NumberedGroup(0);
  for (uint32_t g = 0; g < groups; ++g) {
    const ibv_gid group = NumberedGroup(g);
    ASSERT_EQ(ibv_attach_mcast(qps[0]->qp, &group, 0), 0) << g;
    ++attached;
  }
  const ibv_gid one_more = NumberedGroup(groups);
  EXPECT_EQ(ibv_attach_mcast(qps[0]->qp, &one_more, 0), ENOMEM);
  for (uint32_t q = 1; q < members; ++q) {
    ASSERT_EQ(ibv_attach_mcast(qps[q]->qp, &first, 0), 0) << q;
    ++attached;
  }
  EXPECT_EQ(ibv_attach_mcast(qps[members]->qp, &first, 0), ENOMEM);
  for (uint32_t g = 1; attached < all; ++g) {
    const ibv_gid group = NumberedGroup(g);
    for (uint32_t q = 1; q < members && attached < all; ++q, ++attached) {
      ASSERT_EQ(ibv_attach_mcast(qps[q]->qp, &group, 0), 0) << g << " " << q;
    }
  }
  const ibv_gid last = NumberedGroup(groups - 1);
  EXPECT_EQ(ibv_attach_mcast(qps[members]->qp, &last, 0), ENOMEM);
  EXPECT_EQ(ibv_detach_mcast(qps[1]->qp, &first, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(qps[members]->qp, &last, 0), 0) << "a place is free again";
  EXPECT_EQ(ibv_detach_mcast(qps[members]->qp, &last, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(qps[1]->qp, &first, 0), 0);
  for (uint32_t g = 0; g < groups; ++g) {
    const ibv_gid group = NumberedGroup(g);
    for (uint32_t q = 0; q < members; ++q) {
      if (ibv_detach_mcast(qps[q]->qp, &group, 0) == 0)
        --attached;
      else
        break;
    }
  }
  EXPECT_EQ(attached, 0u);
}

}  // namespace
}  // namespace roci::testing
