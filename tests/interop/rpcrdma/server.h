// An RPC-over-RDMA server: listens, accepts connections, and serves all of them on one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/interop/rpcrdma/rpc_service.h"
#include "tests/interop/rpcrdma/server_connection.h"
#include "tests/interop/rpcrdma/server_counters.h"
#include "tests/interop/rpcrdma/server_device.h"
#include "tests/interop/rpcrdma/server_options.h"
#include "tests/interop/rpcrdma/verbs_objects.h"

namespace rpcrdma {

class Server {
 public:
  // Listens. Throws std::system_error. `service` is called on the thread of Run() and must outlive
  // the server.
  Server(const ServerOptions& options, RpcService& service);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The port that it listens on.
  uint16_t port() const;
  // Serves until Stop().
  void Run();
  // From any thread, or from a signal handler.
  void Stop() const;
  const ServerCounters& counters() const { return counters_; }
  // Of the connections now open.
  uint64_t open_connections() const { return open_connections_.load(std::memory_order_relaxed); }

 private:
  struct Peer {
    std::unique_ptr<ServerConnection> connection;
    uint64_t seen_received = 0;
    uint64_t seen_completed = 0;
    uint64_t idle_since_ns = 0;
    uint64_t stalled_since_ns = 0;
  };

  void Listen();
  void Watch(int fd) const;
  bool PollConnections();
  void Sleep();
  void HandleCmEvents();
  void HandleRequest(const rdma_cm_event& event);
  void Accept(Owned<rdma_cm_id> id, const rdma_cm_event& event);
  ServerDevice& DeviceOf(ibv_context* context);
  void HandleCompletionEvents(ServerDevice& device);
  // Closes connections that take resources and do not use them.
  void CloseIdle();
  void DestroyClosed();

  const ServerOptions options_;
  RpcService& service_;
  ServerCounters counters_;
  std::atomic<uint64_t> open_connections_ = 0;
  int epoll_ = -1;
  int stop_event_ = -1;
  bool stopped_ = false;
  Owned<rdma_event_channel> channel_;
  Owned<rdma_cm_id> listener_;
  std::map<ibv_context*, std::unique_ptr<ServerDevice>> devices_;
  std::vector<Peer> peers_;  // on these devices, so they end first
};

}  // namespace rpcrdma
