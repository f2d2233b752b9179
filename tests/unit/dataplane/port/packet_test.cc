// Frames through a pair of sockets, as through the kernel's packet sockets: sent in runs, received
// whole or single, damaged, without buffers and without room.
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/port/packet_receiver.h"
#include "dataplane/port/packet_sender.h"
#include "dataplane/port/packet_sockets.h"
#include "roce/frame.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/roce/rng.h"

namespace roci::testing {
namespace {

using dataplane::kFrameBufferBytes;
using dataplane::kFrameOffset;
using dataplane::VirtioNetHeader;
using Frame = std::vector<std::byte>;
using Frames = std::vector<Frame>;

constexpr uint32_t kRoomBytes = kFrameBufferBytes - kFrameOffset;

Frame MakeFrame(uint32_t psn, uint32_t payload_bytes) {
  roce::Path path;
  path.dst_mac = {{0x02, 1, 2, 3, 4, 6}};
  path.src_gid = roce::Gid::FromIpv4({{10, 1, 2, 3}});
  path.dst_gid = roce::Gid::FromIpv4({{10, 1, 2, 4}});
  roce::TxPacket packet;
  packet.opcode = roce::Opcode::kRcSendMiddle;
  packet.psn = roce::Psn(psn & 0xFFFFFF);
  packet.payload_length = payload_bytes;
  Frame payload(payload_bytes, static_cast<std::byte>(psn * 7));
  Frame frame(roce::kMaxFrameBytes);
  frame.resize(roce::EncodeFrame(roce::FrameTemplate(path), packet, payload.data(),
                                 static_cast<uint16_t>(psn), frame.data()));
  return frame;
}

Frames MakeFrames(uint32_t count, uint32_t payload_bytes) {
  Frames frames;
  for (uint32_t i = 0; i < count; ++i) frames.push_back(MakeFrame(i, payload_bytes));
  return frames;
}

class PacketTest : public ::testing::Test {
 public:
  PacketTest() {
    TestDataplane();
    pool_ = *dataplane::FramePool::Create(1023);
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends), 0);
    near_ = dataplane::Fd(ends[0]);
    far_ = dataplane::Fd(ends[1]);
    const int bytes = 4 << 20;
    setsockopt(near_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    sender_ = std::make_unique<dataplane::PacketSender>(near_.get(), true);
    receiver_ = std::make_unique<dataplane::PacketReceiver>(far_.get(), pool_->mempool());
  }
  ~PacketTest() override {
    receiver_.reset();
    EXPECT_EQ(pool_->in_use(), 0u);
  }

 protected:
  // Returns how many were taken; the others are freed.
  uint32_t Send(std::span<const Frame> frames) {
    std::vector<rte_mbuf*> buffers;
    for (const Frame& frame : frames) {
      rte_mbuf* buffer = rte_pktmbuf_alloc(pool_->mempool());
      std::memcpy(rte_pktmbuf_append(buffer, static_cast<uint16_t>(frame.size())), frame.data(),
                  frame.size());
      buffers.push_back(buffer);
    }
    const uint32_t sent = sender_->Send(buffers.data(), static_cast<uint32_t>(buffers.size()));
    rte_pktmbuf_free_bulk(buffers.data() + sent, static_cast<unsigned>(buffers.size() - sent));
    return sent;
  }
  // As the kernel passes it on.
  void Pass(const VirtioNetHeader& gso, std::span<const std::byte> frame) {
    Frame message(sizeof(gso));
    std::memcpy(message.data(), &gso, sizeof(gso));
    message.insert(message.end(), frame.begin(), frame.end());
    ASSERT_EQ(send(near_.get(), message.data(), message.size(), 0),
              static_cast<ssize_t>(message.size()));
  }
  Frames Receive(uint32_t burst = 32) {
    Frames out;
    std::vector<rte_mbuf*> buffers(burst);
    while (const uint32_t count = receiver_->Receive(buffers.data(), burst)) {
      for (uint32_t i = 0; i < count; ++i) {
        EXPECT_EQ(buffers[i]->pkt_len, buffers[i]->data_len);
        EXPECT_EQ(buffers[i]->data_off, kFrameOffset);
        EXPECT_EQ(buffers[i]->nb_segs, 1);
        EXPECT_EQ(buffers[i]->ol_flags, 0u);
        const auto* bytes = rte_pktmbuf_mtod(buffers[i], const std::byte*);
        out.emplace_back(bytes, bytes + buffers[i]->data_len);
      }
      rte_pktmbuf_free_bulk(buffers.data(), count);
    }
    return out;
  }
  // The sizes of the messages that wait.
  std::vector<size_t> Messages() {
    std::vector<size_t> sizes;
    Frame message(1 << 17);
    for (ssize_t n = 0; (n = recv(far_.get(), message.data(), message.size(), 0)) > 0;) {
      sizes.push_back(static_cast<size_t>(n));
    }
    return sizes;
  }

