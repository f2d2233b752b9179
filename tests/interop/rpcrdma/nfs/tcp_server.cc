// The loop of a TCP server.
#include "tests/interop/rpcrdma/nfs/tcp_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace rpcrdma {
namespace {

constexpr int kTickMs = 1000;  // to find stalled connections

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Address Parse(const std::string& text, uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.length = sizeof *v4;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.length = sizeof *v6;
  } else {
    throw std::invalid_argument(text + " is not a numeric address");
  }
  return address;
}

Descriptor Listen(const std::string& text, uint16_t port) {
  const Address address = Parse(text, port);
  Descriptor socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  const bool listens =
      socket && setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) ==
          0 &&
      listen(socket.get(), SOMAXCONN) == 0;
  if (!listens)
    throw std::system_error(errno, std::generic_category(),
                            "TCP " + text + " port " + std::to_string(port));
  return socket;
}

}  // namespace

TcpServer::TcpServer(const std::string& address, uint16_t port, RpcService* service)
    : service_(service),
      listener_(Listen(address, port)),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_event_) throw std::system_error(errno, std::generic_category(), "eventfd");
}

uint16_t TcpServer::port() const {
  sockaddr_in6 bound{};  // the port is at the same place for IPv4
  socklen_t length = sizeof bound;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.sin6_port);
}

void TcpServer::Stop() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(stop_event_.get(), &one, sizeof one);
}

void TcpServer::Run() {
  while (true) {
    std::vector<pollfd> waits{{stop_event_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const TcpConnection& each : connections_)
      waits.push_back({each.socket(), each.Events(), 0});
    if (poll(waits.data(), waits.size(), kTickMs) < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "poll");
    }
    if (waits[0].revents != 0) return;
    const auto now = TcpConnection::Clock::now();
    size_t index = 2;
    for (auto each = connections_.begin(); each != connections_.end();) {
      const bool ready = waits[index++].revents != 0;
      each = Serve(&*each, ready, now) ? std::next(each) : connections_.erase(each);
    }
    if (waits[1].revents != 0) Accept();
  }
}

void TcpServer::Accept() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return;
  if (connections_.size() >= kMaxConnections) {
    ++counters_.refused;
    return;
  }
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ++counters_.connections;
  connections_.emplace_back(std::move(socket), TcpConnection::Clock::now());
}

// False: the connection has ended.
bool TcpServer::Serve(TcpConnection* connection, bool ready, TcpConnection::Clock::time_point now) {
  using End = TcpConnection::End;
  switch (ready ? connection->Handle(service_, now) : connection->CheckStall(now)) {
    case End::kNone:
      return true;
    case End::kPeerClosed:
      break;
    case End::kFailed:
      ++counters_.failed;
      break;
    case End::kMalformed:
      ++counters_.malformed;
      break;
    case End::kDropped:
      ++counters_.dropped;
      break;
    case End::kStalled:
      ++counters_.stalled;
      break;
  }
  return false;
}

}  // namespace rpcrdma
