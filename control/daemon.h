// The daemon as a whole: creates everything that rocid runs and destroys it in the right order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/cm/server.h"
#include "control/config/config.h"
#include "control/device/device.h"
#include "control/device/foreign_fds.h"
#include "control/device/services.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "control/loop/fd_broker.h"
#include "control/loop/unique_fd.h"
#include "control/manage/lcore_watch.h"
#include "control/manage/link_states.h"
#include "control/manage/manage_server.h"
#include "control/manage/metrics_server.h"
#include "control/manage/stream_server.h"
#include "control/net/link_watch.h"
#include "control/netlink/netlink_server.h"
#include "control/session/session_server.h"
#include "control/sysfs/sysfs_publisher.h"
#include "dataplane/shard/dataplane.h"

namespace roci::control {

// One per process. Created, run and destroyed by one thread, the control thread.
class Daemon {
 public:
  // Creates devices, sockets and the sysfs tree. `broker` was started while the process had one
  // thread. SIGTERM, SIGINT and SIGHUP must be blocked in every thread; Run receives them.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config,
                                                       const std::string& runtime_dir,
                                                       FdBroker broker);
  // Ends every session, removes the sockets and the devices' entries in the sysfs tree.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Returns after SIGTERM, SIGINT or SIGHUP.
  void Run();

 private:
  explicit Daemon(const Config& config);
  absl::Status StartDataplane();
  absl::Status MakeDevices();
  absl::Status OpenSockets();
  absl::Status TakePriority();
  absl::Status ServeMetrics();
  void AddLinkCommands();
  void AddStreams(const char* command, StreamServer& server);
  void WatchLinks();
  void HoldRoceUdpPort();
  void ClaimMacs();
  bool ServesAllUsers() const;
  void CheckRings();
  absl::Status WatchSignals();
  // Null: no wire has the name.
  dataplane::Wire* FindWire(const std::string& name) const;

  const Config config_;
  std::string runtime_dir_;
  // The order matters: members are destroyed from the last to the first.
  UniqueFd lock_;
  UniqueFd signals_;
  std::unique_ptr<EventLoop> loop_;
  SharedQuotas quotas_;
  Users users_;
  std::unique_ptr<ForeignFds> foreign_fds_;
  std::unique_ptr<BlockingCalls> blocking_calls_;
  std::unique_ptr<AccountLookup> accounts_;
  CallTimes call_times_;
  std::unique_ptr<dataplane::Dataplane> dataplane_;
  std::vector<dataplane::Wire*> wires_;  // as in config_.wires
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<SessionServer> sessions_;
  std::unique_ptr<cm::Server> connections_;
  UniqueFd roce_udp_socket_;
  std::vector<UniqueFd> mac_claims_;
  std::unique_ptr<ManageServer> manage_;
  std::unique_ptr<StreamServer> captures_;
  std::unique_ptr<StreamServer> traces_;
  std::unique_ptr<LinkStates> link_states_;
  std::unique_ptr<SysfsPublisher> publisher_;
  std::unique_ptr<netlink::NetlinkServer> netlink_;
  std::unique_ptr<LinkWatch> link_watch_;
  std::unique_ptr<LcoreWatch> lcore_watch_;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace roci::control
