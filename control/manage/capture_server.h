// Captures under way: frames of the lcores become pcapng on the connections of those who asked.
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

// Control thread only; gone before the devices. A capture ends when its reader closes its sending
// direction (then it gets the rest and the statistics) or goes, or when it has as many frames as
// were asked for.
class CaptureServer {
 public:
  static constexpr size_t kMaxCaptures = 16;
  // What may wait for a slow reader; from there on frames stay on the lcores' rings, and are
  // dropped when these are full.
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  explicit CaptureServer(const Services& services) : services_(services) {}
  ~CaptureServer();
  CaptureServer(const CaptureServer&) = delete;
  CaptureServer& operator=(const CaptureServer&) = delete;

  // One capture: its frames, and once Start has given it one, its reader. Ends with its destructor.
  class Capture;

  // Begins to take frames. NotFound: no such device; ResourceExhausted: too many captures, or no
  // memory for one; InvalidArgument.
  absl::StatusOr<std::shared_ptr<Capture>> Prepare(const nlohmann::json& request) const;
  void Start(std::shared_ptr<Capture> capture, UniqueFd socket);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 private:
  void Handle(uint64_t id, uint32_t events);
  // False: the reader is gone, or has everything.
  bool Flush(Capture& capture);
  void Close(uint64_t id);

  const Services& services_;
  uint64_t last_id_ = 0;
  roce::TimeNs next_drain_ = 0;
  std::map<uint64_t, std::shared_ptr<Capture>> captures_;
};

}  // namespace roci::control
