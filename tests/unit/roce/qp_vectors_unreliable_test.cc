// Recorded UC messages and datagrams (also multicast) of Linux's soft-RoCE: our queue pairs send
// the same packets, and accept those of Linux.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "roce/parse.h"
#include "tests/unit/roce/recorded.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {
namespace {

TEST(QpVectors, UnreliableConnectionAsLinuxDid) {
  for (const char* name :
       {"vec-uc_send-v4-mtu256", "vec-uc_send-v4-mtu1024", "vec-uc_send-v4-mtu4096",
        "vec-uc_write-v4-mtu256", "vec-uc_write-v4-mtu1024", "vec-uc_write-v4-mtu4096",
        "ibv_uc_pingpong-v4"}) {
    const auto recorded = Load(name, Transport::kUc);
    ASSERT_FALSE(recorded.empty()) << name;
    for (const Gid& asker : Askers(recorded)) {
      SCOPED_TRACE(name);
      const Split split = SplitBy(recorded, asker);
      NodeOptions options = OptionsFor(recorded, split.requests.front().packet.tx.psn);
      options.type = QpType::kUc;
      Node sender(options), receiver(options);
      PostFromRequests(sender, split.requests);
      PostReceives(receiver, 600);
      GrantWhatIsNamed(receiver.host, split.requests);
      sender.Work();
      size_t messages = 0, receives = 0;
      for (const Recorded& r : split.requests) {
        const auto ours = sender.Poll();
        ASSERT_TRUE(ours.has_value());
        EXPECT_EQ(ours->tx.opcode, r.packet.tx.opcode);
        EXPECT_EQ(ours->tx.psn, r.packet.tx.psn);
        EXPECT_EQ(ours->payload, r.packet.payload);
        EXPECT_EQ(ours->tx.solicited, r.packet.tx.solicited);
        EXPECT_FALSE(ours->tx.ack_request);
        EXPECT_EQ(receiver.Receive(r.packet), DropReason::kNone);
        const OpcodeInfo& info = r.packet.info();
        messages += info.IsLast() ? 1 : 0;
        receives +=
            info.IsLast() && (info.operation == Operation::kSend || info.Has(ExtHeader::kImmDt))
                ? 1
                : 0;
      }
      EXPECT_TRUE(sender.PollAll().empty());
      EXPECT_TRUE(receiver.PollAll().empty());
      EXPECT_EQ(sender.host.send_completions.size(), messages);
      EXPECT_EQ(receiver.host.recv_completions.size(), receives);
    }
  }
}

TEST(QpVectors, DatagramsAsLinuxDid) {
  for (const auto& [name, count] : {std::pair{"vec-ud_send-v4-mtu1024", 12u},
                                    {"vec-ud_send-v4-mtu4096", 12u},
                                    {"ibv_ud_pingpong-v4", 10u},
                                    {"udaddy-v4", 4u},
                                    {"mckey-v4", 3u}}) {
    SCOPED_TRACE(name);
    NodeOptions options;
    options.type = QpType::kUd;
    size_t datagrams = 0;
    for (const NamedFrame& frame : ReadPcap(CaptureFile(name))) {
      Packet packet;
      if (ParsePacket(frame.bytes, packet) != DropReason::kNone) continue;
      if (packet.info->transport != Transport::kUd || packet.dest_qpn == kGsiQpn) continue;
      ++datagrams;
      options.qkey = packet.ext.deth.qkey;
      options.qpn = packet.ext.deth.src_qpn;
      options.sq_psn = packet.psn;
      Node sender(options), receiver(options);
      std::copy(packet.payload.begin(), packet.payload.end(), sender.host.bytes.begin());
      const bool has_immediate = packet.info->Has(ExtHeader::kImmDt);
      SendWqe& wqe =
          sender.host.PostSend(has_immediate ? WorkOpcode::kSendWithImm : WorkOpcode::kSend,
                               static_cast<uint32_t>(packet.payload.size()));
      wqe.datagram.remote_qpn = packet.dest_qpn.value();
      wqe.datagram.remote_qkey = packet.ext.deth.qkey;
      wqe.solicited = packet.solicited;
      if (has_immediate) wqe.immediate = SwapNetworkOrder(packet.ext.imm.value);
      const auto ours = sender.Run();
      ASSERT_EQ(ours.size(), 1u);
      EXPECT_EQ(ours[0].tx.opcode, packet.opcode);
      EXPECT_EQ(ours[0].tx.psn, packet.psn);
      EXPECT_EQ(ours[0].tx.dest_qpn, packet.dest_qpn);
      EXPECT_EQ(ours[0].tx.solicited, packet.solicited);
      EXPECT_EQ(ours[0].tx.ext.deth.qkey, packet.ext.deth.qkey);
      EXPECT_EQ(ours[0].tx.ext.deth.src_qpn, packet.ext.deth.src_qpn);
      EXPECT_TRUE(std::equal(packet.payload.begin(), packet.payload.end(), ours[0].payload.begin(),
                             ours[0].payload.end()));
      receiver.host.PostRecv(8192, 512);
      EXPECT_EQ(receiver.Receive(packet), DropReason::kNone);
      ASSERT_EQ(receiver.host.recv_completions.size(), 1u);
      const Completion& completion = receiver.host.recv_completions[0];
      EXPECT_EQ(completion.byte_length, kGrhBytes + packet.payload.size());
      EXPECT_EQ(completion.source_qpn, packet.ext.deth.src_qpn);
      EXPECT_EQ(completion.has_immediate, has_immediate);
      // The IPv4 header is in the last 20 of the 40 bytes.
      EXPECT_EQ(receiver.host.bytes[512 + 20], std::byte{0x45});
    }
    EXPECT_EQ(datagrams, count);
  }
}

}  // namespace
}  // namespace roci::roce
