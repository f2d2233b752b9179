// Two communication managers with random programs over a network that loses, duplicates, reorders
// and delays messages; one of them may restart without state. No connection may get stuck or stay
// open on one side only, and every datagram service request must end with its own answer.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "control/cm/engine.h"
#include "tests/sim/random.h"
#include "tests/sim/seeded_runs.h"

namespace roci::control::cm {
namespace {

using roce::TimeNs;
using sim::Random;

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kStormNs = 150 * kMs;  // duration of the faults, longer than all retries take
constexpr TimeNs kThinkNs = 20 * kMs;   // longest reaction time of a program
// Loss in permille, up to which one of 16 attempts must get an answer.
constexpr uint32_t kLightLoss = 200;
constexpr TimeNs kEndNs = 4'000 * kMs;
constexpr uint64_t kService = 0x01061234;

roce::Gid Address(uint8_t node) { return roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, node}}); }

struct Faults {
  uint32_t loss = 0;  // permille
  uint32_t doubling = 0;
  TimeNs jitter = 0;
};

// A program's view of one of its connections or datagram service requests.
struct Endpoint {
  uint32_t id = 0;
  bool active = false;
  bool established = false;
  bool over = false;
  bool released = false;
  uint64_t service = 0;    // of a datagram service request; 0: a connection
  bool forgotten = false;  // the peer has restarted since
  uint32_t qpn = 0;        // our QP, while connecting
  uint32_t attempts = 0;   // attempts left, if the peer believes that our QP is connected
};

struct Node {
  Node(uint8_t number, uint64_t seed, const EngineConfig& engine_config)
      : address(Address(number)), config(engine_config) {
    engine.emplace(config, seed);
  }
  roce::Gid address;
  EngineConfig config;
  std::optional<Engine> engine;
  uint64_t last_owner = 0;
  std::map<uint64_t, Endpoint> endpoints;  // by owner
};

// Counts events without which a simulation would show nothing.
struct Seen {
  uint64_t connected = 0;
  uint64_t noticed = 0;   // the first message arrived before the RTU
  uint64_t answered = 0;  // datagram service requests
  uint64_t restarts = 0;
  uint64_t stale = 0;  // connections that ended because the peer's QP was reused
};

class World {
 public:
  World(uint64_t seed, Seen& seen) : random_(seed), seen_(seen) {
    faults_.loss = static_cast<uint32_t>(random_.Below(400));
    faults_.doubling = static_cast<uint32_t>(random_.Below(300));
    faults_.jitter = random_.Chance(500) ? 0 : random_.Below(4 * kMs);
    for (uint8_t i = 0; i < 2; ++i) {
      EngineConfig config;
      config.ca_guid = 100 + i;
      config.response_timeout = 8;  // 1 ms
      config.packet_life_time = 8;
      config.patience = 11;  // 8 ms
      nodes_.emplace_back(static_cast<uint8_t>(1 + i), random_.Next(), config);
    }
  }

  void Run() {
    const uint64_t wanted = random_.Between(1, 6);
    for (uint64_t i = 0; i < wanted; ++i) {
      const bool datagram = random_.Chance(250);
      At(random_.Below(30 * kMs), [this, i, datagram] {
        if (datagram) return Ask(nodes_[i & 1]);
        Connect(nodes_[i & 1], NewQpn(), 0);
      });
    }
    if (random_.Chance(200)) {
      At(random_.Below(80 * kMs), [this] { Restart(nodes_[random_.Below(2)]); });
    }
    RunUntil(kEndNs);
    CheckBothSides();
    for (Node& node : nodes_) ReleaseAll(node);
    RunUntil(2 * kEndNs);
    for (Node& node : nodes_) EXPECT_EQ(node.engine->size(), 0u) << "a connection is stuck";
  }

 private:
  void At(TimeNs when, std::function<void()> what) { agenda_.emplace(when, std::move(what)); }
  Node& Other(const Node& node) { return &node == &nodes_[0] ? nodes_[1] : nodes_[0]; }

  uint32_t NewQpn() { return 0x100 + static_cast<uint32_t>(random_.Below(1 << 20)); }
  roce::Path PathFrom(const Node& node) {
    roce::Path path;
    path.src_gid = node.address;
    path.dst_gid = Other(node).address;
    return path;
  }
  // The network delay of a message.
  TimeNs Delay() {
    const bool jitters = now_ < kStormNs && faults_.jitter != 0;
    return 10'000 + (jitters ? random_.Below(faults_.jitter) : 0);
  }

