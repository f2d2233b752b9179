// The request packets that a send queue must produce: its posted work requests in the PSN space
// (IBTA vol 1, 9.7.2), computed only from the posted requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "roce/packet.h"
#include "roce/work.h"
#include "tests/sim/connection.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

// How many PSNs behind the connection's first one. Positions do not wrap.
using Position = int64_t;

struct ExpectedRequest {
  Position begin, end;  // equal: done on this side, without a packet
  bool is_read;         // takes the PSNs of its responses
  bool is_atomic;
  bool is_answered;  // by a response of its own: READ, atomics, FLUSH, ATOMIC WRITE
  bool fence;
};

class ExpectedRequests {
 public:
  // The requests that `host`, node `node`, posts.
  ExpectedRequests(const Connection& connection, int node, const SimHost* host);

  // The position of `psn` that is nearest to `reference`.
  Position Locate(roce::Psn psn, Position reference) const;
  // The request that takes `position`; null: none was posted. Valid until the next call.
  const ExpectedRequest* Find(Position position);
  const ExpectedRequest& At(size_t slot) { return Extend(), requests_[slot]; }
  size_t SlotOf(const ExpectedRequest* request) const {
    return static_cast<size_t>(request - requests_.data());
  }
  // Messages that are complete before `position`: the message sequence number there (9.7.7.1).
  uint32_t MessagesBefore(Position position);
  // What is wrong with the packet at `position`, which belongs to `request`, if anything.
  std::optional<std::string> Compare(const ExpectedRequest& request, Position position,
                                     const roce::Packet& packet) const;
  uint32_t mtu_bytes() const { return mtu_bytes_; }
  // Bytes of READ response `position`.
  uint32_t ResponseBytes(const ExpectedRequest& request, Position position) const;
  // Whether the packet at `position` takes a receive.
  bool TakesReceive(const ExpectedRequest& request, Position position) const;

 private:
  void Extend();
  const roce::SendWqe& WqeOf(const ExpectedRequest& request) const;

  const SimHost* host_;
  uint32_t first_psn_;
  uint32_t mtu_bytes_;
  uint8_t transport_bits_;
  std::vector<ExpectedRequest> requests_;  // indexed by slot
  std::vector<Position> message_ends_;     // of those that have packets
};

}  // namespace roci::sim
