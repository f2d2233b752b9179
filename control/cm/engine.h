// The communication manager of one port: connections from request to timewait (IBTA vol 1, chapter
// 12). Does no I/O: messages, time and a seed are arguments; the caller fetches messages to send
// and events. Every table and every wait is bounded. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/cm/connection.h"
#include "control/cm/mad.h"
#include "memory/split_mix.h"
#include "roce/frame.h"
#include "roce/work.h"

namespace roci::control::cm {

struct EngineConfig {
  uint64_t ca_guid = 0;  // host byte order
  uint8_t max_path_mtu = 5;
  // Exponents (4.096 us * 2^n) and counts in our requests.
  uint8_t response_timeout = 20;  // longest time for an answer of either side, 4.3 s
  uint8_t max_retries = 15;
  uint8_t patience = 24;              // MRA: longest time for a program's decision, 69 s
  uint8_t packet_life_time = 16;      // 0.27 s
  uint8_t max_peer_timeout = 24;      // longer timeouts in peers' messages are reduced to this
  uint32_t max_connections = 65'536;  // of all states
};

struct ConnectOptions {
  uint64_t owner = 0;
  uint32_t account = 0;  // see Engine::LeaveBehind
  roce::Path path = {};  // resolved
  uint64_t service_id = 0;
  uint8_t transport = 0;  // TransportService
  uint8_t extended_transport = 0;
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint8_t path_mtu = 5;  // code
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t flow_control = 0;
  uint8_t srq = 0;
  uint8_t packet_life_time = 0;  // 0: the engine's
  Ece ece = {};
  std::span<const std::byte> private_data = {};  // at most 92 bytes
};

struct AcceptOptions {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t flow_control = 0;
  uint8_t srq = 0;
  Ece ece = {};
  std::span<const std::byte> private_data = {};  // at most 196 bytes
};

struct DatagramOptions {
  uint64_t owner = 0;
  uint32_t account = 0;
  roce::Path path = {};
  uint64_t service_id = 0;
  std::span<const std::byte> private_data = {};  // at most 216 bytes
};

struct DatagramAnswer {
  SidrStatus status = SidrStatus::kValid;
  uint32_t qpn = 0;
  uint32_t qkey = 0;
  Ece ece = {};
  std::span<const std::byte> private_data = {};  // at most 136 bytes
};

enum class EventKind : uint8_t {
  kRequest,              // Req: without an owner. Call Adopt, Refuse or Drop
  kReply,                // Rep: answer with Ready or Reject
  kEstablished,          // Rtu, or NoticeEstablished
  kRejected,             // Rej
  kUnreachable,          // no answer to REQ or REP
  kDisconnected,         // by the peer or after Disconnect
  kTimewaitOver,         // the connection is removed
  kDatagramRequest,      // SidrReq: without an owner
  kDatagramReply,        // SidrRep; the connection is removed
  kDatagramUnreachable,  // no answer to SIDR_REQ; the connection is removed
};

struct Event {
  EventKind kind;
  uint32_t id = 0;
  uint64_t owner = 0;
  roce::Path path;  // of our answers
  Body body;        // the message named at EventKind, if any
};

struct Outgoing {
  roce::Path path = {};
  MadBytes mad;
};

class Engine {
 public:
  using Reasons = std::array<uint64_t, kMadReasonNames.size()>;

  // `seed` determines communication IDs and transaction IDs; use a new seed for each start.
  Engine(const EngineConfig& config, uint64_t seed);
  // For requests received from now on.
  void SetMaxPathMtu(uint8_t code) { config_.max_path_mtu = code; }

  // ---- Operations of a connection's owner. InvalidArgument: the private data is too long.
  // FailedPrecondition: not possible in this state. ResourceExhausted: too many connections.
  absl::StatusOr<uint32_t> Connect(roce::TimeNs now, const ConnectOptions& options);
  absl::StatusOr<uint32_t> ConnectDatagram(roce::TimeNs now, const DatagramOptions& options);
  // Sets the owner of a request that an event has reported.
  void Adopt(uint32_t id, uint64_t owner, uint32_t account);
  absl::Status Accept(roce::TimeNs now, uint32_t id, const AcceptOptions& options);
  absl::Status AnswerDatagram(roce::TimeNs now, uint32_t id, const DatagramAnswer& answer);
  // Accepts the reply: sends RTU.
  absl::Status Ready(roce::TimeNs now, uint32_t id);
  // Rejects a request or a reply. At most 148 bytes of private data and 72 of information. Ends the
  // connection; copies of the request are rejected again.
  absl::Status Reject(roce::TimeNs now, uint32_t id, RejectReason reason,
                      std::span<const std::byte> info, std::span<const std::byte> private_data);
  // For a request that an event has just reported; it is counted as `why` instead of as taken.
  // Refuse rejects and removes it.
  void Refuse(uint32_t id, RejectReason reason, MadReason why);
  // Drop removes it without an answer: the peer will retry.
  void Drop(uint32_t id, MadReason why);
  absl::Status Disconnect(roce::TimeNs now, uint32_t id);
  // The first message arrived before the RTU (IBV_EVENT_COMM_EST). AlreadyExists: established.
  absl::Status NoticeEstablished(roce::TimeNs now, uint32_t id);
  // Releases the connection; no further events. Rejects or disconnects as the state requires.
  // Valid in any state and for any ID.
  void Release(roce::TimeNs now, uint32_t id);

