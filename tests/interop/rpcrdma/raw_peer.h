// An end of a connection that sends any bytes, for tests of what an RPC-over-RDMA server or client
// does with them.
#pragma once

#include <arpa/inet.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/interop/rpcrdma/verbs_device.h"
#include "tests/interop/rpcrdma/verbs_objects.h"

namespace rpcrdma {

struct RawPeerOptions {
  std::vector<std::byte> private_data = {};
  uint8_t responder_resources = 4;  // READs that the other end may have under way here
  uint32_t receives = 16;
  bool posts_again = true;  // a receive after each message
  size_t receive_bytes = 4096;
  size_t memory_bytes = 1 << 20;  // open to the other end
};

class RawPeer {
 public:
  // Connects. Throws std::system_error, also if it is rejected.
  RawPeer(const std::string& address, uint16_t port, const RawPeerOptions& options = {});
  // Takes the first request of a listening identifier.
  explicit RawPeer(rdma_event_channel* channel, const RawPeerOptions& options = {});
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // Memory that the other end may read and write.
  std::span<std::byte> memory() const { return memory_->Slot(0); }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(memory().data()); }
  uint32_t rkey() const { return memory_->mr()->rkey; }

  // Sends and waits for the completion. Returns its status.
  ibv_wc_status Send(std::span<const std::byte> message);
  // Writes to the other end's memory and waits for the completion.
  ibv_wc_status Write(std::span<const std::byte> bytes, uint64_t to, uint32_t rkey);
  struct Received {
    std::vector<std::byte> message;
    uint32_t invalidated_key = 0;
  };
  // Nothing if the connection ends, or time is up.
  std::optional<Received> Receive(int timeout_ms = 30'000);
  // True: the connection has ended.
  bool WaitForEnd(int timeout_ms = 30'000);
  // Of the other end's private data.
  const std::vector<std::byte>& peer_data() const { return peer_data_; }
  void Break();  // moves the QP to ERR: nothing is answered any more

 private:
  void CreateQueues();
  ibv_wc_status Post(ibv_send_wr& request, std::span<const std::byte> bytes);
  void PostReceive(uint32_t slot);
  // The next event, which must be this one.
  void Expect(rdma_cm_event_type type);
  // The next completion of either kind goes to where it belongs. False: time is up.
  bool PollOnce(int timeout_ms);

  const RawPeerOptions options_;
  Owned<rdma_event_channel> own_channel_;
  rdma_event_channel* channel_;
  std::optional<VerbsDevice> device_;
  std::optional<RegisteredSlots> memory_;
  std::optional<RegisteredSlots> receives_;
  std::optional<RegisteredSlots> sends_;
  Owned<ibv_cq> cq_;
  Owned<rdma_cm_id> id_;
  std::vector<std::byte> peer_data_;
  std::vector<Received> received_;
  std::optional<ibv_wc_status> sent_;
  bool ended_ = false;
};

// A listening identifier for RawPeer's second constructor.
class RawListener {
 public:
  RawListener(const std::string& address, uint16_t port);
  uint16_t port() const { return ntohs(rdma_get_src_port(id_.get())); }
  rdma_event_channel* channel() const { return channel_.get(); }

 private:
  Owned<rdma_event_channel> channel_;
  Owned<rdma_cm_id> id_;
};

}  // namespace rpcrdma
