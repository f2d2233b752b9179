// Messages of every kind between two devices, multicast, VLANs and completion events.
#include "tests/unit/dataplane/shard/traffic.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>

namespace roci::testing {
namespace {

TEST_P(Traffic, WritesOfAllLengthsArrive) {
  auto pair = MakePair(roce::QpType::kRc);
  const uint32_t lengths[] = {0, 1, 2, 3, 4, 63, 64, 255, 4095, 4096, 4097, 8192, 65536, 300001};
  uint64_t wr_id = 100;
  for (const uint32_t length : lengths) {
    SCOPED_TRACE(length);
    Fill(a_, 0, length, length);
    std::memset(b_.memory(), 0, 400000);
    Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, wr_id++, {a_.Sge(0, length)}), 5));
    EXPECT_EQ(std::memcmp(a_.memory(), b_.memory() + 5, length), 0);
    EXPECT_EQ(b_.memory()[5 + length], std::byte{0});
  }
}

TEST_P(Traffic, ReadsOfAllLengthsArrive) {
  auto pair = MakePair(roce::QpType::kRc);
  const uint32_t lengths[] = {1, 3, 64, 4096, 4097, 65536, 300001};
  for (const uint32_t length : lengths) {
    SCOPED_TRACE(length);
    Fill(b_, 77, length, length);
    std::memset(a_.memory(), 0, 400000);
    Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_READ, length, {a_.Sge(3, length)}), 77));
    EXPECT_EQ(std::memcmp(a_.memory() + 3, b_.memory() + 77, length), 0);
    EXPECT_EQ(a_.memory()[3 + length], std::byte{0});
  }
}

TEST_P(Traffic, SendsGatherAndScatter) {
  auto pair = MakePair(roce::QpType::kRc);
  Fill(a_, 0, 20000, 1);
  pair->b.PostRecv(55, {b_.Sge(0, 100), b_.Sge(1000, 7), b_.Sge(2000, 30000)});
  pair->b.Ring();
  Complete(pair->a, Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 9000), a_.Sge(10000, 5)}));
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, 0u);
  EXPECT_EQ(cqe.wr_id, 55u);
  EXPECT_EQ(cqe.byte_length, 9005u);
  EXPECT_EQ(cqe.opcode, 128u);
  EXPECT_EQ(cqe.flags & ROCI_ABI_CQE_SEND, 0);
  EXPECT_EQ(std::memcmp(b_.memory(), a_.memory(), 100), 0);
  EXPECT_EQ(std::memcmp(b_.memory() + 1000, a_.memory() + 100, 7), 0);
  EXPECT_EQ(std::memcmp(b_.memory() + 2000, a_.memory() + 107, 9000 - 107), 0);
  EXPECT_EQ(std::memcmp(b_.memory() + 2000 + 9000 - 107, a_.memory() + 10000, 5), 0);
}

// End-to-end credits (IBTA vol 1, 9.7.7.2): a peer that has none hears of new receives unasked.
TEST_P(Traffic, NewReceivesAreReportedToAPeerWithoutCredits) {
  auto pair = MakePair(roce::QpType::kRc);
  pair->b.PostRecv(1, {b_.Sge(0, 64)});
  pair->b.Ring();
  Complete(pair->a, Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 64)}));
  const auto requester = [&] { return pair->a.Inspect().debug.requester; };
  EXPECT_TRUE(requester().obeys_credits);
  EXPECT_EQ(requester().credits, 0);
  const uint64_t answers = pair->b.Inspect().tx_packets;
  pair->b.PostRecv(2, {b_.Sge(0, 64)});
  pair->b.PostRecv(3, {b_.Sge(0, 64)});
  pair->b.Ring();
  constexpr int kMostTries = 5000;
  for (int i = 0; i < kMostTries && requester().credits == 0; ++i) usleep(1000);
  EXPECT_EQ(requester().credits, 2);
  EXPECT_EQ(pair->b.Inspect().tx_packets, answers + 1);
  EXPECT_EQ(pair->b.recv_queue()->armed, 0u);
}

