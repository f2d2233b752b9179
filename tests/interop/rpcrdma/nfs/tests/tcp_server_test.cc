// RPC over TCP: several connections, calls in a row and in pieces, and clients that break the
// rules.
#include "tests/interop/rpcrdma/nfs/tcp_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

// A connection of a client.
class Peer {
 public:
  explicit Peer(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval limit{60, 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  void Send(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void SendCall(const std::vector<std::byte>& call) {
    Send(MarkOf(call.size()));
    Send(call);
  }
  // The next reply; empty if the server has closed the connection.
  std::vector<std::byte> Receive() {
    std::array<std::byte, 4> mark;
    if (recv(socket_.get(), mark.data(), mark.size(), MSG_WAITALL) != 4) return {};
    EXPECT_EQ(mark[0], std::byte{0x80});
    std::vector<std::byte> reply(std::to_integer<size_t>(mark[1]) << 16 |
                                 std::to_integer<size_t>(mark[2]) << 8 |
                                 std::to_integer<size_t>(mark[3]));
    EXPECT_EQ(recv(socket_.get(), reply.data(), reply.size(), MSG_WAITALL),
              static_cast<ssize_t>(reply.size()));
    return reply;
  }
  bool Closed() {
    std::byte byte;
    return recv(socket_.get(), &byte, 1, 0) <= 0 && errno != EAGAIN;
  }

 private:
  Descriptor socket_;
};

class Tcp : public ::testing::Test {
 protected:
  Tcp() : server_("127.0.0.1", 0, &client_.service()), thread_([this] { server_.Run(); }) {}
  void TearDown() override {
    server_.Stop();
    thread_.join();
  }

  TestClient client_;
  TcpServer server_;
  std::thread thread_;
};

TEST_F(Tcp, AnswersCallsInOrder) {
  Peer peer(server_.port());
  for (uint32_t xid = 1; xid <= 100; ++xid) peer.SendCall(HeadOf({.xid = xid}));
  for (uint32_t xid = 1; xid <= 100; ++xid) EXPECT_EQ(peer.Receive(), Words({xid, 1, 0, 0, 0, 0}));
}

TEST_F(Tcp, TakesCallsInPieces) {
  Peer peer(server_.port());
  auto call = HeadOf({.xid = 9});
  const auto mark = MarkOf(call.size());
  call.insert(call.begin(), mark.begin(), mark.end());
  for (const std::byte byte : call) peer.Send({&byte, 1});
  EXPECT_EQ(peer.Receive(), Words({9, 1, 0, 0, 0, 0}));
}

TEST_F(Tcp, ServesConnectionsSideBySide) {
  std::vector<Peer> peers;
  for (size_t i = 0; i < TcpServer::kMaxConnections; ++i) peers.emplace_back(server_.port());
  for (uint32_t xid = 0; xid < peers.size(); ++xid) peers[xid].SendCall(HeadOf({.xid = xid}));
  for (uint32_t xid = 0; xid < peers.size(); ++xid)
    EXPECT_EQ(peers[xid].Receive(), Words({xid, 1, 0, 0, 0, 0}));
  // One too many is closed; the others stay.
  EXPECT_TRUE(Peer(server_.port()).Closed());
  EXPECT_EQ(server_.counters().refused, 1u);
  peers[0].SendCall(HeadOf({.xid = 5}));
  EXPECT_EQ(peers[0].Receive(), Words({5, 1, 0, 0, 0, 0}));
}

TEST_F(Tcp, ClosesWhatIsMalformed) {
  Peer long_record(server_.port()), empty_record(server_.port()), reply(server_.port()),
      good(server_.port());
  long_record.Send(MarkOf(kMaxRecordBytes + 1));
  empty_record.Send(MarkOf(0));
  reply.SendCall(HeadOf({.direction = 1}));
  EXPECT_TRUE(long_record.Closed());
  EXPECT_TRUE(empty_record.Closed());
  EXPECT_TRUE(reply.Closed());
  good.SendCall(HeadOf({}));
  EXPECT_FALSE(good.Receive().empty());
  EXPECT_EQ(server_.counters().malformed, 2u);
  EXPECT_EQ(server_.counters().dropped, 1u);
}

TEST_F(Tcp, WaitsForClientsThatDoNotTakeTheirReplies) {
  Put(client_.PathOf("file"), std::string(1 << 20, 'x'));
  const FileHandle file = client_.At("file");
  const auto call =
      client_.Encode(Nfs::kRead, xdr_ReadArguments, ReadArguments{ToHandle(file), 0, 1 << 20});
  Peer slow(server_.port()), quick(server_.port());
  constexpr int kCalls = 64;
  for (int i = 0; i < kCalls; ++i) slow.SendCall(call);
  quick.SendCall(HeadOf({.xid = 1}));
  EXPECT_FALSE(quick.Receive().empty());
  for (int i = 0; i < kCalls; ++i) EXPECT_GT(slow.Receive().size(), size_t{1} << 20) << i;
}

}  // namespace
}  // namespace rpcrdma
