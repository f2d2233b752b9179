// A client's end of one connection, from the resolution of the server's address to its loss: QP,
// CQ, receive and header buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tests/interop/rpcrdma/client_options.h"
#include "tests/interop/rpcrdma/header.h"
#include "tests/interop/rpcrdma/private_data.h"
#include "tests/interop/rpcrdma/send_batch.h"
#include "tests/interop/rpcrdma/verbs_device.h"

namespace rpcrdma {

class ClientConnection {
 public:
  // Begins with the server's address. All methods throw std::system_error.
  ClientConnection(rdma_event_channel* channel, const ClientOptions& options);
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  const rdma_cm_id* id() const { return id_.get(); }
  ibv_context* context() const { return id_->verbs; }
  // The address is resolved: creates the queues, posts all receives, and asks for the route.
  void CreateQueues(VerbsDevice& device);
  // The route is resolved.
  void Connect();
  // The server has accepted, and says this of itself.
  void Establish(std::optional<PrivateData> peer);
  bool is_established() const { return established_; }

  size_t send_bytes() const { return send_bytes_; }
  size_t receive_bytes() const { return receive_bytes_; }
  const RegisteredSlots& headers() const { return *headers_; }

  // Up to 16 completions. Negative: the CQ is broken.
  int Poll(ibv_wc* completions) { return ibv_poll_cq(cq_.get(), kCompletions, completions); }
  static constexpr int kCompletions = 16;
  bool has_queues() const { return headers_.has_value(); }
  void Arm();
  std::span<const std::byte> Received(uint64_t slot, uint32_t bytes) const {
    return receives_->Slot(slot).first(bytes);
  }
  void PostReceive(uint64_t slot);
  // False: no room in the send queue now.
  bool Post(SendBatch& batch, uint64_t wr_id);
  void NoteBatchCompleted() { room_->Complete(); }

 private:
  const ClientOptions& options_;
  VerbsDevice* device_ = nullptr;
  Owned<ibv_cq> cq_;
  Owned<rdma_cm_id> id_;  // with its QP, which ends before the CQ
  std::optional<RegisteredSlots> receives_;
  std::optional<RegisteredSlots> headers_;  // one for each request
  std::optional<SendQueueRoom> room_;
  size_t send_bytes_ = kDefaultInlineBytes;
  size_t receive_bytes_ = kDefaultInlineBytes;
  bool established_ = false;
};

// Of a work request's identifier: a slot of receives or requests, and what completed.
inline constexpr uint64_t kSlotMask = 0xFFFF'FFFF;
inline constexpr uint64_t kReceive = uint64_t{1} << 32;
inline constexpr uint64_t kSend = uint64_t{2} << 32;
inline constexpr uint64_t kFence = uint64_t{3} << 32;

}  // namespace rpcrdma
