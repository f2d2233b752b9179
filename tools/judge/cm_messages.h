// Judges the messages of the connection manager (IBTA vol 1, 12), and learns from them which queue
// pairs belong together.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "control/cm/mad.h"
#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// Two queue pairs that a REQ and its REP have connected.
struct LearnedPair {
  roce::Gid active, passive;
  uint32_t interface = 0;
  uint16_t vlan = 0;
  uint32_t active_qpn = 0, passive_qpn = 0;
  roce::Psn active_starts, passive_starts;  // first PSN of the requests of each
  uint32_t mtu = 0;                         // bytes; 0: unknown
  std::optional<int64_t> passive_ack_timeout_ns;
};

struct CmTotals {
  uint64_t messages = 0, connections = 0, rejected = 0;
};

class CmMessages {
 public:
  static constexpr size_t kMostConversations = 16384;

  // `frame`: a datagram to queue pair 1. A REP that answers a REQ for the first time gives a pair.
  std::optional<LearnedPair> Judge(const SeenFrame& frame, Flow& flow, Reporter& out);

  const CmTotals& totals() const { return totals_; }

 private:
  using Bytes16 = std::array<uint8_t, 16>;
  // Active side, passive side, interface, the active side's communication ID.
  using Key = std::tuple<Bytes16, Bytes16, uint32_t, uint32_t>;

  // How often a message was sent, by type and side.
  struct Sent {
    uint32_t count = 0;
    uint64_t transaction = 0;
    uint64_t digest = 0;
    int64_t last_ns = 0;
  };
  struct Conversation {
    control::cm::Req req;
    uint64_t transaction = 0;
    bool has_rep = false;
    uint32_t passive_id = 0;
    std::map<std::pair<uint16_t, bool>, Sent> sent;  // attribute, by the active side
    Sent& Of(control::cm::MessageType type, bool by_active) {
      return sent[{static_cast<uint16_t>(type), by_active}];
    }
  };

  struct Found {
    Conversation* conversation = nullptr;
    bool by_active = false;
  };
  Found Find(const SeenFrame& frame, uint32_t local_id, uint32_t remote_id);
  Conversation* FindByTransaction(const SeenFrame& frame, uint64_t transaction);
  void TakeReq(const SeenFrame& frame, const control::cm::Message& message, Flow& flow,
               Reporter& out);
  std::optional<LearnedPair> TakeRep(const SeenFrame& frame, const control::cm::Message& message,
                                     Flow& flow, Reporter& out);
  void TakeOther(const SeenFrame& frame, const control::cm::Message& message, Flow& flow,
                 Reporter& out);
  void NoteSent(const SeenFrame& frame, const control::cm::Message& message, Found found,
                Flow& flow, Reporter& out);

  std::map<Key, Conversation> conversations_;
  CmTotals totals_;
};

}  // namespace roci::tools::judge
