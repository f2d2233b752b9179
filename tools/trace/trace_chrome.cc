#include "tools/trace/trace_chrome.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "control/manage/manage_protocol.h"
#include "roce/qp_attributes.h"
#include "verbs_provider/abi/rings.h"

namespace roci::tools {

using dataplane::TraceKind;
using dataplane::TraceRecord;

namespace {

bool EndsRequests(const dataplane::TraceState& state) {
  return state.to == dataplane::TraceState::kDestroyed ||
         state.to == static_cast<uint8_t>(roce::QpState::kReset);
}

}  // namespace

void TraceChrome::Begin(std::string& out) {
  out += is_begun_ ? ",\n" : "[\n";
  is_begun_ = true;
}

void TraceChrome::NameThread(const TraceRecord& record, std::string& out) {
  if (!named_.try_emplace({record.device, record.qpn}, true).second) return;
  Begin(out);
  const std::string pid = std::to_string(record.device);
  const std::string tid = std::to_string(record.qpn);
  AppendAll(out, {R"({"ph":"M","name":"process_name","pid":)", pid, R"(,"args":{"name":")",
                  text_.DeviceOf(record), R"("}})"});
  Begin(out);
  AppendAll(out, {R"({"ph":"M","name":"thread_name","pid":)", pid, R"(,"tid":)", tid,
                  R"(,"args":{"name":"queue pair )", tid, R"("}})"});
}

// `more`: members of the event, each with a comma before it.
void TraceChrome::AppendEvent(const TraceRecord& record, std::string_view phase,
                              std::string_view name, std::string_view more, std::string& out) {
  Begin(out);
  const uint64_t time_ns = text_.TimeOf(record);
  char microseconds[32];
  std::snprintf(microseconds, sizeof(microseconds), "%" PRIu64 ".%03" PRIu64, time_ns / 1000,
                time_ns % 1000);
  AppendAll(out,
            {R"({"ph":")", phase, R"(","name":")", name, R"(","ts":)", microseconds, R"(,"pid":)",
             std::to_string(record.device), R"(,"tid":)", std::to_string(record.qpn), more, "}"});
}

void TraceChrome::AppendPost(const TraceRecord& record, std::string& out) {
  const bool is_receive = record.post.opcode == dataplane::TracePost::kReceive;
  std::deque<Open>& open = open_[{record.device, record.qpn, is_receive}];
  if (open.size() == kMostOpen) open.pop_front();
  const bool is_signaled = (record.post.flags & ROCI_ABI_SEND_SIGNALED) != 0;
  open.push_back({record.post.wr_id, ++last_id_, is_signaled, TracePostName(record.post)});
  const std::string more = absl::StrCat(R"(,"cat":"work request","id":)", last_id_,
                                        R"(,"args":{"wr_id":)", record.post.wr_id, "}");
  AppendEvent(record, "b", open.back().name, more, out);
}

void TraceChrome::End(const TraceRecord& record, std::deque<Open>& open, size_t count,
                      std::string& out) {
  for (; count > 0; --count) {
    AppendEvent(record, "e", open.front().name,
                absl::StrCat(R"(,"cat":"work request","id":)", open.front().id), out);
    open.pop_front();
  }
}

// A completion of a send also ends those before it, which succeeded unsignaled. Several may have
// its wr_id: a success is that of a signaled one, an error that of the first one.
void TraceChrome::AppendCompletion(const TraceRecord& record, std::string& out) {
  const auto found = open_.find({record.device, record.qpn, !record.completion.is_send});
  if (found == open_.end()) return;
  std::deque<Open>& open = found->second;
  const dataplane::TraceCompletion& completion = record.completion;
  const auto is_signaled = [&](const Open& each) {
    return each.wr_id == completion.wr_id && each.is_signaled;
  };
  auto it = completion.status == 0 ? std::ranges::find_if(open, is_signaled) : open.end();
  if (it == open.end()) it = std::ranges::find(open, completion.wr_id, &Open::wr_id);
  if (it == open.end()) return;
  End(record, open, static_cast<size_t>(it - open.begin()) + 1, out);
}

// Without a connection, or without the queue pair, nothing is outstanding.
void TraceChrome::EndAll(const TraceRecord& record, std::string& out) {
  for (const bool is_receive : {false, true}) {
    const auto found = open_.find({record.device, record.qpn, is_receive});
    if (found == open_.end()) continue;
    End(record, found->second, found->second.size(), out);
    open_.erase(found);
  }
}

void TraceChrome::Append(const TraceRecord& record, std::string& out) {
  std::string args;
  TraceFields fields(/*json=*/true, args);
  text_.AppendFields(record, fields);
  if (!args.empty()) args.erase(0, 1);
  if (record.kind == TraceKind::kLost) {
    AppendEvent(record, "i", std::to_string(record.lost.records) + " records lost", R"(,"s":"g")",
                out);
    return;
  }
  NameThread(record, out);
  if (record.kind == TraceKind::kPost) AppendPost(record, out);
  if (record.kind == TraceKind::kCompletion) AppendCompletion(record, out);
  if (record.kind == TraceKind::kState && EndsRequests(record.state)) EndAll(record, out);
  const std::string name =
      record.kind == TraceKind::kPacket
          ? (record.packet.is_sent ? "send " : "receive ") +
                std::string(TracePacketName(record.packet))
          : std::string(control::kTraceKindNames[static_cast<size_t>(record.kind)]);
  AppendEvent(record, "i", name, absl::StrCat(R"(,"s":"t","args":{)", args, "}"), out);
}

void TraceChrome::Finish(std::string& out) { out += is_begun_ ? "\n]\n" : "[]\n"; }

}  // namespace roci::tools
