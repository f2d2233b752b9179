// Serves RDMA netlink on <runtime dir>/rdma_netlink.sock (abi/rdma_netlink.h): accepts connections,
// one per netlink socket of a program, and sends the answers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/device/incoming_connections.h"
#include "control/device/services.h"
#include "control/loop/acceptor.h"
#include "control/netlink/nldev.h"

namespace roci::control::netlink {

// Control thread only.
class NetlinkServer {
 public:
  static constexpr size_t kMaxConnections = 1024;
  // Of one user other than root and the daemon's own.
  static constexpr size_t kMaxConnectionsOfUser = kMaxConnections / 4;

  // `public_socket`: every user may connect (a daemon of root); false: only the daemon's user.
  static absl::StatusOr<std::unique_ptr<NetlinkServer>> Create(const Sources& sources,
                                                               const std::string& runtime_dir,
                                                               bool public_socket);
  ~NetlinkServer();
  NetlinkServer(const NetlinkServer&) = delete;
  NetlinkServer& operator=(const NetlinkServer&) = delete;

 private:
  struct Connection {
    UniqueFd socket;
    std::shared_ptr<User> user;
    QuotaShare descriptors;
    Viewer viewer;
    EventLoop::Watch watch = 0;
    // The rest of a received datagram.
    std::vector<std::byte> in;
    size_t in_at = 0;
    // Datagrams to send.
    std::vector<Datagram> out;
    size_t out_at = 0;
    Dump dump;  // null: none
    nlmsghdr dumped = {};

    bool has_requests() const { return in_at != in.size(); }
    bool has_answers() const { return out_at != out.size() || dump != nullptr; }
  };

  explicit NetlinkServer(const Sources& sources);
  absl::Status Open(UniqueFd& socket, const Peer& peer);
  absl::Status CheckLimits(const User* user, bool is_trusted) const;
  void Refuse(UniqueFd socket, const absl::Status& status);
  void Handle(uint64_t id);
  // One step of work: sends, continues a dump, answers one request or receives a datagram. False:
  // the connection is over.
  bool Work(Connection& connection);
  bool Send(Connection& connection);
  bool Receive(Connection& connection);
  void Continue(Connection& connection);
  void AnswerNext(Connection& connection);
  void Close(uint64_t id);

  const Services& services_;
  IncomingConnections incoming_;
  std::unique_ptr<Acceptor> acceptor_;
  Nldev nldev_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Connection> connections_;
};

}  // namespace roci::control::netlink
