// Checks that neither side of a queue pair holds up the other: READ responses and own requests that
// can be sent at the same moment take turns by bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "roce/frame.h"
#include "roce/packet.h"
#include "roce/types.h"

namespace roci::sim {

class TurnsWatch {
 public:
  explicit TurnsWatch(uint32_t mtu_bytes) : most_(2 * (mtu_bytes + kPerPacket)) {}

  // A packet of this node. All packets between two calls of NoteQuiet could be sent at once: no
  // input came between them. So a side that sends one later was ready for as long as the other
  // sent.
  std::optional<std::string> NoteSent(const roce::Packet& packet) {
    const auto payload = static_cast<uint32_t>(packet.payload.size());
    if (packet.info->is_request) {
      if (response_bytes_ > most_)
        return "a request waited for " + std::to_string(response_bytes_) + " bytes of responses";
      response_bytes_ = 0;
      request_bytes_ += payload + kPerPacket;
    } else if (payload != 0 && packet.info->operation == roce::Operation::kReadResponse) {
      if (request_bytes_ > most_)
        return "a response waited for " + std::to_string(request_bytes_) + " bytes of requests";
      request_bytes_ = 0;
      response_bytes_ += payload + kPerPacket;
    }
    return std::nullopt;
  }
  // The node has sent all that it may send now.
  void NoteQuiet() { response_bytes_ = request_bytes_ = 0; }

 private:
  static constexpr uint32_t kPerPacket = 64;  // headers count, too
  const uint32_t most_;
  uint32_t response_bytes_ = 0;  // since the last request
  uint32_t request_bytes_ = 0;   // since the last response
};

}  // namespace roci::sim
