// Frames of the control plane over a wire between three devices.
#include "dataplane/port/wire.h"

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

using dataplane::SlowPathKind;

class WireTest : public ::testing::Test {
 protected:
  WireTest()
      : wire_(TestDataplane()),
        a_(TestDataplane(), &wire_, Number(1)),
        b_(TestDataplane(), &wire_, Number(2)),
        c_(TestDataplane(), &wire_, Number(3)) {}

  static Node::Config Number(uint32_t number) {
    Node::Config config;
    config.number = number;
    config.lcore = number % kTestLcores;
    return config;
  }
  // An ARP-like frame of `length` bytes.
  static std::vector<std::byte> Frame(const roce::Mac& to, const roce::Mac& from, size_t length) {
    std::vector<std::byte> frame(length);
    for (size_t i = 0; i < length; ++i) frame[i] = static_cast<std::byte>(i);
    std::memcpy(frame.data(), to.bytes.data(), 6);
    std::memcpy(frame.data() + 6, from.bytes.data(), 6);
    frame[12] = std::byte{0x08};
    frame[13] = std::byte{0x06};
    return frame;
  }
  static bool Arrives(Node& node, std::vector<std::byte>& frame, int timeout_ms = 2000,
                      SlowPathKind kind = SlowPathKind::kNeighbours) {
    for (int i = 0; i < timeout_ms; ++i) {
      if (node.device().ReceiveSlowPath(kind, frame)) return true;
      usleep(1000);
    }
    return false;
  }

  dataplane::Wire wire_;
  Node a_;
  Node b_;
  Node c_;
};

TEST_F(WireTest, UnicastReachesItsAddressAlone) {
  const auto frame = Frame(b_.device().mac(), a_.device().mac(), 100);
  ASSERT_TRUE(a_.device().SendRaw(frame).ok());
  std::vector<std::byte> received;
  ASSERT_TRUE(Arrives(b_, received));
  EXPECT_EQ(received, frame);
  uint64_t events = 0;
  EXPECT_EQ(read(b_.device().slow_path_fd(), &events, 8), 8);
  EXPECT_FALSE(Arrives(c_, received, 20));
  EXPECT_FALSE(Arrives(a_, received, 1));
}

TEST_F(WireTest, ADeviceReachesItself) {
  ASSERT_TRUE(a_.device().SendRaw(Frame(a_.device().mac(), a_.device().mac(), 64)).ok());
  std::vector<std::byte> received;
  EXPECT_TRUE(Arrives(a_, received));
}

TEST_F(WireTest, BroadcastReachesAllOthersOnceAndShortFramesArePadded) {
  const roce::Mac all{{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}};
  const auto frame = Frame(all, a_.device().mac(), 42);
  ASSERT_TRUE(a_.device().SendRaw(frame).ok());
  std::vector<std::byte> received;
  for (Node* node : {&b_, &c_}) {
    ASSERT_TRUE(Arrives(*node, received));
    EXPECT_EQ(received.size(), 60u);
    EXPECT_EQ(std::memcmp(received.data(), frame.data(), 42), 0);
    EXPECT_EQ(received[59], std::byte{0});
    EXPECT_FALSE(Arrives(*node, received, 20));
  }
  EXPECT_FALSE(Arrives(a_, received, 1));
}

TEST_F(WireTest, FramesToUnknownAddressesAreDropped) {
  ASSERT_TRUE(a_.device().SendRaw(Frame({{0x02, 9, 9, 9, 9, 9}}, a_.device().mac(), 64)).ok());
  std::vector<std::byte> received;
  for (Node* node : {&a_, &b_, &c_}) EXPECT_FALSE(Arrives(*node, received, 20));
}

TEST_F(WireTest, BadLengthsAreRefused) {
  EXPECT_FALSE(a_.device().SendRaw(std::vector<std::byte>(13)).ok());
  EXPECT_FALSE(a_.device().SendRaw(std::vector<std::byte>(5000)).ok());
}

TEST_F(WireTest, AFloodForASlowControlPlaneIsBoundedAndCounted) {
  const auto frame = Frame(b_.device().mac(), a_.device().mac(), 64);
  uint32_t sent = 0;
  for (int i = 0; i < 3000; ++i) {
    if (a_.device().SendRaw(frame).ok()) {
      ++sent;
    } else {
      usleep(100);
    }
  }
  const auto all_counted = [&] {
    const auto snapshot = b_.device().Snapshot();
    return snapshot.rx_slow_path + snapshot.rx_slow_path_dropped == sent;
  };
  for (int i = 0; i < 2000 && !all_counted(); ++i) usleep(1000);
  EXPECT_TRUE(all_counted());
  EXPECT_GT(b_.device().Snapshot().rx_slow_path_dropped, 0u);
  std::vector<std::byte> received;
  uint64_t taken = 0;
  while (b_.device().ReceiveSlowPath(SlowPathKind::kNeighbours, received)) ++taken;
  EXPECT_EQ(taken, b_.device().Snapshot().rx_slow_path);
}

