// Checks all frames of a simulated connection against the requirements of IBTA vol 1 for requester
// and responder, in addition to the test's oracle.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "roce/qp.h"
#include "tests/sim/connection.h"
#include "tests/sim/expected_requests.h"
#include "tests/sim/rate_watch.h"
#include "tests/sim/requester_watch.h"
#include "tests/sim/responder_watch.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/turns_watch.h"

namespace roci::sim {

class ProtocolWatch {
 public:
  ProtocolWatch(const Connection& connection, std::array<const SimHost*, 2> hosts)
      : sides_{Side(connection, 0, hosts), Side(connection, 1, hosts)},
        holds_back_(connection.controls_congestion) {
    for (size_t node = 0; node < 2; ++node) {
      const bool gives_credits =
          connection.types[node] == roce::QpType::kRc && !(node == 1 && connection.shares_receives);
      sides_[node].ConnectTo(connection, sides_[1 - node], gives_credits ? hosts[node] : nullptr,
                             connection.repeats_selectively[node]);
    }
  }
  ProtocolWatch(const ProtocolWatch&) = delete;
  ProtocolWatch& operator=(const ProtocolWatch&) = delete;

  // `qp` of `node` sends a frame, which the link may still lose or damage.
  void NoteSent(int node, roce::TimeNs now, std::span<const std::byte> frame,
                const roce::Qp<SimHost>& qp);
  // `qp` of `node`, which was in state `before`, has handled `packet`.
  void NoteHandled(int node, roce::TimeNs now, const roce::Packet& packet, roce::QpState before,
                   const roce::Qp<SimHost>& qp);
  // `node` keeps the early `packet` (`change` 1), does no longer (-1), or kept one with its
  // PSN already (0).
  void NoteKept(int node, roce::TimeNs now, const roce::Packet& packet, int change) {
    if (packet.info->is_request) return SideOf(node).responder->NoteKept(packet, change);
    SideOf(node).requester.NoteKept(now, packet, change);
  }
  // `node`'s program has rung the doorbell.
  void NoteWork(int node) { SideOf(node).responder->NoteWork(); }
  // `node` has sent all that it may send now.
  void NoteQuiet(int node, roce::TimeNs now, const roce::Qp<SimHost>& qp);

  // The first violation, if any.
  const std::optional<std::string>& wrong() const { return wrong_; }

 private:
  struct Side {
    Side(const Connection& connection, int node, std::array<const SimHost*, 2> hosts)
        : requests(connection, node, hosts[static_cast<size_t>(node)]),
          requester(connection, &requests, hosts[static_cast<size_t>(node)],
                    connection.repeats_selectively[static_cast<size_t>(node)]),
          rate(connection.rate_limit_kbps, connection.rate_burst_bytes,
               connection.ipv6 ? RateWatch::kIpv6Excess : 0),
          turns(uint32_t{128} << static_cast<uint32_t>(connection.mtu)) {}
    void ConnectTo(const Connection& connection, Side& peer, const SimHost* receiver,
                   bool selective) {
      responder.emplace(connection, &peer.requests, receiver, selective);
    }
    ExpectedRequests requests;
    RequesterWatch requester;
    RateWatch rate;
    TurnsWatch turns;
    std::optional<ResponderWatch> responder;
    roce::TimeNs last_cnp = 0;
  };
  Side& SideOf(int node) { return sides_[static_cast<size_t>(node)]; }
  std::optional<std::string> NoteCnp(int node, roce::TimeNs now);
  void Note(int node, roce::TimeNs now, std::optional<std::string> wrong);

  std::array<Side, 2> sides_;
  const bool holds_back_;  // congestion control may delay responses
  roce::Packet packet_;
  std::optional<std::string> wrong_;
};

}  // namespace roci::sim
