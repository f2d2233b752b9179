#include "control/manage/trace_server.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"
#include "dataplane/types/trace_reader.h"
#include "roce/work.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using dataplane::TraceRecord;

// With several lcores, records wait for those of lcores whose round is late.
constexpr roce::TimeNs kSettleNs = roce::kNsPerMs;

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

class Trace : public Stream {
 public:
  explicit Trace(const dataplane::Dataplane& dataplane)
      : has_several_lcores_(dataplane.lcore_count() > 1), reader_(dataplane.OpenTrace()) {
    AppendBytes(dataplane::TraceStreamHeader{.magic = dataplane::TraceStreamHeader::kMagic,
                                             .version = dataplane::kTraceVersion,
                                             .record_bytes = sizeof(TraceRecord),
                                             .start_ns = MonotonicNow(),
                                             .wall_offset_ns = WallOffset()},
                out_);
  }
  ~Trace() override { Stop(); }

  absl::Status Add(Device& device, const dataplane::TraceSettings& settings) {
    devices_.reserve(devices_.size() + 1);
    const auto number = static_cast<uint8_t>(devices_.size());
    absl::Status started = device.dataplane().Do(dataplane::StartTrace{*reader_, settings, number});
    if (started.ok()) devices_.push_back(&device);
    return started;
  }

  void Drain(roce::TimeNs now) override {
    if (has_room()) Take(has_several_lcores_ ? now - kSettleNs : UINT64_MAX);
  }

  void Finish() override {
    Stop();
    Take(UINT64_MAX);
    reader_.reset();
  }

  bool finished() const override { return reader_ == nullptr; }

 private:
  void Stop() {
    for (const Device* device : devices_) device->dataplane().Do(dataplane::StopTrace{});
    devices_.clear();
  }

  // Records that are older than `before_ns`.
  void Take(uint64_t before_ns) {
    taken_.clear();
    reader_->Take(before_ns, taken_);
    if (has_several_lcores_) std::ranges::stable_sort(taken_, {}, &TraceRecord::time_ns);
    for (const TraceRecord& record : taken_) AppendBytes(record, out_);
  }

  const bool has_several_lcores_;
  std::unique_ptr<dataplane::TraceReader> reader_;  // null: finished
  std::vector<Device*> devices_;                    // being traced
  std::vector<TraceRecord> taken_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Stream>> TraceServer::Prepare(const Json& request) const {
  const auto targets = request.find("targets");
  if (targets == request.end() || !targets->is_array() || targets->empty() ||
      targets->size() > kMaxTargets) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"targets\" must be a list of 1 to ", kMaxTargets, " devices"));
  }
  if (size() >= kMaxTraces) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxTraces, " traces are running, which is the limit; end one first"));
  }
  auto trace = std::make_shared<Trace>(services_.dataplane);
  for (const Json& target : *targets) {
    const absl::StatusOr<Device*> device = RequestDevice(services_, target);
    if (!device.ok()) return device.status();
    absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(target);
    if (!filter.ok()) return filter.status();
    dataplane::TraceSettings settings;
    settings.qpns = std::move(filter->qpns);
    absl::Status status = TakeKinds(request, settings.kinds);
    if (status.ok()) status = trace->Add(**device, settings);
    if (!status.ok()) return status;
  }
  return trace;
}

}  // namespace roci::control
