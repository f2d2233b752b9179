// A minimal replacement for the provider plugin: the program's side of the rings without
// libibverbs. For tests and benchmarks that run in one process with the dataplane.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/port/wire.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/shard_access.h"
#include "dataplane/shard/shard_client.h"
#include "memory/app_memory.h"

namespace roci::testing {

// A second mapping of a descriptor, as a program has it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, size_t size);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class AppCq {
 public:
  AppCq(dataplane::ShardClient& client, uint32_t entries, int channel = -1,
        uint64_t user_handle = 0);
  bool Poll(roci_abi_cqe* out);
  // Polls until an entry arrives; false after `timeout_ms`.
  bool Wait(roci_abi_cqe* out, int timeout_ms = 5000);
  void Arm(roci_abi_cq_arm arm);
  uint32_t consumed() const { return consumer_; }
  roci_abi_cq* header() const { return reinterpret_cast<roci_abi_cq*>(memory_.data()); }
  // Moves the queue to a ring of `entries` and continues there. `consumer`: of the first entry.
  absl::Status Resize(dataplane::ShardClient& client, uint32_t entries, uint32_t consumer);
  // After the queue has moved.
  void Switch(dataplane::Fd fd);
  dataplane::CompletionQueue* cq() const { return cq_; }

 private:
  dataplane::CompletionQueue* cq_;
  Mapping memory_;
  uint32_t capacity_;
  uint32_t shift_;
  uint32_t consumer_ = 0;
};

// A work request of a send queue.
struct SendRequest {
  roci_abi_send_wqe head{};
  std::vector<roci_abi_sge> sges;
  std::vector<std::byte> inline_data;
};

class AppQp {
 public:
  AppQp(dataplane::ShardClient& client, const dataplane::QueuePairConfig& config);

  // Writes the entry; the daemon sees it after Ring.
  void Post(const SendRequest& request);
  // The same without allocation: head and one element.
  void Post(const roci_abi_send_wqe& head, const roci_abi_sge& sge) {
    std::byte* slot = SendSlot(send_producer_++);
    std::memcpy(slot, &head, sizeof(head));
    std::memcpy(slot + sizeof(head), &sge, sizeof(sge));
  }
  void PostRecv(uint64_t wr_id, const std::vector<roci_abi_sge>& sges);
  // Publishes the posted entries and rings the doorbell if the queue is armed.
  void Ring();
  // Rings even if nothing was posted or the queue is not armed.
  void RingDoorbell();
  // To RESET: indices start again.
  void Forget() { send_producer_ = recv_producer_ = 0; }
  void set_send_producer(uint32_t value) { send_producer_ = value; }
  uint32_t send_producer() const { return send_producer_; }

  dataplane::QueuePair& qp() { return *qp_; }
  dataplane::QueuePairInfo Inspect() {
    return client_.Do(dataplane::InspectQueuePairs{std::span(&qp_, 1)})[0];
  }
  roci_abi_queue* send_queue() const;
  roci_abi_queue* recv_queue() const;
  std::byte* SendSlot(uint32_t index) const;

 private:
  void Publish(roci_abi_queue* queue, uint32_t producer);

  dataplane::ShardClient& client_;
  dataplane::QueuePair* qp_;
  dataplane::QueueLayout layout_;
  Mapping memory_;
  Mapping doorbells_;
  uint32_t send_producer_ = 0;
  uint32_t recv_producer_ = 0;
};

// A device or a part of one, one session on it, one region of memory.
class Node {
 public:
  struct Config {
    uint32_t number = 1;  // 1..254: in the MAC and the IP address
    uint32_t lcore = 0;   // of the session
    size_t memory_bytes = 1 << 20;
    bool process_vm = false;  // reach the memory through system calls
    std::string devargs;      // instead of the wire
    // Of the program. Null: each node is of another user.
    std::shared_ptr<dataplane::CopyUse> user = {};
    Node* device_of = nullptr;  // uses the device of this node, which outlives the new one
  };
  Node(dataplane::Dataplane& dataplane, dataplane::Wire* wire, const Config& config);
  ~Node();

  dataplane::DeviceClient& device() { return *used_device_; }
  dataplane::ShardClient& client() { return *client_; }
  dataplane::Lcore& lcore() { return dataplane::ShardAccess::LcoreOf(*client_); }
  dataplane::VerbsContext& context(const dataplane::OnShard& shard) {
    return dataplane::ShardAccess::ContextOf(shard, *client_);
  }
  std::byte* memory() const { return memory_; }
  // The daemon's mapping of the memory; null with `process_vm`.
  std::byte* mapped() const { return mapped_; }
  uint32_t key() const { return key_; }
  uint64_t va(size_t offset = 0) const { return reinterpret_cast<uint64_t>(memory_) + offset; }
  roci_abi_sge Sge(size_t offset, uint32_t length) const { return {va(offset), length, key_}; }
  int async_socket() const { return async_read_.get(); }
  roce::Gid gid() const { return gid_; }
  static constexpr uint32_t kPd = 7;

 private:
  void OpenDevice(dataplane::Dataplane& dataplane, dataplane::Wire* wire, const Config& config);
  void RegisterMemory(const Config& config);

  std::shared_ptr<memory::AppMemory> app_;
  std::unique_ptr<dataplane::DeviceClient> device_;  // null: another node's
  dataplane::DeviceClient* used_device_ = nullptr;
  std::unique_ptr<dataplane::ShardClient> client_;
  dataplane::Fd async_read_;
  std::byte* memory_ = nullptr;
  std::byte* mapped_ = nullptr;
  size_t memory_bytes_ = 0;
  uint32_t key_ = 0;
  roce::Gid gid_;
};

struct ConnectOptions {
  roce::PathMtu mtu = roce::PathMtu::k4096;
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t max_rd_atomic = 16;
  uint32_t first_psn = 0xFFFFF0;  // wraps soon
};

// Moves one side through INIT and RTR to RTS. The peer needs the same call.
roce::ModifyResult Connect(Node& node, AppQp& qp, Node& peer, roce::Qpn peer_qpn,
                           const ConnectOptions& options = {});
roce::ModifyResult Connect(Node& node, dataplane::QueuePair& qp, Node& peer, roce::Qpn peer_qpn,
                           const ConnectOptions& options);
// To RTS without a peer, with Q_Key 0x1234.
roce::ModifyResult ConnectUd(Node& node, AppQp& qp);
roce::ModifyResult MoveTo(Node& node, AppQp& qp, roce::QpState state);
roce::Path PathTo(Node& node, Node& peer, uint32_t flow = 0);

}  // namespace roci::testing
