#include "control/manage/capture_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/manage/link_requests.h"
#include "control/manage/pcapng_writer.h"
#include "dataplane/link/capture_tap.h"
#include "roce/work.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kDrainEveryNs = roce::kNsPerMs;

// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
uint64_t WallOffset() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto wall =
      static_cast<uint64_t>(now.tv_sec) * roce::kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  return wall - MonotonicNow();
}

}  // namespace

class CaptureServer::Capture {
 public:
  Capture(Device& device, std::unique_ptr<dataplane::CaptureTap> tap, const CaptureRequest& request)
      : device_(device),
        tap_(std::move(tap)),
        has_virtual_time_(device.config().seed.has_value()),
        wall_offset_ns_(has_virtual_time_ ? 0 : WallOffset()) {
    if (request.count != 0) left_ = request.count;
    const uint32_t snap_length = request.settings.snap_length;
    pcapng::AppendHeader(device.name(), snap_length == UINT32_MAX ? 0 : snap_length, out);
  }
  ~Capture() {
    if (tap_ != nullptr) device_.dataplane().RemoveCapture(*tap_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  bool finished() const { return tap_ == nullptr; }
  bool has_all() const { return left_ == 0; }

  // Bounded by twice the rings' size, since lcores keep filling them, and by kMaxWaitingBytes.
  void Drain() {
    dataplane::CapturedFrame frame;
    for (uint32_t i = 0; i < 2 * dataplane::CaptureTap::kRingEntries; ++i) {
      if (left_ == 0 || out.size() > kMaxWaitingBytes || !tap_->Next(frame)) return;
      const bool is_in = frame.direction == dataplane::LinkDirection::kIn;
      pcapng::AppendPacket(frame.time_ns + wall_offset_ns_,
                           is_in ? pcapng::Direction::kIn : pcapng::Direction::kOut, frame.bytes,
                           frame.original_length, out);
      last_ns_ = frame.time_ns;
      ++written_;
      --left_;
    }
  }

  // Stops the capture. Appends the rest of the rings, as far as there is room, and the statistics.
  void Finish() {
    device_.dataplane().RemoveCapture(*tap_);
    Drain();
    const uint64_t dropped = tap_->dropped();
    const uint64_t end_ns = has_virtual_time_ ? last_ns_ : MonotonicNow();
    pcapng::AppendStatistics(end_ns + wall_offset_ns_, written_ + dropped, dropped, out);
    tap_.reset();
  }

  UniqueFd socket;
  EventLoop::Watch watch = 0;
  std::string out;  // not sent yet

 private:
  Device& device_;
  std::unique_ptr<dataplane::CaptureTap> tap_;
  uint64_t left_ = UINT64_MAX;  // frames still to be captured
  uint64_t written_ = 0;
  uint64_t last_ns_ = 0;  // when the last frame passed
  const bool has_virtual_time_;
  const uint64_t wall_offset_ns_;
};

CaptureServer::~CaptureServer() {
  while (!captures_.empty()) Close(captures_.begin()->first);
}

absl::StatusOr<std::shared_ptr<CaptureServer::Capture>> CaptureServer::Prepare(
    const nlohmann::json& request) const {
  const absl::StatusOr<std::string> name = DeviceOfRequest(request);
  if (!name.ok()) return name.status();
  Device* const device = services_.FindDevice(*name);
  if (device == nullptr) return absl::NotFoundError(absl::StrCat("there is no device ", *name));
  const absl::StatusOr<CaptureRequest> decoded = DecodeCapture(request);
  if (!decoded.ok()) return decoded.status();
  if (captures_.size() >= kMaxCaptures) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxCaptures, " captures are running, which is the limit; end one first"));
  }
  auto tap = dataplane::CaptureTap::Create(services_.dataplane.lcore_count(), decoded->settings);
  if (!tap.ok()) return tap.status();
  absl::Status added = device->dataplane().AddCapture(**tap);
  if (!added.ok()) return added;
  return std::make_shared<Capture>(*device, *std::move(tap), *decoded);
}

void CaptureServer::Start(std::shared_ptr<Capture> capture, UniqueFd socket) {
  const uint64_t id = ++last_id_;
  capture->socket = std::move(socket);
  const absl::StatusOr<EventLoop::Watch> watch =
      services_.loop.Add(capture->socket.get(), EPOLLIN | EPOLLRDHUP,
                         [this, id](uint32_t events) { Handle(id, events); });
  if (!watch.ok()) return services_.foreign_fds.Close(std::move(capture->socket));
  capture->watch = *watch;
  captures_.emplace(id, std::move(capture));
  next_drain_ = MonotonicNow();
}

roce::TimeNs CaptureServer::NextTimeout() const {
  const bool any = std::any_of(captures_.begin(), captures_.end(),
                               [](const auto& each) { return !each.second->finished(); });
  return any ? next_drain_ : roce::kNever;
}

void CaptureServer::Handle(uint64_t id, uint32_t events) {
  Capture& capture = *captures_.at(id);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Close(id);
  if ((events & (EPOLLIN | EPOLLRDHUP)) != 0 && !capture.finished()) capture.Finish();
  if (!Flush(capture)) Close(id);
}

void CaptureServer::HandleTimeout(roce::TimeNs now) {
  next_drain_ = now + kDrainEveryNs;
  std::vector<uint64_t> done;
  for (const auto& [id, capture] : captures_) {
    if (capture->finished()) continue;  // EPOLLOUT reports when its reader takes more
    capture->Drain();
    if (capture->has_all()) capture->Finish();
    if (!Flush(*capture)) done.push_back(id);
  }
  for (const uint64_t id : done) Close(id);
}

bool CaptureServer::Flush(Capture& capture) {
  size_t sent = 0;
  while (sent < capture.out.size()) {
    const ssize_t count = send(capture.socket.get(), capture.out.data() + sent,
                               capture.out.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) return false;
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  capture.out.erase(0, sent);
  if (capture.out.empty()) return !capture.finished();
  // While the capture runs, the next timeout tries again.
  if (capture.finished()) services_.loop.Change(capture.watch, EPOLLOUT);
  return true;
}

void CaptureServer::Close(uint64_t id) {
  services_.loop.Forget(captures_.at(id)->watch);
  services_.foreign_fds.Close(std::move(captures_.at(id)->socket));
  captures_.erase(id);
}

}  // namespace roci::control
