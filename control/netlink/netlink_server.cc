#include "control/netlink/netlink_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/no_memory.h"
#include "control/loop/socket.h"

namespace roci::control::netlink {
namespace {

// Whether process `pid` is in the PID namespace of the daemon, not in one below: the kernel lists
// its number in each of its namespaces.
bool IsInOwnPidNamespace(pid_t pid) {
  if (pid <= 0) return false;
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/status", pid);
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text;
  const ssize_t size = fd.valid() ? read(fd.get(), text.data(), text.size()) : 0;
  if (size <= 0) return false;
  const std::string_view status(text.data(), static_cast<size_t>(size));
  constexpr std::string_view kKey = "\nNSpid:\t";
  const size_t begin = status.find(kKey);
  if (begin == std::string_view::npos) return false;
  const std::string_view line = status.substr(begin + kKey.size());
  return line.substr(0, line.find('\n')).find('\t') == std::string_view::npos;
}

// The port ID that the program's side derives from the same name; never 0.
uint32_t PortOf(int socket) {
  sockaddr_un name{};
  socklen_t size = sizeof(name);
  constexpr size_t kOffset = offsetof(sockaddr_un, sun_path);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0 || size < kOffset) {
    return 1;
  }
  const uint32_t port = roci_abi_netlink_port(name.sun_path, static_cast<uint32_t>(size - kOffset));
  return port != 0 ? port : 1;
}

bool Greet(int socket, int error) {
  roci_abi_netlink_greeting greeting{};
  greeting.magic = ROCI_ABI_MAGIC;
  greeting.version = ROCI_ABI_NETLINK_VERSION;
  greeting.error = error;
  return SendMessage(socket, std::as_bytes(std::span(&greeting, 1)), {});
}

// NLMSG_ERROR; `error` 0 acknowledges.
Datagram ErrorOf(const nlmsghdr& request, int error, uint32_t port) {
  Datagram out;
  const auto begin = out.Begin(request, NLMSG_ERROR, NLM_F_CAPPED, port);
  nlmsgerr payload{};
  payload.error = -error;
  payload.msg = request;
  out.Append(&payload, sizeof(payload));
  out.End(begin);
  return out;
}

Datagram DoneOf(const nlmsghdr& request, uint32_t port) {
  Datagram out;
  const auto begin = out.Begin(request, NLMSG_DONE, NLM_F_MULTI, port);
  constexpr int32_t kNoError = 0;
  out.Append(&kNoError, sizeof(kNoError));
  out.End(begin);
  return out;
}

}  // namespace

NetlinkServer::NetlinkServer(const Sources& sources)
    : services_(sources.services),
      incoming_(
          sources.services.accounts,
          [this](UniqueFd& socket, Peer& peer) { return Open(socket, peer); },
          [this](UniqueFd socket, const absl::Status& status) {
            Refuse(std::move(socket), status);
          }),
      nldev_(sources) {}

