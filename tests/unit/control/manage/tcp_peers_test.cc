#include "control/manage/tcp_peers.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace roci::control {
namespace {

// A connection of this process to a socket of `family`, by IPv4.
class Connection {
 public:
  explicit Connection(int family) : listener_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage any = {};
    any.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    // The port is at the same place in both.
    to.sin_port = reinterpret_cast<const sockaddr_in*>(&any)->sin_port;
    client.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0)
        << strerror(errno);
    server.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  UniqueFd client;
  UniqueFd server;

 private:
  const UniqueFd listener_;
};

class TcpPeersTest : public testing::TestWithParam<int> {};

TEST_P(TcpPeersTest, NamesTheUserOfALocalConnection) {
  TcpPeers peers;
  Connection connection(GetParam());
  const auto owner = peers.OwnerOf(connection.server.get());
  if (!owner.has_value()) GTEST_SKIP() << "no sock_diag";
  EXPECT_EQ(owner->uid, geteuid());
  EXPECT_FALSE(owner->is_closed);
}

TEST_P(TcpPeersTest, NamesNoUserOfAClosedConnection) {
  TcpPeers peers;
  Connection connection(GetParam());
  if (!peers.OwnerOf(connection.server.get()).has_value()) GTEST_SKIP() << "no sock_diag";
  connection.client.Reset();
  const auto owner = peers.OwnerOf(connection.server.get());
  EXPECT_TRUE(!owner.has_value() || owner->is_closed);
}

INSTANTIATE_TEST_SUITE_P(Of, TcpPeersTest, testing::Values(AF_INET, AF_INET6),
                         [](const testing::TestParamInfo<int>& family) {
                           return family.param == AF_INET ? "AnIpv4Socket" : "ASocketForBoth";
                         });

TEST(TcpPeersWithoutConnection, KnowNothing) {
  const UniqueFd socket_of_its_own(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TcpPeers peers;
  EXPECT_FALSE(peers.OwnerOf(socket_of_its_own.get()).has_value());
  EXPECT_FALSE(peers.OwnerOf(-1).has_value());
}

}  // namespace
}  // namespace roci::control
