#include "tests/interop/rpcrdma/server_counters.h"

#include <utility>

namespace rpcrdma {
namespace {

void AddLine(std::string& text, const std::string& name, const Count& count) {
  if (count.value() != 0) text += name + ": " + std::to_string(count.value()) + "\n";
}

template <class Reason, size_t kCount>
void AddLines(std::string& text, const char* what, const std::array<Count, kCount>& counts) {
  for (size_t i = 0; i < kCount; ++i) {
    AddLine(text, std::string(what) + ", " + Name(static_cast<Reason>(i)), counts[i]);
  }
}

}  // namespace

const char* Name(CloseReason reason) {
  static constexpr const char* kNames[kCloseReasons] = {
      "peer disconnected", "work request failed", "post failed", "dropped by the service", "idle",
      "stalled",           "server stopped",
  };
  return kNames[static_cast<size_t>(reason)];
}

std::string ServerCounters::Text() const {
  const std::pair<const char*, const Count*> single[] = {
      {"connections", &connections},
      {"refused connections", &refused_connections},
      {"calls", &calls},
      {"replies", &replies},
      {"RDMA READs", &reads},
      {"bytes read", &read_bytes},
      {"RDMA WRITEs", &writes},
      {"bytes written", &write_bytes},
      {"replies with a Write chunk", &write_chunk_replies},
      {"replies with a Reply chunk", &reply_chunk_replies},
      {"SENDs with invalidate", &invalidations},
      {"replies pulled up", &pulled_up},
      {"ERR_VERS sent", &version_errors},
      {"ERR_CHUNK sent", &chunk_errors},
      {"messages shorter than a header", &short_messages},
      {"messages ignored", &ignored_messages},
      {"wrong XIDs", &wrong_xids},
      {"Read chunks of a peer that permits no READ", &unreadable_chunks},
      {"batches longer than the send queue", &oversized_batches},
      {"waits for a buffer", &waits_for_buffers},
      {"waits for the send queue", &waits_for_send_queue},
  };
  std::string text;
  for (const auto& [name, count] : single) AddLine(text, name, *count);
  AddLines<HeaderFault>(text, "header rejected", header_faults);
  AddLines<CallFault>(text, "call rejected", call_faults);
  AddLines<ReplyFault>(text, "reply not delivered", reply_faults);
  AddLines<CloseReason>(text, "connections closed", closed);
  return text;
}

}  // namespace rpcrdma
