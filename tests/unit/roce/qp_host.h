// A scripted QpHost for one queue pair: work queues, memory, and a record of completions and
// events.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "memory/segment.h"
#include "roce/host.h"
#include "roce/qp.h"

namespace roci::roce {

// Memory lies at [kMemoryVa, kMemoryVa + size). Keys grant parts of it. A grant may be larger than
// the memory: addresses beyond its end map back into it.
class ScriptedHost {
 public:
  static constexpr uint64_t kMemoryVa = 0x7000'0000'1000;
  static constexpr Key kLkey{0x1100};
  static constexpr Key kRkey{0x2200};

  explicit ScriptedHost(size_t memory_bytes = 64 * 1024);

  // ---- What a test scripts ----
  struct Grant {
    uint64_t va;
    uint64_t length;
    memory::Access access;
    uint64_t backing = 0;  // index in `bytes` of the byte at `va`
  };
  std::map<uint32_t, Grant> grants;
  std::vector<std::byte> bytes;
  std::deque<SendWqe> sends;
  std::deque<RecvWqe> receives;
  // XRC: shared receive queues by number, instead of `receives`.
  std::map<uint32_t, std::deque<RecvWqe>> shared_queues;
  // FetchSend or FetchRecv returns kBad with this status for the next entry.
  std::optional<CompletionStatus> bad_send, bad_receive;
  // Every copy faults from now on.
  bool place_faults = false;
  bool atomic_faults = false;
  // Atomics return kNotYet.
  bool atomics_wait = false;
  bool invalidate_fails = false;
  bool bind_fails = false;
  bool has_room_to_keep = true;
  // GatherSend appends a segment and then fails, as with several SGEs of which the last is bad.
  bool gather_fails_late = false;

  // Results of StartDurable and PollDurable.
  DurableState durable_start = DurableState::kRunning;
  DurableState durable = DurableState::kRunning;

  // ---- What the host records ----
  struct DurableRequest {
    Key rkey;
    uint64_t va;
    uint32_t length;
    bool whole_region;
    uint32_t queue;  // XRC: the selected receive queue
  };
  std::vector<DurableRequest> durable_requests;
  std::vector<Completion> send_completions, recv_completions;
  std::vector<uint32_t> completed_queues;  // XRC: the queue of each receive completion
  std::vector<QpEvent> events;
  QpState state = QpState::kReset;
  std::array<uint64_t, kQpCounterCount> counters{};
  std::vector<Key> invalidated;
  std::vector<uint64_t> bound;  // wr_ids
  uint32_t fetches = 0;
  uint32_t selected_queue = 0;

  uint64_t count(QpCounter counter) const { return counters[static_cast<size_t>(counter)]; }
  std::byte* At(uint64_t va) { return bytes.data() + (va - kMemoryVa); }
  uint64_t Word(uint64_t va);
  void SetWord(uint64_t va, uint64_t value);

  // Post a work request. Each returns the entry, which the test may change until it is fetched.
  SendWqe& PostSend(WorkOpcode opcode, uint32_t length, uint64_t offset = 0,
                    uint64_t remote_offset = 0);
  RecvWqe& PostRecv(uint32_t capacity, uint64_t offset = 0);

  // ---- QpHost ----
  FetchResult FetchSend(SendWqe& out, CompletionStatus& bad_status);
  FetchResult FetchRecv(RecvWqe& out, CompletionStatus& bad_status, const Packet* packet);
  uint32_t PostedReceives() const { return static_cast<uint32_t>(receives.size()); }
  bool HasRoomToKeep() const { return has_room_to_keep; }
  memory::MemoryStatus GatherSend(const SendWqe& wqe, uint32_t offset, uint32_t length,
                                  memory::SegmentList& out);
  memory::MemoryStatus ScatterSend(const SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::SegmentList& out);
  memory::MemoryStatus ScatterRecv(const RecvWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::SegmentList& out);
  memory::MemoryStatus ResolveRemote(Key rkey, uint64_t va, uint32_t length, memory::Access access,
                                     memory::SegmentList& out);
  memory::MemoryStatus CheckRemote(Key rkey, uint64_t va, uint32_t length, memory::Access access);
  memory::MemoryStatus CheckRemoteKey(Key rkey, memory::Access access);
  memory::MemoryStatus Invalidate(Key rkey);
  memory::MemoryStatus BindWindow(const SendWqe& wqe);
  // Recorded, or refused, as a bind.
  memory::MemoryStatus RegisterList(const SendWqe& wqe) { return BindWindow(wqe); }
  DurableState StartDurable(Key rkey, uint64_t va, uint32_t length, bool whole_region) {
    durable_requests.push_back({rkey, va, length, whole_region, selected_queue});
    return durable_start;
  }
  DurableState PollDurable() { return durable; }
  memory::MemoryStatus AtomicWrite(const memory::Segment& segment,
                                   std::span<const std::byte, 8> from);
  bool SelectReceiveQueue(uint32_t number) {
    if (!shared_queues.contains(number)) return false;
    selected_queue = number;
    return true;
  }
  memory::MemoryStatus Place(const memory::SegmentList& segments, std::span<const std::byte> from);
  memory::MemoryStatus AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                         uint64_t swap, uint64_t& original);
  memory::MemoryStatus AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                      uint64_t& original);
  void CompleteSend(const Completion& completion) { send_completions.push_back(completion); }
  void CompleteRecv(const Completion& completion) {
    recv_completions.push_back(completion);
    completed_queues.push_back(selected_queue);
  }
  void RaiseEvent(QpEvent event) { events.push_back(event); }
  void NoteState(QpState from, QpState to) {
    EXPECT_EQ(from, state);
    EXPECT_NE(from, to);
    state = to;
  }
  void Count(QpCounter counter) { ++counters[static_cast<size_t>(counter)]; }

 private:
  memory::MemoryStatus Resolve(Key key, uint64_t va, uint32_t length, memory::Access access,
                               memory::SegmentList* out);

  uint32_t next_send_slot_ = 0;
  uint32_t next_recv_slot_ = 0;
};

