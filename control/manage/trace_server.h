// Traces: records from the lcores' rings, as they are.
#pragma once

#include <cstddef>

#include "control/manage/stream_server.h"
#include "dataplane/types/trace_record.h"

namespace roci::control {

// A request has "targets": [{"device": NAME, "qps": [number...]}...] (no "qps": all queue pairs of
// the device) and "kinds": [NAME...] (of kTraceKindNames; missing: all). The stream is a
// TraceStreamHeader and TraceRecords; the records name devices by their place in "targets".
class TraceServer : public StreamServer {
 public:
  static constexpr size_t kMaxTraces = 4;
  static constexpr size_t kMaxTargets = 8;

  using StreamServer::StreamServer;
  ~TraceServer() override { FinishAll(); }

  // Starts tracing. NotFound: no such device; AlreadyExists: a device is being traced;
  // ResourceExhausted: kMaxTraces; InvalidArgument: a wrong request.
  absl::StatusOr<std::shared_ptr<Stream>> Prepare(const nlohmann::json& request) const override;
};

}  // namespace roci::control
