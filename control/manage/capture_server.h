// Running captures: writes frames from the lcores' rings as pcapng to management connections.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only; destroyed before the devices. A capture ends when its reader shuts down its
// sending direction (it then gets the remaining frames and the statistics), when the reader
// disconnects, or after the requested number of frames.
class CaptureServer {
 public:
  static constexpr size_t kMaxCaptures = 16;
  // Most bytes that wait for a slow reader. Further frames stay on the lcores' rings, and are
  // dropped when the rings are full.
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  explicit CaptureServer(const Services& services) : services_(services) {}
  ~CaptureServer();
  CaptureServer(const CaptureServer&) = delete;
  CaptureServer& operator=(const CaptureServer&) = delete;

  // One capture: its tap and, after Start, its reader. The destructor ends it.
  class Capture;

  // Starts capturing. NotFound: no such device; ResourceExhausted: too many captures, or no memory;
  // InvalidArgument: see DecodeCapture.
  absl::StatusOr<std::shared_ptr<Capture>> Prepare(const nlohmann::json& request) const;
  void Start(std::shared_ptr<Capture> capture, UniqueFd socket);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 private:
  void Handle(uint64_t id, uint32_t events);
  // False: the reader is gone, or has received everything.
  bool Flush(Capture& capture);
  void Close(uint64_t id);

  const Services& services_;
  uint64_t last_id_ = 0;
  roce::TimeNs next_drain_ = 0;
  std::map<uint64_t, std::shared_ptr<Capture>> captures_;
};

}  // namespace roci::control
