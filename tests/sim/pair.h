// Two nodes, each with one queue pair, joined by two faulty links, and the clock that drives them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "roce/frame.h"
#include "roce/qp.h"
#include "tests/sim/arena.h"
#include "tests/sim/connection.h"
#include "tests/sim/link.h"
#include "tests/sim/protocol_watch.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

class Pair {
 public:
  Pair(const Connection& connection, Arena* left, Arena* right);

  SimHost& host(int node) { return nodes_[static_cast<size_t>(node)].host; }
  roce::Qp<SimHost>& qp(int node) { return nodes_[static_cast<size_t>(node)].qp; }
  Arena& arena(int node) { return *nodes_[static_cast<size_t>(node)].arena; }
  roce::TimeNs now() const { return now_; }

  // Sets the faults of both directions.
  void SetFaults(const LinkFaults& faults);
  // The longest time that a sync for a FLUSH for persistence takes.
  void set_longest_sync_ns(roce::TimeNs ns) { longest_sync_ns_ = ns; }
  // `tamper` may change each packet that `node` receives. False: the packet is lost.
  void Tamper(int node, std::function<bool(roce::Packet&)> tamper);
  // The program moves its queue pair to ERR.
  void Fail(int node, Random& random);
  // The program rang the doorbell.
  void Work(int node, Random& random);
  // Advances the clock to the next event and handles it. False: no event is pending, or none before
  // `until`. The clock is then at `until`, unless that is kNever.
  bool Step(Random& random, roce::TimeNs until);
  uint64_t frames_dropped() const { return dropped_; }
  // Frames of `node` that the link has lost.
  uint64_t lost(int node) const { return nodes_[static_cast<size_t>(node)].out.lost(); }
  // The first protocol violation, if any.
  const std::optional<std::string>& wrong() const { return watch_.wrong(); }

 private:
  struct Kept {
    bool is_request;
    roce::Psn turn;
    std::vector<std::byte> frame;
  };
  struct Node {
    Node(const roce::QpConfig& config, const Connection& connection, Arena* memory);
    Arena* arena;
    SimHost host;
    std::vector<roce::SendRecord> records;
    std::vector<roce::ResponderResource> resources;
    roce::CongestionPort port;
    roce::Dcqcn congestion;
    roce::ReorderState reorder;
    roce::Qp<SimHost> qp;
    roce::FrameTemplate frame;
    Link out;
    bool waits_for_link = false;
    roce::TimeNs sync_end = roce::kNever;
    std::function<bool(roce::Packet&)> tamper;
    std::vector<Kept> kept;  // early packets
  };

  void Connect(int node, const Connection& connection);
  void Deliver(int to, Random& random);
  roce::EarlyAction Handle(int to);
  void Keep(int to, const std::vector<std::byte>& frame);
  void OfferKept(int to);
  std::optional<std::vector<std::byte>> TakeDue(Node& self);
  void DropKept(int node);
  void Transmit(int node, Random& random);

  std::array<Node, 2> nodes_;
  ProtocolWatch watch_;
  roce::TimeNs now_ = 1;
  uint64_t dropped_ = 0;
  roce::TimeNs longest_sync_ns_ = 1000;
  roce::Packet packet_;
  std::vector<std::byte> buffer_;
};

}  // namespace roci::sim