// A control plane that is behind with one kind of frames.
class SlowPathTest : public WireTest {
 protected:
  // An IP frame of `protocol`; `type`: the first byte of its payload.
  std::vector<std::byte> IpFrame(bool is_ipv6, uint8_t protocol, uint8_t type) {
    std::vector<std::byte> frame(100);
    const uint16_t ether_type = is_ipv6 ? roce::kEtherTypeIpv6 : roce::kEtherTypeIpv4;
    roce::EthernetHeader{b_.device().mac(), a_.device().mac(), ether_type}.Store(frame.data());
    std::byte* ip = &frame[roce::EthernetHeader::kBytes];
    ip[0] = std::byte{is_ipv6 ? uint8_t{0x60} : uint8_t{0x45}};
    ip[is_ipv6 ? 6 : 9] = std::byte{protocol};
    ip[is_ipv6 ? 40 : 20] = std::byte{type};
    return frame;
  }
  std::vector<std::byte> Arp() { return Frame(b_.device().mac(), a_.device().mac(), 100); }
  std::vector<std::byte> Solicitation() { return IpFrame(true, 58, 135); }
  std::vector<std::byte> Ping(bool is_ipv6) {
    return is_ipv6 ? IpFrame(true, 58, 128) : IpFrame(false, 1, 8);
  }
  // A datagram to QP 1.
  std::vector<std::byte> Mad() {
    roce::TxPacket packet{};
    packet.opcode = roce::Opcode::kUdSendOnly;
    packet.dest_qpn = roce::kGsiQpn;
    packet.payload_length = 256;
    packet.ext.deth = {0x80010000, roce::kGsiQpn};
    const std::vector<std::byte> payload(256);
    std::vector<std::byte> frame(roce::kMaxFrameBytes);
    const roce::FrameTemplate path(PathTo(a_, b_));
    frame.resize(roce::EncodeFrame(path, packet, payload.data(), 0, frame.data()));
    return frame;
  }
  static std::vector<std::byte> Tagged(std::vector<std::byte> frame) {
    const std::byte tag[] = {std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{7}};
    frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    return frame;
  }
  // Sends `frame` until the queue of its kind is full.
  void Flood(const std::vector<std::byte>& frame) {
    const uint64_t before = b_.device().Snapshot().rx_slow_path_dropped;
    for (int i = 0; i < 20'000 && b_.device().Snapshot().rx_slow_path_dropped == before; ++i) {
      if (!a_.device().SendRaw(frame).ok()) usleep(100);
    }
    ASSERT_GT(b_.device().Snapshot().rx_slow_path_dropped, before);
  }
  void ExpectArrival(const std::vector<std::byte>& frame, SlowPathKind kind) {
    while (!a_.device().SendRaw(frame).ok()) usleep(100);
    std::vector<std::byte> received;
    ASSERT_TRUE(Arrives(b_, received, 2000, kind));
    EXPECT_EQ(received, frame);
  }
};

TEST_F(SlowPathTest, MadsDisplaceNoOtherFrames) {
  Flood(Mad());
  ExpectArrival(Arp(), SlowPathKind::kNeighbours);
  ExpectArrival(Solicitation(), SlowPathKind::kNeighbours);
  ExpectArrival(Ping(false), SlowPathKind::kOthers);
  const auto snapshot = b_.device().Snapshot();
  EXPECT_EQ(snapshot.rx_mad_dropped, snapshot.rx_slow_path_dropped);
  EXPECT_EQ(snapshot.rx_neighbour_dropped, 0u);
}

TEST_F(SlowPathTest, NeighbourFramesDisplaceNoMads) {
  Flood(Solicitation());
  ExpectArrival(Mad(), SlowPathKind::kMads);
  const auto snapshot = b_.device().Snapshot();
  EXPECT_EQ(snapshot.rx_neighbour_dropped, snapshot.rx_slow_path_dropped);
  EXPECT_EQ(snapshot.rx_mad_dropped, 0u);
}

TEST_F(SlowPathTest, PingsAndForeignProtocolsDisplaceNoNeighbourFrames) {
  for (const auto& frame : {Ping(false), Ping(true), IpFrame(true, 6, 135), Tagged(Ping(true))}) {
    Flood(frame);
    ExpectArrival(Arp(), SlowPathKind::kNeighbours);
    ExpectArrival(Tagged(Arp()), SlowPathKind::kNeighbours);
    ExpectArrival(Tagged(Solicitation()), SlowPathKind::kNeighbours);
    ExpectArrival(IpFrame(true, 58, 136), SlowPathKind::kNeighbours);
    ExpectArrival(Mad(), SlowPathKind::kMads);
  }
  EXPECT_EQ(b_.device().Snapshot().rx_neighbour_dropped, 0u);
}

