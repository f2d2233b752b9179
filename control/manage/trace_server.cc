#include "control/manage/trace_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"
#include "dataplane/rings/trace.h"
#include "roce/work.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using dataplane::TraceRecord;

constexpr roce::TimeNs kDrainEveryNs = roce::kNsPerMs;
// With several lcores, records wait for those of lcores whose round is late.
constexpr roce::TimeNs kSettleNs = roce::kNsPerMs;

uint64_t WallOffset() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto wall =
      static_cast<uint64_t>(now.tv_sec) * roce::kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  return wall - MonotonicNow();
}

template <class T>
void AppendBytes(const T& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

absl::Status TakeKinds(const Json& request, uint32_t& kinds) {
  const auto names = request.find("kinds");
  if (names == request.end()) return absl::OkStatus();
  if (!names->is_array() || names->empty()) {
    return absl::InvalidArgumentError("\"kinds\" must be a list of names");
  }
  kinds = 0;
  for (const Json& name : *names) {
    const auto it = name.is_string() ? std::ranges::find(kTraceKindNames, name.get<std::string>())
                                     : kTraceKindNames.end();
    if (it == kTraceKindNames.end()) {
      return absl::InvalidArgumentError(absl::StrCat("there are no records of kind ", name.dump()));
    }
    kinds |= 1u << (it - kTraceKindNames.begin());
  }
  return absl::OkStatus();
}

}  // namespace

class TraceServer::Trace {
 public:
  explicit Trace(uint32_t lcores) {
    for (uint32_t i = 0; i < lcores; ++i)
      rings_.push_back(std::make_unique<dataplane::TraceRing>());
    AppendBytes(dataplane::TraceStreamHeader{.magic = dataplane::TraceStreamHeader::kMagic,
                                             .version = dataplane::kTraceVersion,
                                             .record_bytes = sizeof(TraceRecord),
                                             .start_ns = MonotonicNow(),
                                             .wall_offset_ns = WallOffset()},
                out_);
  }
  ~Trace() { Stop(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  absl::Status Add(Device& device, dataplane::TraceSettings settings) {
    auto trace = std::make_unique<dataplane::DeviceTrace>(rings_, std::move(settings),
                                                          static_cast<uint8_t>(parts_.size()));
    parts_.reserve(parts_.size() + 1);
    absl::Status added = device.dataplane().AddTrace(*trace);
    if (added.ok()) parts_.push_back({&device, std::move(trace)});
    return added;
  }

  bool finished() const { return is_finished_; }

  // Takes what the lcores have recorded, unless too much waits for the reader.
  void DrainSettled(roce::TimeNs now) {
    if (unsent().size() < kMaxWaitingBytes) {
      Drain(rings_.size() > 1 ? now - kSettleNs : UINT64_MAX);
    }
  }

  // Stops the trace and takes what is left in the rings.
  void Finish() {
    Stop();
    Drain(UINT64_MAX);
    rings_.clear();
    is_finished_ = true;
  }

  std::string_view unsent() const { return std::string_view(out_).substr(sent_); }
  void NoteSent(size_t bytes) {
    sent_ += bytes;
    if (sent_ < out_.size() / 2) return;  // so that bytes move seldom
    out_.erase(0, sent_);
    sent_ = 0;
  }

  UniqueFd socket;
  EventLoop::Watch watch = 0;

 private:
  struct Part {
    Device* device;
    std::unique_ptr<dataplane::DeviceTrace> trace;
  };

  void Stop() {
    for (const Part& part : parts_) part.device->dataplane().RemoveTrace();
    parts_.clear();
  }

  // Records that are older than `before_ns`.
  void Drain(uint64_t before_ns) {
    taken_.clear();
    for (const auto& ring : rings_) ring->Take(before_ns, taken_);
    if (rings_.size() > 1) std::ranges::stable_sort(taken_, {}, &TraceRecord::time_ns);
    for (const TraceRecord& record : taken_) AppendBytes(record, out_);
  }

  std::vector<std::unique_ptr<dataplane::TraceRing>> rings_;
  std::vector<Part> parts_;
  std::vector<TraceRecord> taken_;
  std::string out_;
  size_t sent_ = 0;  // bytes of out_
  bool is_finished_ = false;
};

TraceServer::~TraceServer() {
  while (!traces_.empty()) {
    Trace& trace = *traces_.begin()->second;
    if (!trace.finished()) trace.Finish();
    Flush(trace);  // as far as the socket has room
    Close(traces_.begin()->first);
  }
}

absl::StatusOr<std::shared_ptr<TraceServer::Trace>> TraceServer::Prepare(
    const Json& request) const {
  const auto targets = request.find("targets");
  if (targets == request.end() || !targets->is_array() || targets->empty() ||
      targets->size() > kMaxTargets) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"targets\" must be a list of 1 to ", kMaxTargets, " devices"));
  }
  if (traces_.size() >= kMaxTraces) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxTraces, " traces are running, which is the limit; end one first"));
  }
  auto trace = std::make_shared<Trace>(services_.dataplane.lcore_count());
  for (const Json& target : *targets) {
    const absl::StatusOr<Device*> device = RequestDevice(services_, target);
    if (!device.ok()) return device.status();
    absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(target);
    if (!filter.ok()) return filter.status();
    dataplane::TraceSettings settings;
    settings.qpns = std::move(filter->qpns);
    absl::Status status = TakeKinds(request, settings.kinds);
    if (status.ok()) status = trace->Add(**device, std::move(settings));
    if (!status.ok()) return status;
  }
  return trace;
}

