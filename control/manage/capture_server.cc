#include "control/manage/capture_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "control/manage/link_requests.h"
#include "control/manage/pcapng_writer.h"
#include "dataplane/types/capture_reader.h"
#include "roce/work.h"

namespace roci::control {
namespace {

class Capture : public Stream {
 public:
  Capture(Device& device, const CaptureRequest& request)
      : device_(device),
        has_virtual_time_(device.config().seed.has_value()),
        wall_offset_ns_(has_virtual_time_ ? 0 : WallOffset()) {
    if (request.count != 0) left_ = request.count;
    const uint32_t snap_length = request.settings.snap_length;
    pcapng::AppendHeader(device.name(), snap_length == UINT32_MAX ? 0 : snap_length, out_);
  }
  ~Capture() override {
    if (reader_ != nullptr) device_.dataplane().Do(dataplane::StopCapture{*reader_});
  }

  absl::Status Start(const dataplane::CaptureSettings& settings) {
    auto reader = device_.dataplane().Do(dataplane::StartCapture{settings});
    if (!reader.ok()) return reader.status();
    reader_ = *std::move(reader);
    return absl::OkStatus();
  }

  void Drain(roce::TimeNs) override {
    Take();
    if (left_ == 0) Finish();
  }

  // Also appends the statistics.
  void Finish() override {
    device_.dataplane().Do(dataplane::StopCapture{*reader_});
    Take();
    const uint64_t dropped = reader_->dropped();
    const uint64_t end_ns = has_virtual_time_ ? last_ns_ : MonotonicNow();
    pcapng::AppendStatistics(end_ns + wall_offset_ns_, written_ + dropped, dropped, out_);
    reader_.reset();
  }

  bool finished() const override { return reader_ == nullptr; }

 private:
  // Bounded by twice the frames that wait, since lcores keep adding some, and by kMaxWaitingBytes.
  void Take() {
    dataplane::CapturedFrame frame;
    for (uint32_t i = 0; i < 2 * dataplane::CaptureReader::kMaxWaiting; ++i) {
      if (left_ == 0 || !has_room() || !reader_->Next(frame)) return;
      const bool is_in = frame.direction == dataplane::LinkDirection::kIn;
      pcapng::AppendPacket(frame.time_ns + wall_offset_ns_,
                           is_in ? pcapng::Direction::kIn : pcapng::Direction::kOut, frame.bytes,
                           frame.original_length, out_);
      last_ns_ = frame.time_ns;
      ++written_;
      --left_;
    }
  }

  Device& device_;
  std::unique_ptr<dataplane::CaptureReader> reader_;  // null: not started, or finished
  uint64_t left_ = UINT64_MAX;                        // frames still to be captured
  uint64_t written_ = 0;
  uint64_t last_ns_ = 0;  // when the last frame passed
  const bool has_virtual_time_;
  const uint64_t wall_offset_ns_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Stream>> CaptureServer::Prepare(
    const nlohmann::json& request) const {
  const absl::StatusOr<std::string> name = DeviceOfRequest(request);
  if (!name.ok()) return name.status();
  Device* const device = services_.FindDevice(*name);
  if (device == nullptr) return absl::NotFoundError(absl::StrCat("there is no device ", *name));
  const absl::StatusOr<CaptureRequest> decoded = DecodeCapture(request);
  if (!decoded.ok()) return decoded.status();
  if (size() >= kMaxCaptures) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxCaptures, " captures are running, which is the limit; end one first"));
  }
  auto capture = std::make_shared<Capture>(*device, *decoded);
  absl::Status started = capture->Start(decoded->settings);
  if (!started.ok()) return started;
  return capture;
}

}  // namespace roci::control