  void Connect(Node& node, uint32_t qpn, uint32_t attempts) {
    ConnectOptions options;
    options.owner = ++node.last_owner;
    options.path = PathFrom(node);
    options.service_id = kService;
    options.qpn = qpn;
    options.psn = node.engine->NewPsn();
    const absl::StatusOr<uint32_t> id = node.engine->Connect(now_, options);
    ASSERT_TRUE(id.ok());
    Endpoint& endpoint = node.endpoints[options.owner];
    endpoint.id = *id;
    endpoint.active = true;
    endpoint.qpn = qpn;
    endpoint.attempts = attempts;
    if (attempts == 0 && random_.Chance(150)) {
      Later(node, options.owner, [](World& w, Node& n, Endpoint& e) { w.Release(n, e); });
    }
  }

  // Requests the queue pair of a datagram service. In this simulation its number is the service ID.
  void Ask(Node& node) {
    DatagramOptions options;
    options.owner = ++node.last_owner;
    options.path = PathFrom(node);
    options.service_id = NewQpn();
    const absl::StatusOr<uint32_t> id = node.engine->ConnectDatagram(now_, options);
    ASSERT_TRUE(id.ok());
    Endpoint& endpoint = node.endpoints[options.owner];
    endpoint.id = *id;
    endpoint.active = true;
    endpoint.service = options.service_id;
    if (random_.Chance(100)) {
      Later(node, options.owner, [](World& w, Node& n, Endpoint& e) { w.Release(n, e); });
    }
  }

  // The node loses all state, and its programs are gone. A new program connects with the QPs that
  // the other side believes to be connected.
  void Restart(Node& node) {
    ++seen_.restarts;
    node.engine.emplace(node.config, random_.Next());
    node.endpoints.clear();
    Node& other = Other(node);
    for (auto& [owner, endpoint] : other.endpoints) {
      const Connection* connection = other.engine->Find(endpoint.id);
      endpoint.forgotten = true;
      if (endpoint.over || connection == nullptr || connection->state != State::kEstablished) {
        continue;
      }
      const uint32_t qpn = connection->remote_qpn;
      used_anew_.insert(owner);
      At(now_ + random_.Below(kThinkNs), [this, &node, qpn] { Connect(node, qpn, 5); });
    }
  }

  void Later(Node& node, uint64_t owner,
             const std::function<void(World&, Node&, Endpoint&)>& what) {
    At(now_ + random_.Below(kThinkNs), [this, &node, owner, what] {
      const auto it = node.endpoints.find(owner);
      if (it != node.endpoints.end() && !it->second.released) what(*this, node, it->second);
    });
  }

  void Release(Node& node, Endpoint& endpoint) {
    endpoint.released = true;
    endpoint.over = true;
    node.engine->Release(now_, endpoint.id);
  }

  void ReleaseAll(Node& node) {
    for (auto& [owner, endpoint] : node.endpoints) {
      if (!endpoint.released) Release(node, endpoint);
    }
  }

  void HandleEvent(Node& node, const Event& event) {
    if (event.kind == EventKind::kRequest || event.kind == EventKind::kDatagramRequest) {
      return HandleRequest(node, event);
    }
    ASSERT_TRUE(node.endpoints.contains(event.owner));
    Endpoint& endpoint = node.endpoints[event.owner];
    EXPECT_EQ(endpoint.id, event.id);
    EXPECT_FALSE(endpoint.released) << "an event for nobody";
    switch (event.kind) {
      case EventKind::kReply:
        EXPECT_TRUE(endpoint.active && !endpoint.over && !endpoint.established);
        return Later(node, event.owner, [](World& w, Node& n, Endpoint& e) { w.Finish(n, e); });
      case EventKind::kEstablished:
        EXPECT_TRUE(!endpoint.active && !endpoint.over && !endpoint.established);
        endpoint.established = true;
        return MaybeEndLater(node, event.owner);
      case EventKind::kDatagramReply:
      case EventKind::kDatagramUnreachable:
        return EndDatagram(endpoint, event);
      case EventKind::kTimewaitOver:
        EXPECT_TRUE(endpoint.over);
        return;
      default:
        return End(node, endpoint, event);
    }
  }