  // ---- The network. `reply`: path to the sender; its source is the MAD's destination address.
  MadReason HandleMad(roce::TimeNs now, const roce::Path& reply, std::span<const std::byte> mad);

  void HandleTimeout(roce::TimeNs now);
  roce::TimeNs NextTimeout() const {
    return timers_.empty() ? roce::kNever : timers_.begin()->first;
  }

  std::vector<Outgoing> TakeOutgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Event> TakeEvents() { return std::exchange(events_, {}); }

  // Null: no such connection.
  const Connection* Find(uint32_t id) const;
  size_t size() const { return connections_.size(); }
  // Number of connections without an owner that were removed early to make room.
  uint64_t displaced() const { return displaced_; }
  const Reasons& reasons() const { return reasons_; }
  void CountReason(MadReason reason) { ++reasons_[static_cast<size_t>(reason)]; }
  uint32_t NewPsn() { return static_cast<uint32_t>(random_.Next()) & roce::kMask24; }

 private:
  using PeerKey = std::pair<uint64_t, uint32_t>;          // GUID and communication ID or QPN
  using SidrKey = std::pair<roce::NetAddress, uint32_t>;  // address and request ID

  using LeftBehind = std::map<uint64_t, uint32_t>;  // connection IDs, the oldest first

  Connection* Get(uint32_t id);
  // Null: the table is full of connections with an owner.
  Connection* Add();
  bool MakeRoom();
  // Removes the owner. The connection stays until its timer expires or until MakeRoom() removes it:
  // the manager limits the owners of a user, but not connections without an owner. MakeRoom() takes
  // the oldest of the account with the most of them, so that one user cannot displace the others'.
  void LeaveBehind(Connection& connection);
  roce::TimeNs PeerTime(uint8_t exponent) const;
  void Forget(Connection& connection);
  void SetDeadline(Connection& connection, roce::TimeNs deadline);
  void SendOnce(Connection& connection, Body body);
  // Sends and retransmits until the state changes.
  void SendRepeatedly(roce::TimeNs now, Connection& connection, Body body);
  void Tell(const Connection& connection, EventKind kind, Body body = {});
  bool IndexByQpn(Connection& connection);
  void DropIndexes(Connection& connection);
  void EnterTimewait(roce::TimeNs now, Connection& connection);
  void Linger(roce::TimeNs now, Connection& connection, State state);
  void BeginRelease(roce::TimeNs now, Connection& connection);
  void RepeatOrGiveUp(roce::TimeNs now, Connection& connection);

  // engine_operations.cc, with the operations above
  uint8_t LifeTimeOf(const ConnectOptions& options) const;  // of a packet, as exponent
  void BeginConnection(Connection& connection, const ConnectOptions& options);
  void FillReq(const Connection& connection, const ConnectOptions& options, Req& req) const;
  void RefuseRequest(Connection& connection, RejectReason reason);
  void Recount(MadReason why);
  void AbandonRequest(Connection& connection);
  void SendReject(Connection& connection, AboutMessage about, RejectReason reason,
                  std::span<const std::byte> info, std::span<const std::byte> private_data);

  // engine_receive.cc
  MadReason Dispatch(roce::TimeNs now, const roce::Path& reply, const Message& message);
  MadReason HandleReq(roce::TimeNs now, const roce::Path& reply, const Message& message,
                      const Req& req);
  MadReason HandleSidrReq(roce::TimeNs now, const roce::Path& reply, const Message& message,
                          const SidrReq& req);
  MadReason HandleSidrRep(const roce::Path& reply, const SidrRep& rep);
  void AcceptRequest(roce::TimeNs now, const roce::Path& reply, const Message& message,
                     const Req& req, Connection& connection);
  MadReason AnswerStranger(const roce::Path& reply, const Message& message);
  Connection* Match(const roce::Path& reply, const Message& message);
  MadReason Act(roce::TimeNs now, Connection& connection, const Message& message);
  void TakeReply(roce::TimeNs now, Connection& connection, const Rep& rep);
  void TakeReject(roce::TimeNs now, Connection& connection, const Rej& rej);
  void EndByPeer(roce::TimeNs now, Connection& connection, const Message& message);
  void WaitLonger(roce::TimeNs now, Connection& connection, const Mra& mra);
  void AskPatience(roce::TimeNs now, Connection& connection);
  void Answer(const roce::Path& reply, uint64_t transaction, Body body);

  EngineConfig config_;
  memory::SplitMix random_;
  std::unordered_map<uint32_t, std::unique_ptr<Connection>> connections_;
  std::map<PeerKey, uint32_t> peers_;      // by the peer's communication ID: repeated REQs
  std::map<PeerKey, uint32_t> peer_qpns_;  // by the peer's QPN: stale connections
  std::map<SidrKey, uint32_t> sidr_peers_;
  std::set<std::pair<roce::TimeNs, uint32_t>> timers_;
  std::map<uint32_t, LeftBehind> left_behind_;  // by account
  uint64_t last_left_ = 0;
  uint64_t displaced_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Event> events_;
  Reasons reasons_{};
};

}  // namespace roci::control::cm