absl::StatusOr<std::unique_ptr<NetlinkServer>> NetlinkServer::Create(const Sources& sources,
                                                                     const std::string& runtime_dir,
                                                                     bool public_socket) {
  absl::StatusOr<UniqueFd> listener = ListenUnix(runtime_dir, ROCI_ABI_NETLINK_SOCKET_NAME,
                                                 SOCK_SEQPACKET, SocketMode(public_socket));
  if (!listener.ok()) return listener.status();
  std::unique_ptr<NetlinkServer> server(new NetlinkServer(sources));
  NetlinkServer* const self = server.get();
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Create(
      sources.services.loop, *std::move(listener),
      [self](UniqueFd socket) { self->incoming_.Take(std::move(socket)); },
      [](int socket) { Greet(socket, ENFILE); },
      [self](UniqueFd socket) { self->services_.foreign_fds.Close(std::move(socket)); });
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

NetlinkServer::~NetlinkServer() {
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void NetlinkServer::Refuse(UniqueFd socket, const absl::Status& status) {
  Log(LogArea::kSession, LogLevel::kWarning, "RDMA netlink socket refused: %s",
      std::string(status.message()).c_str());
  Greet(socket.get(), ErrnoOf(status));
  services_.foreign_fds.Close(std::move(socket));
}

absl::Status NetlinkServer::CheckLimits(const User* user, bool is_trusted) const {
  if (connections_.size() >= kMaxConnections) return StatusFromErrno(ENFILE, "netlink sockets");
  const auto used = std::count_if(connections_.begin(), connections_.end(),
                                  [user](const auto& c) { return c.second.user.get() == user; });
  if (is_trusted || static_cast<size_t>(used) < kMaxConnectionsOfUser) return absl::OkStatus();
  return StatusFromErrno(EMFILE, "netlink sockets of one user");
}

absl::Status NetlinkServer::Open(UniqueFd& socket, const Peer& peer) {
  const bool is_trusted = peer.has_rights_of_daemon;
  std::shared_ptr<User> user = services_.users.Get(peer.uid, is_trusted);
  if (const absl::Status status = CheckLimits(user.get(), is_trusted); !status.ok()) return status;
  constexpr uint64_t kDescriptors = 1;
  QuotaShare descriptors(user->descriptors, kDescriptors);
  if (!descriptors.ok()) return StatusFromErrno(ENFILE, "descriptors for a netlink socket");
  const uint64_t id = ++last_id_;
  Connection& connection = connections_[id];
  absl::Cleanup forget = [this, id] { connections_.erase(id); };
  absl::StatusOr<EventLoop::Watch> watch = services_.loop.Add(
      socket.get(), EPOLLIN, [this, id](uint32_t) { Handle(id); }, user->loop_share);
  if (!watch.ok()) return watch.status();
  std::move(forget).Cancel();
  connection.viewer = {.user = user.get(),
                       .is_trusted = is_trusted,
                       .sees_pids = IsInOwnPidNamespace(peer.pid),
                       .port = PortOf(socket.get())};
  connection.user = std::move(user);
  connection.descriptors = std::move(descriptors);
  connection.socket = std::move(socket);
  connection.watch = *watch;
  Greet(connection.socket.get(), 0);
  return absl::OkStatus();
}

// One step at a time, so that a flood or a long dump does not hold up others. While an answer waits
// for the program, none of its further requests is read.
void NetlinkServer::Handle(uint64_t id) {
  Connection& connection = connections_.at(id);
  bool is_open = false;
  // A request whose answer needs more memory than there is ends the connection.
  const absl::Status status = OrRefuse([&] {
    is_open = Work(connection);
    return absl::OkStatus();
  });
  if (!status.ok() || !is_open) return Close(id);
  const bool has_work = connection.has_answers() || connection.has_requests();
  services_.loop.Change(connection.watch, has_work ? EPOLLOUT : EPOLLIN);
}

bool NetlinkServer::Work(Connection& connection) {
  if (!connection.has_answers()) {
    if (!connection.has_requests() && !Receive(connection)) return false;
    if (connection.has_requests()) AnswerNext(connection);
  } else if (connection.out_at == connection.out.size()) {
    Continue(connection);
  }
  return Send(connection);
}

bool NetlinkServer::Send(Connection& connection) {
  for (; connection.out_at != connection.out.size(); ++connection.out_at) {
    const std::span<const std::byte> bytes = connection.out[connection.out_at].bytes();
    if (send(connection.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) <
        0) {
      return errno == EAGAIN || errno == EINTR;
    }
  }
  connection.out.clear();
  connection.out_at = 0;
  return true;
}

bool NetlinkServer::Receive(Connection& connection) {
  std::array<std::byte, ROCI_ABI_NETLINK_DATAGRAM_MAX> buffer;
  size_t size = 0;
  switch (ReceiveMessage(connection.socket.get(), buffer, size)) {
    case ReceiveResult::kNothing:
      return true;
    case ReceiveResult::kClosed:
    case ReceiveResult::kDescriptors:  // no request carries descriptors
      return false;
    case ReceiveResult::kMessage:
      break;
  }
  if (size > buffer.size()) return false;
  connection.in.assign(buffer.data(), buffer.data() + size);
  connection.in_at = 0;
  return true;
}

void NetlinkServer::Continue(Connection& connection) {
  Datagram datagram;
  const bool goes_on = connection.dump(datagram);
  if (!datagram.empty()) connection.out.push_back(datagram);
  if (goes_on) return;
  connection.dump = nullptr;
  connection.out.push_back(DoneOf(connection.dumped, connection.viewer.port));
}

void NetlinkServer::AnswerNext(Connection& connection) {
  const Decoded decoded = DecodeNext(std::span(connection.in).subspan(connection.in_at));
  connection.in_at += decoded.size;
  if (decoded.found == Found::kEnd) return;
  const nlmsghdr& head = decoded.request.head;
  const Viewer& viewer = connection.viewer;
  int error = decoded.error;
  if (decoded.found == Found::kRequest && decoded.request.is_dump) {
    error = nldev_.Start(viewer, decoded.request, connection.dump);
    connection.dumped = head;
    if (error == 0) return;  // NLMSG_DONE acknowledges
  } else if (decoded.found == Found::kRequest) {
    error = nldev_.Answer(viewer, decoded.request, connection.out);
    if (error != 0) connection.out.clear();
  }
  if (error != 0 || WantsAck(head)) {
    connection.out.push_back(ErrorOf(head, error, viewer.port));
  }
}

void NetlinkServer::Close(uint64_t id) {
  Connection& connection = connections_.at(id);
  services_.loop.Forget(connection.watch);
  services_.foreign_fds.Close(std::move(connection.socket));
  connections_.erase(id);
}

}  // namespace roci::control::netlink
