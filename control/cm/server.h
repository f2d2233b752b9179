// Serves the connection manager on <runtime dir>/rdma_cm.sock: accepts connections, one per event
// channel, and passes commands to the manager.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "control/cm/channel.h"
#include "control/cm/command_decoder.h"
#include "control/cm/manager.h"
#include "control/device/services.h"
#include "control/loop/acceptor.h"
#include "control/loop/hello_deadlines.h"

namespace roci::control::cm {

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

  // For the loop's deadlines: connections that open no channel in time are closed.
  roce::TimeNs NextTimeout() const { return hello_deadlines_.Next(); }
  void HandleTimeout(roce::TimeNs now);

  const Manager& manager() const { return manager_; }
  const std::map<uint32_t, std::unique_ptr<Channel>>& channels() const { return channels_; }

 private:
  explicit Server(Services& services) : services_(services), manager_(services) {}
  void Take(UniqueFd socket);
  absl::Status Open(UniqueFd& socket);
  void Receive(Channel& channel);
  void Close(Channel& channel);
  bool AnswerOpen(Channel& channel, std::span<const std::byte> message);
  bool AnswerCommand(Channel& channel, std::span<const std::byte> message);
  // False: there is no answer.
  bool FinishCommand(Channel& channel, const roci_abi_cm_request& request);
  // Appends the answers to librdmacm's next queries to the answer to `command`.
  void Prefetch(const Channel& channel, const Command& command, roci_abi_cm_response& out);
  absl::Status Run(Channel& channel, const Command& command, roci_abi_cm_response& out);
  // Runs a command that has an identifier of the channel.
  absl::Status RunOn(CmId& id, const Command& command, roci_abi_cm_response& out);
  absl::Status RunWithoutId(Channel& channel, const Command& command, roci_abi_cm_response& out);
  // Unchecked address of a program.
  struct RawAddress {
    const void* bytes;
    size_t size;
  };
  absl::Status Resolve(CmId& id, RawAddress source, RawAddress destination, uint32_t timeout_ms);
  absl::Status Join(CmId& id, uint64_t uid, RawAddress group, uint32_t flags,
                    roci_abi_cm_response& out);
  absl::Status Migrate(Channel& channel, const rdma_ucm_migrate_id& command,
                       roci_abi_cm_response& out);

  Services& services_;
  std::unique_ptr<Acceptor> acceptor_;
  Manager manager_;
  HelloDeadlines hello_deadlines_;
  uint32_t last_number_ = 0;
  std::map<uint32_t, std::unique_ptr<Channel>> channels_;
};

}  // namespace roci::control::cm
