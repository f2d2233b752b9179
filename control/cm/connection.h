// The state of one connection, or of one service ID resolution (SIDR), in the communication
// manager, and the table of actions by message and state. Plain data; see engine.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "control/cm/mad.h"
#include "roce/frame.h"
#include "roce/work.h"

namespace roci::control::cm {

// IBTA vol 1, 12.9.7 (figures of the active and passive state machine), with the states of a
// datagram's service ID resolution (12.11).
#define ROCI_CM_STATES(X)                  \
  X(kReqSent, "req_sent")                  \
  X(kMraReqReceived, "req_wait")           \
  X(kReqReceived, "req_received")          \
  X(kMraReqSent, "mra_req_sent")           \
  X(kRepSent, "rep_sent")                  \
  X(kMraRepReceived, "rep_wait")           \
  X(kRepReceived, "rep_received")          \
  X(kMraRepSent, "mra_rep_sent")           \
  X(kEstablished, "established")           \
  X(kDreqSent, "dreq_sent")                \
  X(kRejected, "rejected")                 \
  X(kTimewait, "timewait")                 \
  X(kSidrReqSent, "sidr_req_sent")         \
  X(kSidrReqReceived, "sidr_req_received") \
  X(kSidrAnswered, "sidr_answered")

enum class State : uint8_t {
#define ROCI_CM_ENUMERATOR(id, name) id,
  ROCI_CM_STATES(ROCI_CM_ENUMERATOR)
#undef ROCI_CM_ENUMERATOR
};
inline constexpr std::array kStateNames = {
#define ROCI_CM_NAME(id, name) std::string_view(name),
    ROCI_CM_STATES(ROCI_CM_NAME)
#undef ROCI_CM_NAME
};

// The action on a message of the peer.
enum class Action : uint8_t {
  kIgnore,
  kTakeReply,      // REP: the answer to our REQ
  kAskPatience,    // a repeated REQ or REP before the program has decided: send MRA
  kRepeatLast,     // our answer was lost: send it again
  kRejectStale,    // a repeated REQ of a connection that has ended
  kTakeReady,      // RTU
  kTakeReject,     // REJ while connecting
  kEndByPeer,      // DREQ, or a late REJ
  kRepeatRelease,  // DREQ again: DREP again
  kEndByUs,        // DREP
  kWaitLonger,     // MRA
  kRefusePath,     // LAP: alternate paths are not supported
};
Action ActionOf(MessageType message, State state);

// The address and VLAN of the peer on a path.
inline roce::NetAddress FarEndOf(const roce::Path& path) { return {path.dst_gid, path.vlan()}; }
inline bool IsSamePeer(const roce::Path& a, const roce::Path& b) {
  return FarEndOf(a) == FarEndOf(b);
}
// The service level of an address vector: the frames' priority in a VLAN, else 0.
inline uint8_t ServiceLevelOf(const roce::Path& path) {
  const uint32_t tag = path.has_vlan ? path.vlan_tci : 0;
  return static_cast<uint8_t>(tag >> roce::VlanTag::kPriorityShift);
}

struct Connection {
  uint32_t local_id = 0;   // communication ID; never 0
  uint32_t remote_id = 0;  // 0: not known yet
  uint64_t owner = 0;      // receiver of events; 0: released
  uint32_t account = 0;    // of the owner
  uint64_t left = 0;       // key in Engine::left_behind_; 0: has an owner
  State state = State::kReqSent;
  bool is_active = false;
  bool is_datagram = false;
  bool indexed_by_peer = false;  // see Engine::peers_ and sidr_peers_
  bool indexed_by_qpn = false;

  uint64_t transaction = 0;
  uint64_t service_id = 0;
  uint64_t remote_guid = 0;
  roce::Path path;  // of our messages; the connection's own path has the same addresses

  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  uint32_t local_psn = 0;   // first PSN of the peer's packets to us
  uint32_t remote_psn = 0;  // first PSN of our packets
  uint32_t qkey = 0;        // datagrams
  uint8_t transport = 0;
  uint8_t extended_transport = 0;
  uint8_t path_mtu = 0;
  uint8_t responder_resources = 0;  // of ours
  uint8_t initiator_depth = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t ack_timeout = 0;  // for our QP, 4.096 us * 2^n
  uint8_t traffic_class = 0;
  bool has_alternate = false;

  // Retransmission.
  roce::TimeNs response_timeout = 0;
  uint32_t retries = 0;  // remaining retransmissions of `last`
  uint32_t max_retries = 0;
  roce::TimeNs deadline = roce::kNever;
  MadBytes last{};  // last sent message, for retransmission
};

}  // namespace roci::control::cm