TEST_P(Traffic, InlineDataAndImmediateArrive) {
  auto pair = MakePair(roce::QpType::kRc);
  pair->b.PostRecv(9, {});
  pair->b.Ring();
  SendRequest request = ToB(Request(ROCI_ABI_WR_RDMA_WRITE_WITH_IMM, 2, {}), 50);
  request.head.flags |= ROCI_ABI_SEND_INLINE;
  request.head.immediate = 0x11223344;
  const char text[] = "carried in the ring";
  request.inline_data.resize(sizeof(text));
  std::memcpy(request.inline_data.data(), text, sizeof(text));
  Complete(pair->a, request);
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.opcode, 129u);
  EXPECT_EQ(cqe.immediate, 0x11223344u);
  EXPECT_EQ(cqe.byte_length, sizeof(text));
  EXPECT_NE(cqe.flags & ROCI_ABI_CQE_WITH_IMM, 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(b_.memory() + 50), text);
}

// Visits are bounded by bytes: beside full packets, small messages get their share of the link.
TEST_P(Traffic, QueuePairsShareALaneByBytes) {
  constexpr uint32_t kLargeCount = 256, kSmallCount = 1000;
  dataplane::QueuePairConfig config = QpConfig(a_cq_, roce::QpType::kRc);
  config.max_send_wr = 1024;
  AppQp large(a_.client(), config), small(a_.client(), config);
  AppQp large_peer(b_.client(), QpConfig(b_cq_, roce::QpType::kRc));
  AppQp small_peer(b_.client(), QpConfig(b_cq_, roce::QpType::kRc));
  for (auto [from, to] : {std::pair(&large, &large_peer), std::pair(&small, &small_peer)}) {
    ASSERT_EQ(Connect(a_, *from, b_, to->qp().qpn()), roce::ModifyResult::kOk);
    ASSERT_EQ(Connect(b_, *to, a_, from->qp().qpn()), roce::ModifyResult::kOk);
  }
  for (uint32_t i = 0; i < kSmallCount; ++i)
    small.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 64)}), 0));
  for (uint32_t i = 0; i < kLargeCount; ++i) {
    SendRequest request = ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 2, {a_.Sge(0, 4096)}), 4096);
    if (i + 1 != kLargeCount) request.head.flags = 0;
    large.Post(request);
  }
  small.Ring();
  large.Ring();
  uint32_t small_done = 0;
  roci_abi_cqe cqe{};
  while (cqe.wr_id != 2) {
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    ASSERT_EQ(cqe.status, 0u);
    if (cqe.wr_id == 1) ++small_done;
  }
  // By packets, both would have sent as many. With two lcores the window decides, and with copies
  // by system calls their batches.
  const bool only_visits = GetParam().lcore_a == GetParam().lcore_b && !GetParam().process_vm;
  EXPECT_GT(small_done, only_visits ? 2 * kLargeCount : 0);
  for (; small_done < kSmallCount; ++small_done) ASSERT_TRUE(a_cq_.Wait(&cqe));
}

TEST_P(Traffic, AtomicsReturnTheOldValue) {
  auto pair = MakePair(roce::QpType::kRc);
  uint64_t value = 41;
  std::memcpy(b_.memory() + 64, &value, 8);
  SendRequest add = ToB(Request(ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, 1, {a_.Sge(0, 8)}), 64);
  add.head.u.atomic.compare_add = 1;
  Complete(pair->a, add);
  std::memcpy(&value, a_.memory(), 8);
  EXPECT_EQ(value, 41u);
  SendRequest swap = ToB(Request(ROCI_ABI_WR_ATOMIC_CMP_AND_SWP, 2, {a_.Sge(0, 8)}), 64);
  swap.head.u.atomic.compare_add = 42;
  swap.head.u.atomic.swap = 7;
  Complete(pair->a, swap);
  std::memcpy(&value, a_.memory(), 8);
  EXPECT_EQ(value, 42u);
  std::memcpy(&value, b_.memory() + 64, 8);
  EXPECT_EQ(value, 7u);
}