void TraceServer::Start(std::shared_ptr<Trace> trace, UniqueFd socket) {
  const uint64_t id = ++last_id_;
  trace->socket = std::move(socket);
  const absl::StatusOr<EventLoop::Watch> watch =
      services_.loop.Add(trace->socket.get(), EPOLLIN | EPOLLRDHUP,
                         [this, id](uint32_t events) { Handle(id, events); });
  if (!watch.ok()) return services_.foreign_fds.Close(std::move(trace->socket));
  trace->watch = *watch;
  traces_.emplace(id, std::move(trace));
  next_drain_ = MonotonicNow();
}

roce::TimeNs TraceServer::NextTimeout() const {
  const bool any = std::any_of(traces_.begin(), traces_.end(),
                               [](const auto& each) { return !each.second->finished(); });
  return any ? next_drain_ : roce::kNever;
}

void TraceServer::Handle(uint64_t id, uint32_t events) {
  Trace& trace = *traces_.at(id);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Close(id);
  if ((events & (EPOLLIN | EPOLLRDHUP)) != 0 && !trace.finished()) trace.Finish();
  if (!Flush(trace)) Close(id);
}

void TraceServer::HandleTimeout(roce::TimeNs now) {
  next_drain_ = now + kDrainEveryNs;
  std::vector<uint64_t> done;
  for (const auto& [id, trace] : traces_) {
    if (trace->finished()) continue;  // EPOLLOUT reports when its reader takes more
    trace->DrainSettled(now);
    if (!Flush(*trace)) done.push_back(id);
  }
  for (const uint64_t id : done) Close(id);
}

bool TraceServer::Flush(Trace& trace) {
  while (!trace.unsent().empty()) {
    const std::string_view unsent = trace.unsent();
    const ssize_t count =
        send(trace.socket.get(), unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) return false;
    if (count <= 0) break;
    trace.NoteSent(static_cast<size_t>(count));
  }
  if (trace.unsent().empty()) return !trace.finished();
  // While the trace runs, the next timeout tries again.
  if (trace.finished()) services_.loop.Change(trace.watch, EPOLLOUT);
  return true;
}

void TraceServer::Close(uint64_t id) {
  services_.loop.Forget(traces_.at(id)->watch);
  services_.foreign_fds.Close(std::move(traces_.at(id)->socket));
  traces_.erase(id);
}

}  // namespace roci::control
