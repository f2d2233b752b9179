// RPC over TCP: listens, accepts connections, and serves all of them on one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>

#include "tests/interop/rpcrdma/nfs/descriptor.h"
#include "tests/interop/rpcrdma/nfs/tcp_connection.h"
#include "tests/interop/rpcrdma/rpc_service.h"

namespace rpcrdma {

struct TcpCounters {
  std::atomic<uint64_t> connections = 0;
  std::atomic<uint64_t> refused = 0;    // more than kMaxConnections
  std::atomic<uint64_t> failed = 0;     // by the network
  std::atomic<uint64_t> malformed = 0;  // record marking
  std::atomic<uint64_t> dropped = 0;    // by the service: not a call
  std::atomic<uint64_t> stalled = 0;
};

class TcpServer {
 public:
  static constexpr size_t kMaxConnections = 64;

  // Listens on a numeric address (port 0: any free one). Throws std::system_error or
  // std::invalid_argument. `service` must outlive the server.
  TcpServer(const std::string& address, uint16_t port, RpcService* service);

  uint16_t port() const;
  // Serves until Stop().
  void Run();
  // From any thread, or from a signal handler.
  void Stop() const;
  const TcpCounters& counters() const { return counters_; }

 private:
  void Accept();
  bool Serve(TcpConnection* connection, bool ready, TcpConnection::Clock::time_point now);

  RpcService* const service_;
  Descriptor listener_, stop_event_;
  std::list<TcpConnection> connections_;
  TcpCounters counters_;
};

}  // namespace rpcrdma