  void HandleRequest(Node& node, const Event& event) {
    const uint64_t owner = ++node.last_owner;
    node.engine->Adopt(event.id, owner, 0);
    Endpoint& endpoint = node.endpoints[owner];
    endpoint.id = event.id;
    if (event.kind == EventKind::kRequest) {
      return Later(node, owner, [](World& w, Node& n, Endpoint& e) { w.Decide(n, e); });
    }
    endpoint.service = std::get<SidrReq>(event.body).service_id;
    Later(node, owner, [](World& w, Node& n, Endpoint& e) { w.AnswerDatagram(n, e); });
  }

  void End(Node& node, Endpoint& endpoint, const Event& event) {
    EXPECT_FALSE(endpoint.over) << "the end came twice";
    EXPECT_EQ(endpoint.service, 0u) << "not of a datagram service";
    endpoint.over = true;
    if (event.kind == EventKind::kUnreachable) {
      EXPECT_GT(faults_.loss, kLightLoss) << "given up without need";
    } else if (event.kind == EventKind::kRejected) {
      const bool is_stale =
          std::get<Rej>(event.body).reason == static_cast<uint16_t>(RejectReason::kStaleConnection);
      if (!is_stale || endpoint.attempts == 0) return;
      ++seen_.stale;
      const uint32_t attempts = endpoint.attempts - 1;
      const uint32_t qpn = endpoint.qpn;
      At(now_ + 10 * kMs, [this, &node, qpn, attempts] { Connect(node, qpn, attempts); });
    } else {
      EXPECT_EQ(event.kind, EventKind::kDisconnected);
    }
  }

  void EndDatagram(Endpoint& endpoint, const Event& event) {
    EXPECT_TRUE(endpoint.active && endpoint.service != 0);
    EXPECT_FALSE(endpoint.over) << "the end came twice";
    endpoint.over = true;
    const SidrRep* rep = std::get_if<SidrRep>(&event.body);
    if (event.kind == EventKind::kDatagramUnreachable) {
      // Each attempt is answered only once, and programs may answer late.
      EXPECT_GT(faults_.loss, 0u) << "given up without need";
      return;
    }
    ++seen_.answered;
    EXPECT_EQ(rep->service_id, endpoint.service);
    if (rep->status == static_cast<uint8_t>(SidrStatus::kValid)) {
      EXPECT_EQ(rep->qpn, endpoint.service) << "the answer to another's question";
    }
  }

  void AnswerDatagram(Node& node, Endpoint& endpoint) {
    if (random_.Chance(100)) return Release(node, endpoint);
    DatagramAnswer answer;
    if (random_.Chance(200)) answer.status = SidrStatus::kRejected;
    answer.qpn = static_cast<uint32_t>(endpoint.service);
    EXPECT_TRUE(node.engine->AnswerDatagram(now_, endpoint.id, answer).ok());
    endpoint.over = true;
  }

  void Decide(Node& node, Endpoint& endpoint) {
    if (endpoint.over) return;
    if (random_.Chance(150)) {
      endpoint.over = node.engine->Reject(now_, endpoint.id, RejectReason::kConsumer, {}, {}).ok();
      return;
    }
    AcceptOptions options;
    options.qpn = NewQpn();
    options.psn = node.engine->NewPsn();
    EXPECT_TRUE(node.engine->Accept(now_, endpoint.id, options).ok());
  }

  void Finish(Node& node, Endpoint& endpoint) {
    if (endpoint.over) return;
    if (random_.Chance(100)) {
      endpoint.over = node.engine->Reject(now_, endpoint.id, RejectReason::kConsumer, {}, {}).ok();
      return;
    }
    EXPECT_TRUE(node.engine->Ready(now_, endpoint.id).ok());
    endpoint.established = true;
    ++seen_.connected;
    // The program's first message may arrive before the RTU.
    if (random_.Chance(300)) {
      const uint32_t qpn = node.engine->Find(endpoint.id)->remote_qpn;
      At(now_ + Delay(), [this, &node, id = endpoint.id, qpn] { Notice(Other(node), id, qpn); });
    }
    for (const auto& [owner, other] : node.endpoints) {
      if (&other == &endpoint) MaybeEndLater(node, owner);
    }
  }

