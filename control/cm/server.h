// Serves the connection manager on <runtime dir>/rdma_cm.sock: accepts connections, one per event
// channel, and passes commands to the manager.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "control/cm/channel.h"
#include "control/cm/command_addresses.h"
#include "control/cm/command_decoder.h"
#include "control/cm/manager.h"
#include "control/device/incoming_connections.h"
#include "control/device/services.h"
#include "control/loop/acceptor.h"
#include "control/loop/hello_deadlines.h"

namespace roci::control::cm {

// The answer to a command.
struct CommandReply {
  roci_abi_cm_response response = {};
  std::optional<rdma_ucm_event_resp> event;  // the event that GET_EVENT took
};

// The place for the answer to a query; `Answer` is the smallest possible answer.
template <class Answer>
struct QueryAnswer {
  roci_abi_cm_response& response;
};

// Control thread only.
class Server {
 public:
  // `public_socket`: every user may connect (a daemon of root); else only the daemon's own user.
  static absl::StatusOr<std::unique_ptr<Server>> Create(Services& services,
                                                        const std::string& runtime_dir,
                                                        bool public_socket);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // For the loop's deadlines: connections that open no channel in time are closed, and ended
  // channels release their identifiers.
  roce::TimeNs NextTimeout() const { return ending_.empty() ? hello_deadlines_.Next() : 0; }
  void HandleTimeout(roce::TimeNs now);

  const Manager& manager() const { return manager_; }
  void RemoveDevice(const Device& device) { manager_.RemoveDevice(device); }
  const std::map<uint32_t, std::unique_ptr<Channel>>& channels() const { return channels_; }

 private:
  explicit Server(Services& services);
  absl::Status Open(UniqueFd& socket, Peer& peer);
  void Refuse(UniqueFd socket, const absl::Status& status);
  void Receive(Channel& channel);
  void Close(Channel& channel);
  void EndSome();
  bool AnswerOpen(Channel& channel, std::span<const std::byte> message);
  bool AnswerCommand(Channel& channel, std::span<const std::byte> message);
  // False: there is no answer.
  bool FinishCommand(Channel& channel, const roci_abi_cm_request& request);
  // Appends the answers to librdmacm's next queries to the answer to `command`.
  void Prefetch(const Channel& channel, const Command& command, CommandReply& reply);
  absl::Status Run(Channel& channel, const Command& command, CommandReply& out);
  template <class Object, class In, class... Out>
  using Handler = absl::Status (Server::*)(Object&, const In&, Out...);
  template <class Object>
  static Object& SubjectIn(Channel& channel, CmId* id);
  // Executes a command by its handler, which takes the command's structure and, unless Answer is
  // void, fills in the answer.
  template <class In, class Answer, class Object>
  absl::Status Call(Handler<Object, In, Answer&> handler, Channel& channel, CmId* id,
                    const Command& command, CommandReply& out);
  template <class In, class Answer, class Object>
  requires std::is_void_v<Answer> absl::Status Call(Handler<Object, In> handler, Channel& channel,
                                                    CmId* id, const Command& command,
                                                    CommandReply& out);
  // Of a command with data after its structure.
  template <class In, class Answer, class Object>
  requires std::is_void_v<Answer> absl::Status Call(
      Handler<Object, In, std::span<const std::byte>> handler, Channel& channel, CmId* id,
      const Command& command, CommandReply& out);
  // Of a query.
  template <class In, class Answer>
  absl::Status Call(Handler<CmId, In, QueryAnswer<Answer>> handler, Channel& channel, CmId* id,
                    const Command& command, CommandReply& out);

  // server_commands.cc: the handlers of ROCI_CM_COMMANDS.
  absl::Status CreateId(Channel& channel, const rdma_ucm_create_id& in,
                        rdma_ucm_create_id_resp& out);
  absl::Status DestroyId(CmId& id, const rdma_ucm_destroy_id& in, rdma_ucm_destroy_id_resp& out);
  absl::Status BindIp(CmId& id, const rdma_ucm_bind_ip& in);
  absl::Status Bind(CmId& id, const rdma_ucm_bind& in);
  absl::Status ResolveIp(CmId& id, const rdma_ucm_resolve_ip& in);
  absl::Status ResolveAddr(CmId& id, const rdma_ucm_resolve_addr& in);
  absl::Status ResolveRoute(CmId& id, const rdma_ucm_resolve_route& in);
  absl::Status QueryRoute(CmId& id, const rdma_ucm_query& in, rdma_ucm_query_route_resp& out);
  absl::Status Query(CmId& id, const rdma_ucm_query& in, QueryAnswer<rdma_ucm_query_path_resp> out);
  absl::Status Connect(CmId& id, const rdma_ucm_connect& in);
  absl::Status Listen(CmId& id, const rdma_ucm_listen& in);
  absl::Status Accept(CmId& id, const rdma_ucm_accept& in);
  absl::Status Reject(CmId& id, const rdma_ucm_reject& in);
  absl::Status Disconnect(CmId& id, const rdma_ucm_disconnect& in);
  absl::Status InitQpAttr(CmId& id, const rdma_ucm_init_qp_attr& in,
                          QueryAnswer<ib_uverbs_qp_attr> out);
  absl::Status GetEvent(Channel& channel, const rdma_ucm_get_event& in, rdma_ucm_event_resp& out);
  absl::Status SetOption(CmId& id, const rdma_ucm_set_option& in, std::span<const std::byte> value);
  absl::Status Notify(CmId& id, const rdma_ucm_notify& in);
  absl::Status JoinIpMcast(CmId& id, const rdma_ucm_join_ip_mcast& in,
                           rdma_ucm_create_id_resp& out);
  absl::Status JoinMcast(CmId& id, const rdma_ucm_join_mcast& in, rdma_ucm_create_id_resp& out);
  absl::Status LeaveMcast(Channel& channel, const rdma_ucm_destroy_id& in,
                          rdma_ucm_destroy_id_resp& out);
  absl::Status MigrateId(Channel& channel, const rdma_ucm_migrate_id& in,
                         rdma_ucm_migrate_resp& out);

  absl::Status BindTo(CmId& id, AddressBytes address);
  absl::Status Resolve(CmId& id, AddressBytes source, AddressBytes destination,
                       uint32_t timeout_ms);
  absl::Status Join(CmId& id, uint64_t uid, AddressBytes group, uint32_t flags,
                    rdma_ucm_create_id_resp& out);

  Services& services_;
  IncomingConnections incoming_;
  std::unique_ptr<Acceptor> acceptor_;
  Manager manager_;
  HelloDeadlines hello_deadlines_;
  uint32_t last_number_ = 0;
  std::map<uint32_t, std::unique_ptr<Channel>> channels_;
  // Ended, with identifiers that are destroyed in parts, so that other programs do not wait.
  std::map<uint32_t, std::unique_ptr<Channel>> ending_;
  uint32_t last_ended_ = 0;  // the channel of the last part
};

}  // namespace roci::control::cm