TEST_P(Traffic, UnreliableConnectedWorks) {
  auto pair = MakePair(roce::QpType::kUc);
  Fill(a_, 0, 10000, 3);
  Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 10000)}), 0));
  pair->b.PostRecv(1, {b_.Sge(20000, 100)});
  pair->b.Ring();
  Complete(pair->a, Request(ROCI_ABI_WR_SEND, 2, {a_.Sge(0, 50)}));
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.byte_length, 50u);
  EXPECT_EQ(std::memcmp(a_.memory(), b_.memory(), 10000), 0);
}

TEST_P(Traffic, DatagramsCarryTheirHeader) {
  AppQp from(a_.client(), QpConfig(a_cq_, roce::QpType::kUd));
  AppQp to(b_.client(), QpConfig(b_cq_, roce::QpType::kUd));
  ASSERT_EQ(ConnectUd(a_, from), roce::ModifyResult::kOk);
  ASSERT_EQ(ConnectUd(b_, to), roce::ModifyResult::kOk);
  const auto handle = a_.client().Do(dataplane::CreateAddressHandle{Node::kPd, PathTo(a_, b_)});
  ASSERT_TRUE(handle.ok());
  Fill(a_, 0, 1000, 4);
  to.PostRecv(8, {b_.Sge(0, 2000)});
  to.Ring();
  SendRequest request = Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 1000)});
  request.head.u.ud.address_handle = *handle;
  request.head.u.ud.remote_qpn = to.qp().qpn().value();
  request.head.u.ud.remote_qkey = 0x1234;
  Complete(from, request);
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.byte_length, 1040u);
  EXPECT_EQ(cqe.source_qpn, from.qp().qpn().value());
  EXPECT_NE(cqe.flags & ROCI_ABI_CQE_GRH, 0);
  EXPECT_EQ(b_.memory()[20], std::byte{0x45});
  EXPECT_EQ(std::memcmp(b_.memory() + 40, a_.memory(), 1000), 0);
}

TEST_P(Traffic, AnAddressOfAnotherDomainFailsTheRequest) {
  AppQp from(a_.client(), QpConfig(a_cq_, roce::QpType::kUd));
  ASSERT_EQ(ConnectUd(a_, from), roce::ModifyResult::kOk);
  const auto handle = a_.client().Do(dataplane::CreateAddressHandle{Node::kPd + 1, PathTo(a_, b_)});
  ASSERT_TRUE(handle.ok());
  SendRequest request = Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 100)});
  request.head.u.ud = {*handle, 5, 0x1234, {}};
  from.Post(request);
  from.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kLocalQpOperationError));
}

TEST_P(Traffic, MulticastReachesEveryMember) {
  AppQp from(a_.client(), QpConfig(a_cq_, roce::QpType::kUd));
  AppQp first(b_.client(), QpConfig(b_cq_, roce::QpType::kUd));
  AppQp second(b_.client(), QpConfig(b_cq_, roce::QpType::kUd));
  ASSERT_EQ(ConnectUd(a_, from), roce::ModifyResult::kOk);
  ASSERT_EQ(ConnectUd(b_, first), roce::ModifyResult::kOk);
  ASSERT_EQ(ConnectUd(b_, second), roce::ModifyResult::kOk);
  const roce::Gid group = roce::Gid::FromIpv4(roce::Ipv4{{239, 1, 2, 3}});
  ASSERT_TRUE(b_.device().Do(dataplane::AttachMulticast{first.qp(), group}).ok());
  ASSERT_TRUE(b_.device().Do(dataplane::AttachMulticast{second.qp(), group}).ok());
  EXPECT_FALSE(b_.device().Do(dataplane::AttachMulticast{second.qp(), group}).ok());
  roce::Path path = PathTo(a_, b_);
  path.dst_gid = group;
  path.dst_mac = roce::Mac{{0x01, 0x00, 0x5E, 1, 2, 3}};
  const auto handle = a_.client().Do(dataplane::CreateAddressHandle{Node::kPd, path});
  ASSERT_TRUE(handle.ok());
  first.PostRecv(1, {b_.Sge(0, 200)});
  second.PostRecv(2, {b_.Sge(1000, 200)});
  first.Ring();
  second.Ring();
  SendRequest request = Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 100)});
  request.head.u.ud = {*handle, 0xFFFFFF, 0x1234, {}};
  Complete(from, request);
  roci_abi_cqe cqe;
  uint64_t seen = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(b_cq_.Wait(&cqe));
    seen += cqe.wr_id;
  }
  EXPECT_EQ(seen, 3u);
  ASSERT_TRUE(b_.device().Do(dataplane::DetachMulticast{first.qp(), group}).ok());
  EXPECT_FALSE(b_.device().Do(dataplane::DetachMulticast{first.qp(), group}).ok());
}