  std::unique_ptr<dataplane::FramePool> pool_;
  dataplane::Fd near_, far_;
  std::unique_ptr<dataplane::PacketSender> sender_;
  std::unique_ptr<dataplane::PacketReceiver> receiver_;
};

TEST_F(PacketTest, ARunIsOneMessage) {
  Frames frames = MakeFrames(15, 4096);
  frames.push_back(MakeFrame(15, 100));
  const size_t header = 42, overhead = 12 + 4;
  EXPECT_EQ(Send(frames), 16u);
  EXPECT_EQ(Messages(), std::vector<size_t>{10 + header + 15 * (4096 + overhead) + 100 + overhead});
}

TEST_F(PacketTest, FramesArriveAsTheyWereSent) {
  roce::Rng random(3);
  for (int round = 0; round < 300; ++round) {
    Frames frames;
    const uint32_t most = random() % 2 == 0 ? 4096 : 1024;
    const uint32_t first = random();
    const uint32_t count = 1 + random() % 60;
    for (uint32_t i = 0; i < count; ++i) {
      // Now and then a packet is missing, or shorter.
      const uint32_t psn = first + i + (random() % 16 == 0 ? 1 : 0);
      frames.push_back(MakeFrame(psn, random() % 8 == 0 ? random() % most : most));
    }
    Frames received;
    for (std::span<const Frame> rest(frames); !rest.empty();) {
      rest = rest.subspan(Send(rest));
      // Frames that do not fit a burst wait.
      for (Frame& frame : Receive(1 + random() % 40)) received.push_back(std::move(frame));
    }
    ASSERT_EQ(received, frames) << round;
  }
  EXPECT_EQ(receiver_->errors() + sender_->errors(), 0u);
  EXPECT_FALSE(receiver_->Pending());
}

TEST_F(PacketTest, WithoutJoiningAFrameIsAMessage) {
  sender_ = std::make_unique<dataplane::PacketSender>(near_.get(), false);
  const Frames frames = MakeFrames(5, 1024);
  EXPECT_EQ(Send(frames), 5u);
  EXPECT_TRUE(receiver_->Pending());
  EXPECT_EQ(Receive(), frames);
  EXPECT_EQ(Send(frames), 5u);
  EXPECT_EQ(Messages(), std::vector<size_t>(5, 10 + frames[0].size()));
}

TEST_F(PacketTest, WhatHasNoRoomIsNotTaken) {
  sender_ = std::make_unique<dataplane::PacketSender>(near_.get(), false);
  const int bytes = 20'000;
  ASSERT_EQ(setsockopt(near_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
  const Frames frames = MakeFrames(600, 16);
  const uint32_t sent = Send(frames);
  ASSERT_GT(sent, 0u);
  ASSERT_LT(sent, 600u);
  EXPECT_EQ(Send(frames), 0u);
  EXPECT_EQ(Receive(), Frames(frames.begin(), frames.begin() + sent));
  EXPECT_GT(Send(frames), 0u);
  EXPECT_EQ(Receive().size(), sent);
  EXPECT_EQ(sender_->errors(), 0u);
}

// As a kernel that takes no such frames.
TEST_F(PacketTest, ARunThatIsRefusedIsSentAsSingleFrames) {
  const int bytes = 20'000;  // the kernel doubles it
  ASSERT_EQ(setsockopt(near_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
  const Frames frames = MakeFrames(15, 4096);
  Frames received;
  for (std::span<const Frame> rest(frames); !rest.empty();) {
    const uint32_t sent = Send(rest);
    ASSERT_GT(sent, 0u);
    rest = rest.subspan(sent);
    for (Frame& frame : Receive()) received.push_back(std::move(frame));
  }
  EXPECT_EQ(received, frames);
  EXPECT_EQ(sender_->errors(), 0u);
}

TEST_F(PacketTest, RefusedFramesAreCountedAndTaken) {
  far_.Reset();
  EXPECT_EQ(Send(MakeFrames(20, 512)), 20u);
  EXPECT_EQ(sender_->errors(), 20u);
}

TEST_F(PacketTest, UnusableFramesAreDroppedAndCounted) {
  VirtioNetHeader gso;
  const Frame good = MakeFrame(1, 1000);
  uint64_t dropped = 0;
  const auto is_dropped = [&](std::span<const std::byte> frame) {
    // Also while a GSO frame is expected, and afterwards.
    for (int round = 0; round < 3; ++round) {
      if (round == 1) {
        EXPECT_EQ(Send(MakeFrames(2, 100)), 2u);
      }
      Pass(gso, frame);
      Pass({}, good);
      const Frames received = Receive();
      EXPECT_EQ(received.size(), round == 1 ? 3u : 1u);
      EXPECT_EQ(received.back(), good);
      EXPECT_EQ(receiver_->errors(), ++dropped);
    }
  };
  is_dropped(Frame(kRoomBytes + 1));
  is_dropped(Frame(60'000));
  const Frames parts = MakeFrames(8, 4096);
  dataplane::GsoRun run(parts[0]);
  Frame whole(42);
  for (size_t i = 1; i < parts.size(); ++i) ASSERT_TRUE(run.Add(parts[i]));
  run.WriteHeaders(gso, whole.data());
  for (const Frame& part : parts) whole.insert(whole.end(), part.begin() + 42, part.end());
  gso.gso_size = 0;
  is_dropped(whole);
  gso.gso_size = 3;  // too many segments
  is_dropped(whole);
  gso.gso_size = kRoomBytes - 41;  // a segment does not fit
  is_dropped(whole);
  gso.gso_size = 4112;
  Frame shortened = whole;
  shortened.pop_back();
  is_dropped(shortened);
  Pass(gso, whole);
  EXPECT_EQ(Receive(), parts);
}

TEST_F(PacketTest, AFrameThatJustFitsIsReceived) {
  const Frame frame(kRoomBytes, std::byte{0x5A});
  Pass({}, frame);
  EXPECT_EQ(Receive(), Frames{frame});
}

TEST_F(PacketTest, GarbageDoesNoHarm) {
  roce::Rng random(5);
  const Frames parts = MakeFrames(8, 200);
  for (int round = 0; round < 3000; ++round) {
    VirtioNetHeader gso;
    dataplane::GsoRun run(parts[0]);
    Frame whole(42);
    for (size_t i = 1; i < parts.size(); ++i) run.Add(parts[i]);
    run.WriteHeaders(gso, whole.data());
    for (const Frame& part : parts) whole.insert(whole.end(), part.begin() + 42, part.end());
    if (random() % 2 == 0) gso.gso_size = static_cast<uint16_t>(random());
    if (random() % 2 == 0) whole.resize(random() % whole.size());
    for (uint32_t i = random() % 4; i > 0 && !whole.empty(); --i) {
      whole[random() % std::min<size_t>(whole.size(), 60)] = static_cast<std::byte>(random());
    }
    Pass(gso, whole);
    Receive();
  }
  Send(parts);
  const Frames received = Receive();
  EXPECT_EQ(received, parts);
}

TEST_F(PacketTest, FramesWaitForBuffers) {
  for (const bool expects_segments : {false, true}) {
    const Frames frames = MakeFrames(4, 1024);
    if (expects_segments) {
      Send(frames);
      EXPECT_EQ(Receive(), frames);
    }
    expects_segments ? (void)Send(frames) : Pass({}, frames[0]);
    std::vector<rte_mbuf*> taken;
    while (rte_mbuf* buffer = rte_pktmbuf_alloc(pool_->mempool())) taken.push_back(buffer);
    const uint64_t before = receiver_->without_buffer();
    EXPECT_EQ(Receive(), Frames());
    EXPECT_GT(receiver_->without_buffer(), before);
    EXPECT_TRUE(receiver_->Pending());
    rte_pktmbuf_free_bulk(taken.data(), static_cast<unsigned>(taken.size()));
    EXPECT_EQ(Receive(), expects_segments ? frames : Frames{frames[0]});
  }
}

TEST(PacketSockets, NeedLinux6_2) {
  using dataplane::PacketSockets;
  EXPECT_TRUE(PacketSockets::AreSupported("6.2.0"));
  EXPECT_TRUE(PacketSockets::AreSupported("6.18.44-fc-v669"));
  EXPECT_TRUE(PacketSockets::AreSupported("7.0-rc1"));
  EXPECT_TRUE(PacketSockets::AreSupported("10.1"));
  EXPECT_FALSE(PacketSockets::AreSupported("6.1.0-28-amd64"));
  EXPECT_FALSE(PacketSockets::AreSupported("5.15.0"));
  EXPECT_FALSE(PacketSockets::AreSupported(""));
}

}  // namespace
}  // namespace roci::testing
