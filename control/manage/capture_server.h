// Captures: frames from the lcores' rings, as pcapng.
#pragma once

#include <cstddef>

#include "control/manage/stream_server.h"

namespace roci::control {

// A capture also ends after the requested number of frames. Its last block has the statistics.
class CaptureServer : public StreamServer {
 public:
  static constexpr size_t kMaxCaptures = 16;

  using StreamServer::StreamServer;

  // Starts capturing. NotFound: no such device; ResourceExhausted: too many captures, or no memory;
  // InvalidArgument: see DecodeCapture.
  absl::StatusOr<std::shared_ptr<Stream>> Prepare(const nlohmann::json& request) const override;
};

}  // namespace roci::control
