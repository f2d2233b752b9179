// A server's end of one connection: receives calls, pulls Read chunks, asks the service, fills
// Write and Reply chunks, and sends the reply.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/call_plan.h"
#include "tests/interop/rpcrdma/header.h"
#include "tests/interop/rpcrdma/private_data.h"
#include "tests/interop/rpcrdma/reply_plan.h"
#include "tests/interop/rpcrdma/rpc_service.h"
#include "tests/interop/rpcrdma/send_batch.h"
#include "tests/interop/rpcrdma/server_counters.h"
#include "tests/interop/rpcrdma/server_device.h"
#include "tests/interop/rpcrdma/server_options.h"

namespace rpcrdma {

// The connection owns its QP, CQ, receive buffers and call contexts. A call context belongs to a
// call from its receive completion until the completion of its reply's SEND; its receive buffer is
// posted again before the reply, so that a credit is never granted without a buffer (RFC 8166,
// section 3.3.1). All methods are called on the server's thread.
class ServerConnection : public BufferWaiter {
 public:
  // `id` is that of a connection request. Throws std::system_error if resources lack.
  ServerConnection(ServerDevice& device, Owned<rdma_cm_id> id, const ServerOptions& options,
                   RpcService& service, ServerCounters& counters);
  ~ServerConnection() override;
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  // Answers the request with these parameters. Throws std::system_error.
  void Accept(const rdma_conn_param& request, std::optional<PrivateData> peer);

  // Handles some completions. Returns whether there were any.
  bool Poll();
  // Asks for an event on the device's completion channel; later completions raise one. A poll must
  // follow. Does nothing if one is asked for already.
  void Arm();
  void NoteEvent() { armed_ = false; }

  // The first reason stays. The owner then destroys the connection.
  void Close(CloseReason reason);
  bool is_closed() const { return closed_; }
  const rdma_cm_id* id() const { return id_.get(); }
  // What grows while the peer sends calls.
  uint64_t received() const { return received_; }
  // What grows while posted work requests complete; has_posted() if there are some.
  uint64_t completed() const { return completed_; }
  bool has_posted() const { return room_->used() > 0; }

 private:
  struct Call;

  void OnBuffer(uint32_t token, uint32_t buffer) override;

  void CreateQueues();
  void PostReceive(uint32_t slot);
  void OnCompletion(const ibv_wc& wc);
  void OnReceive(uint32_t slot, uint32_t bytes);
  void Begin(Call& call, uint32_t slot, uint32_t bytes);
  void OnHeaderFault(Call& call, HeaderFault fault);
  void PlanFetch(Call& call);
  void Fetch(Call& call);
  void Answer(Call& call, std::span<const std::byte> message);
  void WantBuffer(Call& call);
  void ReplyFromBuffer(Call& call);
  void ReplyInline(Call& call);
  void SendError(Call& call, const Header& header);
  void AddWrites(Call& call, std::span<const std::byte> message);
  void AddReplySend(Call& call, std::span<const std::byte> message);
  // Adds the SEND of a reply, with invalidate where both sides can.
  void AddSend(Call& call, std::span<const ibv_sge> sges);
  void GiveBackReceive(Call& call);
  void Post(Call& call);
  void PostWaiting();
  void Discard(Call& call);

  ServerDevice& device_;
  const ServerOptions& options_;
  RpcService& service_;
  ServerCounters& counters_;
  Owned<ibv_cq> cq_;
  Owned<rdma_cm_id> id_;  // with its QP, which ends before the CQ
  std::optional<RegisteredSlots> receives_;
  std::optional<RegisteredSlots> sends_;  // one for each call context
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<uint32_t> free_calls_;
  struct Received {
    uint32_t slot;
    uint32_t bytes;
  };
  std::deque<Received> waiting_receives_;  // for a call context
  std::deque<uint32_t> waiting_posts_;     // calls with a batch, for room in the send queue
  std::optional<SendQueueRoom> room_;
  HeaderLimits limits_;
  uint32_t max_sges_ = 1;
  size_t send_bytes_ = kDefaultInlineBytes;  // longest SEND to the peer
  bool may_read_ = false;                    // the peer permits RDMA READs
  bool may_invalidate_ = false;
  bool accepted_ = false;
  bool armed_ = false;
  bool closed_ = false;
  uint64_t received_ = 0;
  uint64_t completed_ = 0;
};

}  // namespace rpcrdma