roce::Path InVlan(roce::Path path, uint16_t tag) {
  path.has_vlan = true;
  path.vlan_tci = tag;
  return path;
}

TEST_P(Traffic, AQueuePairAcceptsOnlyPacketsOfItsVlan) {
  ConnectOptions options;
  options.timeout = 14;  // 67 ms: long enough for a busy machine, short enough to run out twice
  options.retry_count = 1;
  auto pair = MakePair(roce::QpType::kRc, options);
  a_.client().Do(dataplane::SetPath{pair->a.qp(), InVlan(PathTo(a_, b_), 7 | 5 << 13)});
  b_.client().Do(
      dataplane::SetPath{pair->b.qp(), InVlan(PathTo(b_, a_), 7)});  // priorities are no matter
  Fill(a_, 0, 10000, 6);
  Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 10000)}), 0));
  EXPECT_EQ(std::memcmp(a_.memory(), b_.memory(), 10000), 0);
  const auto drops = [&] {
    return b_.device().Snapshot().drops[static_cast<size_t>(roce::DropReason::kVlan)];
  };
  EXPECT_EQ(drops(), 0u);
  // A tag with VLAN id 0 is a priority tag: the packet is untagged.
  a_.client().Do(dataplane::SetPath{pair->a.qp(), InVlan(PathTo(a_, b_), 5 << 13)});
  b_.client().Do(dataplane::SetPath{pair->b.qp(), PathTo(b_, a_)});
  Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 2, {a_.Sge(0, 10)}), 0));
  b_.client().Do(dataplane::SetPath{pair->b.qp(), InVlan(PathTo(b_, a_), 8)});
  pair->a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 3, {a_.Sge(0, 64)}), 20000));
  pair->a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kRetryExceeded));
  EXPECT_EQ(drops(), 2u);
}

TEST_P(Traffic, DatagramsMustMatchTheVlanOfTheAddress) {
  AppQp from(a_.client(), QpConfig(a_cq_, roce::QpType::kUd));
  AppQp to(b_.client(), QpConfig(b_cq_, roce::QpType::kUd));
  ASSERT_EQ(ConnectUd(a_, from), roce::ModifyResult::kOk);
  ASSERT_EQ(ConnectUd(b_, to), roce::ModifyResult::kOk);
  const roce::Gid own = PathTo(a_, b_).dst_gid;
  const roce::NetAddress addresses[] = {{own, 7}, {own, 0}};
  b_.device().Do(dataplane::SetLocalAddresses{addresses});
  const auto send = [&](const roce::Path& path, uint64_t number) {
    const auto handle = a_.client().Do(dataplane::CreateAddressHandle{Node::kPd, path});
    ASSERT_TRUE(handle.ok());
    SendRequest request = Request(ROCI_ABI_WR_SEND, number, {a_.Sge(0, 100)});
    const bool is_group = path.dst_gid.IsMulticast();
    request.head.u.ud = {*handle, is_group ? 0xFFFFFF : to.qp().qpn().value(), 0x1234, {}};
    Complete(from, request);
  };
  const roce::Gid group = roce::Gid::FromIpv4(roce::Ipv4{{239, 1, 2, 3}});
  ASSERT_TRUE(b_.device().Do(dataplane::AttachMulticast{to.qp(), group}).ok());
  roce::Path to_group = PathTo(a_, b_);
  to_group.dst_gid = group;
  to_group.dst_mac = roce::Mac{{0x01, 0x00, 0x5E, 1, 2, 3}};
  for (uint64_t i = 0; i < 4; ++i) to.PostRecv(i, {b_.Sge(0, 2000)});
  to.Ring();
  send(InVlan(PathTo(a_, b_), 8), 1);
  send(InVlan(to_group, 8), 2);
  send(InVlan(PathTo(a_, b_), 7 | 3 << 13), 3);
  send(InVlan(to_group, 7), 4);
  send(PathTo(a_, b_), 5);
  send(to_group, 6);
  std::multiset<uint32_t> tags;
  for (int i = 0; i < 4; ++i) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe));
    tags.insert(cqe.datagram.vlan_tci);
    EXPECT_EQ(cqe.datagram.header, 0xAu) << "an IPv4 header";
  }
  EXPECT_EQ(tags, (std::multiset<uint32_t>{7 | 3 << 13, 7, 0, 0}));
  const auto drops = [&] {
    return b_.device().Snapshot().drops[static_cast<size_t>(roce::DropReason::kVlan)];
  };
  for (int i = 0; i < 2000 && drops() < 2; ++i) usleep(1000);
  // Every lcore has a copy of a group's datagram.
  EXPECT_GE(drops(), 2u);
}