// A packet that a queue pair receives or sends, with its own copy of the payload.
struct WirePacket {
  TxPacket tx;
  std::vector<std::byte> payload;
  Polled polled;  // sent ones only

  const OpcodeInfo& info() const { return InfoOf(tx.opcode); }
  // The packet as ParsePacket returns it. Valid as long as this object.
  Packet View() const;
};

inline constexpr Qpn kLocalQpn{0x11};
inline constexpr Qpn kPeerQpn{0x22};
inline constexpr Psn kSqPsn{0x1000};  // first PSN of our requests
inline constexpr Psn kRqPsn{0x8000};  // first PSN of the peer's requests

struct NodeOptions {
  QpType type = QpType::kRc;
  QpLimits limits;
  uint32_t records = 64;
  bool sq_sig_all = false;
  bool uses_srq = false;
  PathMtu path_mtu = PathMtu::k256;
  Psn sq_psn = kSqPsn;
  Psn rq_psn = kRqPsn;
  Qpn qpn = kLocalQpn;
  Qpn dest_qpn = kPeerQpn;
  uint32_t access_flags = kQpAccessRemoteWrite | kQpAccessRemoteRead | kQpAccessRemoteAtomic;
  uint32_t qkey = 0;
  uint8_t timeout = 14;
  uint8_t retry_count = 3;
  uint8_t rnr_retry = 3;
  uint8_t min_rnr_timer = 12;
  uint8_t max_rd_atomic = 4;
  uint8_t max_dest_rd_atomic = 4;
  size_t memory_bytes = 64 * 1024;
  Dcqcn* congestion = nullptr;
};

// A queue pair with its host and clock.
class Node {
 public:
  explicit Node(const NodeOptions& options = {}, QpState target = QpState::kRts);

  // Moves the queue pair through INIT, RTR and RTS up to `target`.
  void BringTo(QpState target);
  ModifyResult Modify(QpState to, uint32_t more_mask = 0);

  // The next packet to send, if there is one.
  std::optional<WirePacket> Poll();
  // All packets that can be sent now.
  std::vector<WirePacket> PollAll();
  DropReason Receive(const WirePacket& packet);
  DropReason Receive(const Packet& packet);
  PacketEffects effects;  // of the last received packet
  // Notifies the QP of posted work and returns all packets that can be sent.
  std::vector<WirePacket> Run();
  void Work() { qp.HandleWork(host); }
  // Advances the clock to the QP's next timeout and handles it. False: no timer is running.
  bool PassTimeout();

  NodeOptions options;
  QpAttributes attributes;
  ScriptedHost host;
  TimeNs now = 1'000'000;

 private:
  std::vector<SendRecord> records_;
  std::vector<ResponderResource> resources_;
  ReorderState reorder_;

 public:
  Qp<ScriptedHost> qp;
};

// ---- Packets from the peer ----

WirePacket MakeRequest(Opcode opcode, Psn psn, uint32_t payload_bytes = 0, bool ack_request = true);
WirePacket MakeWrite(Opcode opcode, Psn psn, uint32_t payload_bytes, uint32_t length,
                     uint64_t offset = 0);
WirePacket MakeReadRequest(Psn psn, uint32_t length, uint64_t offset = 0);
WirePacket MakeFlush(Psn psn, uint8_t type, uint8_t level, uint32_t length, uint64_t offset = 0);
WirePacket MakeCompareSwap(Psn psn, uint64_t compare, uint64_t swap, uint64_t offset = 0);
WirePacket MakeFetchAdd(Psn psn, uint64_t add, uint64_t offset = 0);
WirePacket MakeAck(Psn psn);
WirePacket MakeNak(Psn psn, NakCode code);
WirePacket MakeRnrNak(Psn psn, uint8_t timer);
WirePacket MakeReadResponse(Opcode opcode, Psn psn, uint32_t payload_bytes, uint8_t seed = 0);
WirePacket MakeAtomicAck(Psn psn, uint64_t original);

// Byte `i` of the payload that the Make functions generate.
constexpr std::byte PayloadByte(uint32_t i, uint8_t seed = 0) {
  return static_cast<std::byte>(i * 7 + 13 + seed);
}

}  // namespace roci::roce