  // QP `qpn`, connected to the peer's `remote_id`, has received a message, if the QP still exists.
  void Notice(Node& node, uint32_t remote_id, uint32_t qpn) {
    for (auto& [owner, endpoint] : node.endpoints) {
      const Connection* connection = node.engine->Find(endpoint.id);
      if (connection == nullptr || endpoint.released || connection->remote_id != remote_id ||
          connection->local_qpn != qpn) {
        continue;
      }
      const bool is_open = !endpoint.over && !endpoint.established;
      const absl::Status status = node.engine->NoticeEstablished(now_, endpoint.id);
      EXPECT_EQ(status.ok(), is_open) << status;
      seen_.noticed += status.ok() ? 1 : 0;
      return;
    }
  }

  void MaybeEndLater(Node& node, uint64_t owner) {
    if (!random_.Chance(400)) return;
    const bool politely = random_.Chance(700);
    Later(node, owner, [politely](World& w, Node& n, Endpoint& e) {
      if (!politely) return w.Release(n, e);
      if (e.over) return;
      EXPECT_TRUE(n.engine->Disconnect(w.now_, e.id).ok());
    });
  }

  // A connection that is open on one side is open on the other, with the same numbers.
  void CheckBothSides() {
    for (Node& node : nodes_) {
      for (const auto& [owner, endpoint] : node.endpoints) {
        const Connection* mine = node.engine->Find(endpoint.id);
        if (endpoint.over || endpoint.released) continue;
        EXPECT_EQ(endpoint.service, 0u) << "no answer, and no end";
        ASSERT_NE(mine, nullptr) << "gone without a word";
        EXPECT_EQ(mine->state, State::kEstablished) << "stuck, active " << endpoint.active;
        if (endpoint.forgotten && Other(node).engine->Find(mine->remote_id) == nullptr) {
          // Neither side can detect this until the QP is reused.
          EXPECT_TRUE(!used_anew_.contains(owner) || faults_.loss > kLightLoss) << "stale";
          continue;
        }
        const Connection* theirs = Other(node).engine->Find(mine->remote_id);
        ASSERT_NE(theirs, nullptr) << "half open";
        EXPECT_EQ(theirs->state, State::kEstablished);
        EXPECT_EQ(theirs->remote_id, mine->local_id);
        EXPECT_EQ(theirs->remote_qpn, mine->local_qpn);
        EXPECT_EQ(theirs->remote_psn, mine->local_psn);
      }
    }
  }

  void Carry(Node& from) {
    for (const Outgoing& out : from.engine->TakeOutgoing()) {
      const bool storm = now_ < kStormNs;
      if (storm && random_.Chance(faults_.loss)) continue;
      const int copies = storm && random_.Chance(faults_.doubling) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        At(now_ + Delay(), [this, &from, out] {
          roce::Path reply;
          reply.src_gid = out.path.dst_gid;
          reply.dst_gid = out.path.src_gid;
          Other(from).engine->HandleMad(now_, reply, out.mad);
        });
      }
    }
  }

  void Settle() {
    for (Node& node : nodes_) {
      for (const Event& event : node.engine->TakeEvents()) HandleEvent(node, event);
      Carry(node);
    }
  }

  void RunUntil(TimeNs end) {
    Settle();
    while (true) {
      TimeNs next = agenda_.empty() ? roce::kNever : agenda_.begin()->first;
      for (Node& node : nodes_) next = std::min(next, node.engine->NextTimeout());
      if (next >= end) break;
      now_ = std::max(now_, next);
      for (Node& node : nodes_) node.engine->HandleTimeout(now_);
      Settle();
      while (!agenda_.empty() && agenda_.begin()->first <= now_) {
        const std::function<void()> what = std::move(agenda_.begin()->second);
        agenda_.erase(agenda_.begin());
        what();
        Settle();
      }
    }
    now_ = end;
  }

  Random random_;
  Seen& seen_;
  Faults faults_;
  std::set<uint64_t> used_anew_;  // owners of connections whose peer's QP is reused
  TimeNs now_ = 1;
  std::deque<Node> nodes_;
  std::multimap<TimeNs, std::function<void()>> agenda_;
};

TEST(CmSim, NoConnectionIsStuckOrHalfOpen) {
  const sim::Seeds seeds(10'000);
  Seen seen;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, seen);
    world.Run();
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(seen.connected, seeds.count / 2) << "too few connections for a test";
  if (!seeds.AreMany()) return;
  for (const uint64_t often : {seen.noticed, seen.answered, seen.restarts, seen.stale}) {
    EXPECT_GT(often, seeds.count / 50);
  }
}

}  // namespace
}  // namespace roci::control::cm
