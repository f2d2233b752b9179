#include "control/manage/tcp_peers.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace roci::control {
namespace {

// An address as sock_diag has it; one of IPv4 at a socket for both is one of IPv4.
struct Address {
  uint8_t family = AF_UNSPEC;
  in_port_t port = 0;
  uint32_t words[4] = {};
};

Address AddressFrom(const sockaddr_storage& from) {
  Address out;
  if (from.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &from, sizeof(four));
    out = {AF_INET, four.sin_port, {four.sin_addr.s_addr}};
  } else if (from.ss_family == AF_INET6) {
    sockaddr_in6 six;
    std::memcpy(&six, &from, sizeof(six));
    out = {AF_INET6, six.sin6_port, {}};
    std::memcpy(out.words, &six.sin6_addr, sizeof(out.words));
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) out = {AF_INET, six.sin6_port, {out.words[3]}};
  }
  return out;
}

struct Question {
  nlmsghdr head;
  inet_diag_req_v2 body;
};

// For the socket whose own address is `from`.
Question AskFor(const Address& from, const Address& to, uint32_t serial) {
  Question out = {};
  out.head.nlmsg_len = sizeof(out);
  out.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  out.head.nlmsg_flags = NLM_F_REQUEST;
  out.head.nlmsg_seq = serial;
  out.body.sdiag_family = from.family;
  out.body.sdiag_protocol = IPPROTO_TCP;
  out.body.idiag_states = ~0u;
  out.body.id.idiag_sport = from.port;
  out.body.id.idiag_dport = to.port;
  std::memcpy(out.body.id.idiag_src, from.words, sizeof(from.words));
  std::memcpy(out.body.id.idiag_dst, to.words, sizeof(to.words));
  out.body.id.idiag_cookie[0] = out.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return out;
}

}  // namespace

TcpPeers::TcpPeers()
    : socket_(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG)) {}

std::optional<TcpPeers::Owner> TcpPeers::OwnerOf(int connection) {
  sockaddr_storage own = {};
  sockaddr_storage other = {};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  if (!socket_.valid() ||
      getsockname(connection, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(connection, reinterpret_cast<sockaddr*>(&other), &other_size) != 0) {
    return std::nullopt;
  }
  const Question question = AskFor(AddressFrom(other), AddressFrom(own), ++serial_);
  if (send(socket_.get(), &question, sizeof(question), 0) != ssize_t{sizeof(question)}) {
    return std::nullopt;
  }
  // The kernel has answered already. Answers to earlier questions are skipped.
  alignas(nlmsghdr) char answer[1024];
  for (;;) {
    const ssize_t size = recv(socket_.get(), answer, sizeof(answer), 0);
    if (size < ssize_t{NLMSG_HDRLEN}) return std::nullopt;
    nlmsghdr head;
    std::memcpy(&head, answer, sizeof(head));
    if (head.nlmsg_seq != serial_) continue;
    inet_diag_msg body;
    if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        size < ssize_t{NLMSG_HDRLEN} + ssize_t{sizeof(body)}) {
      return std::nullopt;
    }
    std::memcpy(&body, answer + NLMSG_HDRLEN, sizeof(body));
    return Owner{body.idiag_uid, body.idiag_inode == 0};
  }
}

}  // namespace roci::control
