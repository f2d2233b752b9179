// An RPC-over-RDMA client: one connection to one server, calls from registered buffers, credits,
// time limits, and new connections when one is lost.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/interop/rpcrdma/client_connection.h"
#include "tests/interop/rpcrdma/client_options.h"
#include "tests/interop/rpcrdma/client_request.h"
#include "tests/interop/rpcrdma/reconnect_delay.h"
#include "tests/interop/rpcrdma/verbs_device.h"

namespace rpcrdma {

enum class SendResult {
  kSent,
  kNotConnected,  // a connection is being made: call again after Progress()
  kNoBuffers,     // no credit or no room now: call again after a reply
  kFailed,        // for good: the call does not fit, or the client is closed
};

enum class AllocationResult {
  kAllocated,
  kLater,   // all slots are taken, or memory lacks
  kFailed,  // for good
};

struct ClientCounters {
  uint64_t connections = 0;
  uint64_t lost_connections = 0;
  uint64_t failed_connects = 0;
  uint64_t sent = 0;    // transmissions of calls
  uint64_t resent = 0;  // of those, again on a new connection
  uint64_t replies = 0;
  uint64_t unknown_replies = 0;  // of no pending call: their XID, or no header at all
  uint64_t bad_replies = 0;
  uint64_t remote_errors = 0;
  uint64_t remote_invalidations = 0;
  uint64_t local_invalidations = 0;  // batches of them
  uint64_t call_timeouts = 0;
  uint64_t waits_for_credit = 0;
};

// Used by one thread. The caller drives it by Progress().
class Client {
 public:
  // Resolves the server's address, which tells the device, and begins to connect. Throws
  // std::system_error or std::invalid_argument.
  explicit Client(const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The request belongs to the client, until Free().
  AllocationResult Allocate(size_t call_bytes, size_t data_bytes, size_t reply_bytes,
                            ClientRequest*& request);
  // The request must not be pending, unless the client is closed.
  void Free(ClientRequest* request);

  // Sends the call. From kSent on it is pending, and sent again after a loss of the connection,
  // until its status tells how it ended.
  SendResult Send(ClientRequest& request);
  // Handles what has happened; waits for something as long as nothing has.
  void Progress(int timeout_ms);
  // Sends, and waits for the end: the call's status, or kIdle or kPending if time is up.
  CallStatus Call(ClientRequest& request, int timeout_ms);

  // Disconnects. Pending calls end with kClosed, later ones fail.
  void Close();
  // Of the server, for the next connection.
  void SetPort(uint16_t port) { options_.port = port; }
  // Loses the connection, as a broken network would.
  void Disconnect();

  bool is_connected() const { return connection_ != nullptr && connection_->is_established(); }
  uint32_t credits() const { return granted_; }
  size_t send_bytes() const { return connection_->send_bytes(); }
  const ClientCounters& counters() const { return counters_; }

 private:
  void BeginConnecting();
  void HandleCmEvents();
  // True: the connection goes on.
  bool OnCmEvent(const rdma_cm_event& event);
  VerbsDevice& DeviceOf(ibv_context* context);
  bool PollCompletions();
  void OnCompletion(const ibv_wc& wc);
  void OnReply(const ibv_wc& wc);
  void Finish(ClientRequest& request);
  SendResult Transmit(ClientRequest& request);
  void SendAgain();
  void CheckLimits();
  void Lose();
  void Wait(int timeout_ms);
  int UntilNextLimit_ms(int timeout_ms) const;
  ClientRequest* FindPending(uint32_t xid) const;

  ClientOptions options_;
  Owned<rdma_event_channel> channel_;
  std::unique_ptr<VerbsDevice> device_;
  std::unique_ptr<ClientConnection> connection_;
  std::vector<std::unique_ptr<ClientRequest>> requests_;  // by slot
  std::deque<ClientRequest*> again_;                      // pending calls of a lost connection
  ReconnectDelay delay_;
  uint64_t connect_at_ms_ = 0;     // without a connection: when to begin one
  uint64_t connect_until_ms_ = 0;  // with one that is not established
  uint32_t next_xid_;
  uint32_t granted_ = 1;  // RFC 8166, section 3.3.3
  uint32_t in_flight_ = 0;
  bool broken_ = false;  // a work request failed
  bool closed_ = false;
  ClientCounters counters_;
};

}  // namespace rpcrdma