TEST_P(Traffic, CompletionEventsComeOncePerArming) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  AppCq cq(b_.client(), 16, ends[1], 0x77);
  AppQp a(a_.client(), QpConfig(a_cq_, roce::QpType::kRc));
  AppQp b(b_.client(), QpConfig(cq, roce::QpType::kRc));
  ASSERT_EQ(Connect(a_, a, b_, b.qp().qpn()), roce::ModifyResult::kOk);
  ASSERT_EQ(Connect(b_, b, a_, a.qp().qpn()), roce::ModifyResult::kOk);
  for (uint64_t i = 0; i < 6; ++i) b.PostRecv(i, {b_.Sge(0, 64)});
  b.Ring();
  roci_abi_cqe cqe;
  uint64_t handle = 0;
  const auto send = [&](bool solicited) {
    SendRequest request = Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 8)});
    if (solicited) request.head.flags |= ROCI_ABI_SEND_SOLICITED;
    Complete(a, request);
    ASSERT_TRUE(cq.Wait(&cqe));
  };
  const auto event_comes = [&] {
    for (int i = 0; i < 100; ++i) {
      if (read(ends[0], &handle, sizeof(handle)) == sizeof(handle)) return true;
      usleep(1000);
    }
    return false;
  };
  send(false);
  EXPECT_FALSE(event_comes());
  cq.Arm(ROCI_ABI_CQ_ARM_ANY);
  send(false);
  EXPECT_TRUE(event_comes());
  EXPECT_EQ(handle, 0x77u);
  send(false);
  EXPECT_FALSE(event_comes());
  cq.Arm(ROCI_ABI_CQ_ARM_SOLICITED);
  send(false);
  EXPECT_FALSE(event_comes());
  send(true);
  EXPECT_TRUE(event_comes());
  TestDataplane().Quiesce();  // the lcore counts an event when it has sent it
  EXPECT_EQ(cq.cq()->comp_events(), 2u);
  b_.client().Do(dataplane::DestroyQueuePair{b.qp()});
  EXPECT_TRUE(b_.client().Do(dataplane::DestroyCompletionQueue{*cq.cq()}).ok());
  close(ends[0]);
  close(ends[1]);
}

TEST_P(Traffic, ReceiverNotReadyIsRetried) {
  auto pair = MakePair(roce::QpType::kRc);
  Fill(a_, 0, 3000, 5);
  pair->a.Post(Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 3000)}));
  pair->a.Ring();
  usleep(20000);
  pair->b.PostRecv(2, {b_.Sge(0, 4000)});
  pair->b.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, 0u);
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(std::memcmp(a_.memory(), b_.memory(), 3000), 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Traffic,
                         ::testing::Values(Layout{0, 0, false}, Layout{0, 1, false},
                                           Layout{0, 0, true}, Layout{1, 0, true}),
                         LayoutName);

}  // namespace
}  // namespace roci::testing
