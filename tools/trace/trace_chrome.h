// Writes a trace in the JSON trace event format of Chrome and Perfetto: devices as processes, queue
// pairs as threads; work requests from post to completion; everything else as instants.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "dataplane/types/trace_record.h"
#include "tools/trace/trace_text.h"

namespace roci::tools {

// The array of events is complete after Finish; viewers also read one without its end.
class TraceChrome {
 public:
  // Most posts of a queue that wait for their completion; older ones are forgotten.
  static constexpr size_t kMostOpen = 65536;

  explicit TraceChrome(TraceText& text) : text_(text) {}

  void Append(const dataplane::TraceRecord& record, std::string& out);
  void Finish(std::string& out);

 private:
  struct Open {
    uint64_t wr_id;
    uint64_t id;
    bool is_signaled;
    std::string name;
  };
  using Queue = std::tuple<uint8_t, uint32_t, bool>;  // device, queue pair, receives

  void NameThread(const dataplane::TraceRecord& record, std::string& out);
  void Begin(std::string& out);
  void AppendEvent(const dataplane::TraceRecord& record, std::string_view phase,
                   std::string_view name, std::string_view more, std::string& out);
  void AppendPost(const dataplane::TraceRecord& record, std::string& out);
  void AppendCompletion(const dataplane::TraceRecord& record, std::string& out);
  // Ends the first `count` requests of `open`.
  void End(const dataplane::TraceRecord& record, std::deque<Open>& open, size_t count,
           std::string& out);
  void EndAll(const dataplane::TraceRecord& record, std::string& out);

  TraceText& text_;
  bool is_begun_ = false;
  uint64_t last_id_ = 0;
  std::map<std::pair<uint8_t, uint32_t>, bool> named_;
  std::map<Queue, std::deque<Open>> open_;
};

}  // namespace roci::tools
