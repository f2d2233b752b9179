// Two communication managers with random programs over a network that loses, doubles, reorders and
// delays messages: no connection may get stuck or stay open on one side only.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "control/cm/engine.h"
#include "tests/sim/random.h"
#include "tests/sim/seeded_runs.h"

namespace roci::control::cm {
namespace {

using roce::TimeNs;
using sim::Random;

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kStormNs = 150 * kMs;  // faults until then: longer than all retries take
constexpr TimeNs kThinkNs = 20 * kMs;   // what a program takes at most
// Below this many lost messages of a thousand no answer may fail to arrive in 16 attempts.
constexpr uint32_t kLightLoss = 200;
constexpr TimeNs kEndNs = 4'000 * kMs;
constexpr uint64_t kService = 0x01061234;

roce::Gid Address(uint8_t node) { return roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, node}}); }

struct Faults {
  uint32_t loss = 0;  // permille
  uint32_t doubling = 0;
  TimeNs jitter = 0;
};

// What a program knows of a connection of its own.
struct Endpoint {
  uint32_t id = 0;
  bool active = false;
  bool established = false;
  bool over = false;
  bool released = false;
};

struct Node {
  Node(uint8_t number, uint64_t seed, const EngineConfig& config)
      : address(Address(number)), engine(config, seed) {}
  roce::Gid address;
  Engine engine;
  uint64_t last_owner = 0;
  std::map<uint64_t, Endpoint> endpoints;  // by owner
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
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
      At(random_.Below(30 * kMs), [this, i] { Connect(nodes_[i & 1]); });
    }
    RunUntil(kEndNs);
    CheckBothSides();
    for (Node& node : nodes_) ReleaseAll(node);
    RunUntil(2 * kEndNs);
    for (Node& node : nodes_) EXPECT_EQ(node.engine.size(), 0u) << "a connection is stuck";
  }

  uint64_t connected = 0;

 private:
  void At(TimeNs when, std::function<void()> what) { agenda_.emplace(when, std::move(what)); }
  Node& Other(const Node& node) { return &node == &nodes_[0] ? nodes_[1] : nodes_[0]; }

  void Connect(Node& node) {
    ConnectOptions options;
    options.owner = ++node.last_owner;
    options.path.src_gid = node.address;
    options.path.dst_gid = Other(node).address;
    options.service_id = kService;
    options.qpn = 0x100 + static_cast<uint32_t>(random_.Below(1 << 20));
    options.psn = node.engine.NewPsn();
    const absl::StatusOr<uint32_t> id = node.engine.Connect(now_, options);
    ASSERT_TRUE(id.ok());
    node.endpoints[options.owner] = {*id, true};
    if (random_.Chance(150))
      Later(node, options.owner, [](World& w, Node& n, Endpoint& e) { w.Release(n, e); });
  }

  void Later(Node& node, uint64_t owner, std::function<void(World&, Node&, Endpoint&)> what) {
    At(now_ + random_.Below(kThinkNs), [this, &node, owner, what] {
      Endpoint& endpoint = node.endpoints[owner];
      if (!endpoint.released) what(*this, node, endpoint);
    });
  }

  void Release(Node& node, Endpoint& endpoint) {
    endpoint.released = true;
    endpoint.over = true;
    node.engine.Release(now_, endpoint.id);
  }

  void ReleaseAll(Node& node) {
    for (auto& [owner, endpoint] : node.endpoints) {
      if (!endpoint.released) Release(node, endpoint);
    }
  }

  void HandleEvent(Node& node, const Event& event) {
    if (event.kind == EventKind::kRequest) {
      const uint64_t owner = ++node.last_owner;
      node.engine.Adopt(event.id, owner, 0);
      node.endpoints[owner] = {event.id, false};
      return Later(node, owner, [](World& w, Node& n, Endpoint& e) { w.Decide(n, e); });
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
      case EventKind::kUnreachable:
        EXPECT_GT(faults_.loss, kLightLoss) << "given up without need";
        [[fallthrough]];
      case EventKind::kRejected:
      case EventKind::kDisconnected:
        EXPECT_FALSE(endpoint.over) << "the end came twice";
        endpoint.over = true;
        return;
      default:
        EXPECT_EQ(event.kind, EventKind::kTimewaitOver);
        EXPECT_TRUE(endpoint.over);
    }
  }

  void Decide(Node& node, Endpoint& endpoint) {
    if (endpoint.over) return;
    if (random_.Chance(150)) {
      endpoint.over = node.engine.Reject(now_, endpoint.id, RejectReason::kConsumer, {}, {}).ok();
      return;
    }
    AcceptOptions options;
    options.qpn = 0x100 + static_cast<uint32_t>(random_.Below(1 << 20));
    options.psn = node.engine.NewPsn();
    EXPECT_TRUE(node.engine.Accept(now_, endpoint.id, options).ok());
  }

  void Finish(Node& node, Endpoint& endpoint) {
    if (endpoint.over) return;
    if (random_.Chance(100)) {
      endpoint.over = node.engine.Reject(now_, endpoint.id, RejectReason::kConsumer, {}, {}).ok();
      return;
    }
    EXPECT_TRUE(node.engine.Ready(now_, endpoint.id).ok());
    endpoint.established = true;
    ++connected;
    for (const auto& [owner, other] : node.endpoints) {
      if (&other == &endpoint) MaybeEndLater(node, owner);
    }
  }

  void MaybeEndLater(Node& node, uint64_t owner) {
    if (!random_.Chance(400)) return;
    const bool politely = random_.Chance(700);
    Later(node, owner, [politely](World& w, Node& n, Endpoint& e) {
      if (!politely) return w.Release(n, e);
      if (e.over) return;
      EXPECT_TRUE(n.engine.Disconnect(w.now_, e.id).ok());
    });
  }

  // What one side believes to be open is open on the other, with the same numbers.
  void CheckBothSides() {
    for (Node& node : nodes_) {
      for (const auto& [owner, endpoint] : node.endpoints) {
        const Connection* mine = node.engine.Find(endpoint.id);
        if (endpoint.over || endpoint.released) continue;
        ASSERT_NE(mine, nullptr) << "gone without a word";
        EXPECT_EQ(mine->state, State::kEstablished) << "stuck, active " << endpoint.active;
        const Connection* theirs = Other(node).engine.Find(mine->remote_id);
        ASSERT_NE(theirs, nullptr) << "half open";
        EXPECT_EQ(theirs->state, State::kEstablished);
        EXPECT_EQ(theirs->remote_id, mine->local_id);
        EXPECT_EQ(theirs->remote_qpn, mine->local_qpn);
        EXPECT_EQ(theirs->remote_psn, mine->local_psn);
      }
    }
  }

  void Carry(Node& from) {
    for (const Outgoing& out : from.engine.TakeOutgoing()) {
      const bool storm = now_ < kStormNs;
      if (storm && random_.Chance(faults_.loss)) continue;
      const int copies = storm && random_.Chance(faults_.doubling) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        const TimeNs delay = 10'000 + (storm && faults_.jitter ? random_.Below(faults_.jitter) : 0);
        At(now_ + delay, [this, &from, out] {
          roce::Path reply;
          reply.src_gid = out.path.dst_gid;
          reply.dst_gid = out.path.src_gid;
          Other(from).engine.HandleMad(now_, reply, out.mad);
        });
      }
    }
  }

  void Settle() {
    for (Node& node : nodes_) {
      for (const Event& event : node.engine.TakeEvents()) HandleEvent(node, event);
      Carry(node);
    }
  }

  void RunUntil(TimeNs end) {
    Settle();
    while (true) {
      TimeNs next = agenda_.empty() ? roce::kNever : agenda_.begin()->first;
      for (Node& node : nodes_) next = std::min(next, node.engine.NextTimeout());
      if (next >= end) break;
      now_ = std::max(now_, next);
      for (Node& node : nodes_) node.engine.HandleTimeout(now_);
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
  Faults faults_;
  TimeNs now_ = 1;
  std::deque<Node> nodes_;
  std::multimap<TimeNs, std::function<void()>> agenda_;
};

TEST(CmSim, NoConnectionIsStuckOrHalfOpen) {
  const sim::Seeds seeds(10'000);
  uint64_t connected = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.Run();
    connected += world.connected;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(connected, seeds.count / 2) << "too few connections for a test";
}

}  // namespace
}  // namespace roci::control::cm