// A multicast packet is accepted only with a correct ICRC, as a packet of a queue pair is.
TEST_F(WireTest, ADamagedPacketToAGroupIsDropped) {
  AppCq cq(b_.client(), 16);
  dataplane::QueuePairConfig config;
  config.type = roce::QpType::kUd;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = config.max_recv_wr = 4;
  config.max_send_sge = config.max_recv_sge = 1;
  AppQp member(b_.client(), config);
  ASSERT_EQ(ConnectUd(b_, member), roce::ModifyResult::kOk);
  const roce::Gid group = roce::Gid::FromIpv4(roce::Ipv4{{239, 1, 2, 3}});
  ASSERT_TRUE(b_.device().Do(dataplane::AttachMulticast{member.qp(), group}).ok());
  for (uint64_t i = 1; i <= 2; ++i) member.PostRecv(i, {b_.Sge(i * 1000, 200)});
  member.Ring();

  roce::Path path = PathTo(a_, b_);
  path.dst_gid = group;
  path.dst_mac = roce::Mac{{0x01, 0x00, 0x5E, 1, 2, 3}};
  roce::TxPacket packet{};
  packet.opcode = roce::Opcode::kUdSendOnly;
  packet.dest_qpn = roce::kMulticastQpn;
  packet.payload_length = 64;
  packet.ext.deth = {0x1234, roce::Qpn(5)};
  const std::vector<std::byte> payload(64, std::byte{0x5A});
  std::vector<std::byte> frame(roce::kMaxFrameBytes);
  frame.resize(
      roce::EncodeFrame(roce::FrameTemplate(path), packet, payload.data(), 0, frame.data()));
  std::vector<std::byte> damaged = frame;
  damaged[damaged.size() - 20] ^= std::byte{1};
  ASSERT_TRUE(a_.device().SendRaw(damaged).ok());
  ASSERT_TRUE(a_.device().SendRaw(frame).ok());
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 1u);
  EXPECT_EQ(cqe.byte_length, 104u);
  EXPECT_EQ(std::memcmp(b_.memory() + 1040, payload.data(), payload.size()), 0);
  EXPECT_FALSE(cq.Wait(&cqe, 20));
  EXPECT_EQ(b_.device().Snapshot().drops[static_cast<size_t>(roce::DropReason::kIcrc)], 1u);
}

// As the segments that a kernel makes of one frame (UDP GSO).
TEST_F(WireTest, FramesOfAMessageHaveConsecutiveIdentifications) {
  constexpr roce::Mac kStranger{{0x02, 0, 0, 0, 0, 0x77}};
  const uint32_t stranger = *wire_.AddEndpoint(kStranger);
  AppCq cq(a_.client(), 16);
  dataplane::QueuePairConfig config;
  config.type = roce::QpType::kUc;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  AppQp qp(a_.client(), config);
  ConnectOptions options;
  options.mtu = roce::PathMtu::k1024;
  options.first_psn = 0xFFFE;
  ASSERT_EQ(Connect(a_, qp, b_, roce::Qpn(5), options), roce::ModifyResult::kOk);
  roce::Path path = PathTo(a_, b_);
  path.dst_mac = kStranger;
  a_.client().Do(dataplane::SetPath{qp.qp(), path});
  SendRequest request;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  request.sges = {a_.Sge(0, 5000)};
  qp.Post(request);
  qp.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq.Wait(&cqe));
  std::vector<uint16_t> identifications;
  constexpr uint32_t kLcore = 5 % kTestLcores;  // by the number of the queue pair
  for (int i = 0; i < 2000 && identifications.size() < 5; ++i, usleep(1000)) {
    rte_mbuf* frames[8];
    const uint32_t count = wire_.Receive(stranger, kLcore, frames, 8);
    for (uint32_t j = 0; j < count; ++j) {
      roce::Packet packet;
      EXPECT_EQ(roce::ParsePacket(
                    {rte_pktmbuf_mtod(frames[j], const std::byte*), frames[j]->data_len}, packet),
                roce::DropReason::kNone);
      identifications.push_back(roce::Ipv4Header::Load(packet.network_header).id);
    }
    rte_pktmbuf_free_bulk(frames, count);
  }
  EXPECT_EQ(identifications, (std::vector<uint16_t>{0xFFFE, 0xFFFF, 0, 1, 2}));
  wire_.RemoveEndpoint(stranger);
}

TEST_F(WireTest, DevicesAreAddedAndRemovedDuringTraffic) {
  for (int round = 0; round < 20; ++round) {
    auto guest = std::make_unique<Node>(TestDataplane(), &wire_, Number(10));
    for (int i = 0; i < 50; ++i) {
      (void)a_.device().SendRaw(Frame(guest->device().mac(), a_.device().mac(), 64));
    }
  }
  EXPECT_EQ(wire_.endpoint_count(), 3u);
}

}  // namespace
}  // namespace roci::testing
