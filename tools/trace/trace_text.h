// Prints trace records: a line of text each, or a JSON object.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/types/trace_record.h"
#include "roce/types.h"

namespace roci::tools {

// Appends the fields of a record to a string, as text " name=value" or as JSON `,"name":value`.
class TraceFields {
 public:
  TraceFields(bool json, std::string& out) : json_(json), out_(out) {}
  // Text has only the value, which needs no escapes.
  void Word(std::string_view name, std::string_view value);
  void Named(std::string_view name, std::string_view value);
  void Number(std::string_view name, uint64_t value);
  // Text has it in hexadecimal.
  void Hex(std::string_view name, uint64_t value);
  // Text has only the name.
  void Flag(std::string_view name);
  bool is_json() const { return json_; }

 private:
  const bool json_;
  std::string& out_;
};

// Remembers what queue pairs have sent, to tell repeats. One for a trace; records in their order.
class TraceText {
 public:
  // `devices`: names, by TraceRecord::device. `start_ns`: CLOCK_MONOTONIC of time 0.
  TraceText(std::vector<std::string> devices, uint64_t start_ns)
      : devices_(std::move(devices)), start_ns_(start_ns) {}

  // Appends one line with its newline.
  void AppendLine(const dataplane::TraceRecord& record, std::string& out);
  void AppendJson(const dataplane::TraceRecord& record, std::string& out);
  // The fields after time, device and queue pair. To be called once for each record.
  void AppendFields(const dataplane::TraceRecord& record, TraceFields& fields);

  // Nanoseconds since the start; 0 for earlier ones, of a round that had begun before.
  uint64_t TimeOf(const dataplane::TraceRecord& record) const {
    return record.time_ns > start_ns_ ? record.time_ns - start_ns_ : 0;
  }
  const std::string& DeviceOf(const dataplane::TraceRecord& record) const;
  const std::vector<std::string>& devices() const { return devices_; }

 private:
  void AppendPacket(const dataplane::TraceRecord& record, TraceFields& fields);
  bool IsRepeat(const dataplane::TraceRecord& record, roce::Psn psn);

  const std::vector<std::string> devices_;
  const uint64_t start_ns_;
  // The PSN behind the last new request, by device and queue pair.
  std::map<std::pair<uint8_t, uint32_t>, roce::Psn> next_psn_;
};

void AppendAll(std::string& out, std::initializer_list<std::string_view> parts);

// "SEND", "RDMA_WRITE": the operation of a post or completion.
std::string TracePostName(const dataplane::TracePost& post);
// "ACK", "RC_SEND_ONLY"
std::string_view TracePacketName(const dataplane::TracePacket& packet);
std::string TraceCompletionName(const dataplane::TraceCompletion& completion);

}  // namespace roci::tools
