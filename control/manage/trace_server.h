// Running traces: passes records from the lcores' rings to management connections.
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
#include "dataplane/types/trace_record.h"

namespace roci::control {

// Control thread only; destroyed before the devices. A request has "targets": [{"device": NAME,
// "qps": [number...]}...] (no "qps": all queue pairs of the device) and "kinds": [NAME...] (of
// kTraceKindNames; missing: all). The stream is a TraceStreamHeader and TraceRecords; the records
// name devices by their place in "targets". A trace ends as a capture does (capture_server.h).
class TraceServer {
 public:
  static constexpr size_t kMaxTraces = 4;
  static constexpr size_t kMaxTargets = 8;
  // While so many bytes wait for a slow reader, records stay on the lcores' rings, and are lost
  // when the rings are full.
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  explicit TraceServer(const Services& services) : services_(services) {}
  ~TraceServer();
  TraceServer(const TraceServer&) = delete;
  TraceServer& operator=(const TraceServer&) = delete;

  // One trace: its rings and, after Start, its reader. The destructor ends it.
  class Trace;

  // Starts tracing. NotFound: no such device; AlreadyExists: a device is being traced;
  // ResourceExhausted: kMaxTraces; InvalidArgument: a wrong request.
  absl::StatusOr<std::shared_ptr<Trace>> Prepare(const nlohmann::json& request) const;
  void Start(std::shared_ptr<Trace> trace, UniqueFd socket);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 private:
  void Handle(uint64_t id, uint32_t events);
  // False: the reader is gone, or has received everything.
  bool Flush(Trace& trace);
  void Close(uint64_t id);

  const Services& services_;
  uint64_t last_id_ = 0;
  roce::TimeNs next_drain_ = 0;
  std::map<uint64_t, std::shared_ptr<Trace>> traces_;
};

}  // namespace roci::control
