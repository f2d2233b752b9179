// Adds captures, traces and impairments of a device between its lanes and its port, and sets its
// link down.
#include "dataplane/shard/device_impairments.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/link/capture_tap.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/qp/shard_services.h"
#include "dataplane/rings/trace.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"

namespace roci::dataplane {

void ShardedDevice::OpenTaps() {
  fault_tables_.resize(lanes_.size());
  for (size_t i = taps_.size(); i < lanes_.size(); ++i) {
    Lcore& lcore = LcoreOf(i);
    taps_.push_back(std::make_unique<LinkTap>(static_cast<uint32_t>(i), lcore.services().now_ns,
                                              dataplane_.frames().mempool(), lanes_[i]->view()));
  }
}

// With virtual time there is one lcore, and the lane keeps its tap.
void ShardedDevice::UseWireTime(uint32_t rate_mbps) {
  OpenTaps();
  LcoreOf(0).Call([&](const OnShard& shard) {
    taps_[0]->UseWireTime(shard, rate_mbps, dataplane_.frames().capacity());
    lanes_[0]->AttachTap(shard, *taps_[0]);
  });
}

void ShardedDevice::SetLinkDown(bool is_down) {
  is_set_down_ = is_down;
  RefreshLink();
  OpenTaps();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).Call([&](const OnShard& shard) { lanes_[i]->SetDown(shard, is_down, *taps_[i]); });
  }
}

absl::StatusOr<std::unique_ptr<CaptureReader>> ShardedDevice::StartCapture(
    const CaptureSettings& settings) {
  if (captures_.size() == LinkTap::kMaxCaptures) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the device has ", LinkTap::kMaxCaptures, " captures, the most possible: end one of them"));
  }
  OpenTaps();
  absl::StatusOr<std::unique_ptr<CaptureTap>> capture =
      CaptureTap::Create(static_cast<uint32_t>(lanes_.size()), settings);
  if (!capture.ok()) return capture.status();
  captures_.push_back(capture->get());
  absl::Cleanup stop = [&] { StopCapture(**capture); };
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).Call([&](const OnShard& shard) {
      taps_[i]->AddCapture(shard, **capture);
      lanes_[i]->AttachTap(shard, *taps_[i]);
    });
  }
  std::move(stop).Cancel();
  return *std::move(capture);
}

// The lane removes a tap without work.
void ShardedDevice::StopCapture(CaptureReader& reader) {
  auto& capture = static_cast<CaptureTap&>(reader);  // StartCapture makes no others
  std::erase(captures_, &capture);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).Call([&](const OnShard& shard) { taps_[i]->RemoveCapture(shard, capture); });
  }
}

absl::Status ShardedDevice::StartTrace(TraceReader& reader, TraceSettings settings,
                                       uint8_t number) {
  if (trace_ != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        name_, " is being traced, and a device has one trace at a time: end it first"));
  }
  OpenTaps();
  auto& rings = static_cast<TraceRings&>(reader);  // OpenTrace makes no others
  trace_ = std::make_unique<DeviceTrace>(rings, std::move(settings), number);
  absl::Cleanup stop = [this] { StopTrace(); };
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lcore& lcore = LcoreOf(i);
    LaneTrace& trace = *trace_->lanes[i];
    trace.UseClock(lcore.services().now_ns);
    lcore.Call([&](const OnShard& shard) {
      lanes_[i]->UseTrace(shard, &trace);
      taps_[i]->UseTrace(shard, &trace);
      lanes_[i]->AttachTap(shard, *taps_[i]);
    });
  }
  std::move(stop).Cancel();
  return absl::OkStatus();
}

void ShardedDevice::StopTrace() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).Call([&](const OnShard& shard) {
      lanes_[i]->UseTrace(shard, nullptr);
      taps_[i]->UseTrace(shard, nullptr);
    });
  }
  trace_.reset();
}

absl::Status ShardedDevice::SetImpairment(const ImpairmentSettings& settings) {
  for (size_t i = 0; i < rules_.size(); ++i) {
    const ImpairmentSettings& other = rules_[i]->settings;
    if (other.direction != settings.direction || !(other.filter == settings.filter)) continue;
    RemoveRule(i);
    break;
  }
  if (rules_.size() == LinkTap::kMaxRules) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", LinkTap::kMaxRules,
                     " impairments, the most possible: remove one of them (--clear)"));
  }
  OpenTaps();
  rules_.push_back(std::make_unique<ImpairmentRule>(settings));
  ImpairmentRule& rule = *rules_.back();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    rule.lanes.push_back(std::make_unique<Impairment>(rule.settings, static_cast<uint32_t>(i),
                                                      rule.shared_bottleneck()));
    LcoreOf(i).Call([&](const OnShard& shard) {
      taps_[i]->AddRule(shard, settings.direction, *rule.lanes[i]);
      lanes_[i]->AttachTap(shard, *taps_[i]);
    });
  }
  return absl::OkStatus();
}

void ShardedDevice::RemoveRule(size_t index) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).Call(
        [&](const OnShard& shard) { taps_[i]->RemoveRule(shard, *rules_[index]->lanes[i]); });
  }
  rules_.erase(rules_.begin() + static_cast<ptrdiff_t>(index));
}

size_t ShardedDevice::ClearImpairments(std::optional<LinkDirection> direction,
                                       const std::optional<FrameFilter>& filter) {
  size_t removed = 0;
  for (size_t i = rules_.size(); i-- > 0;) {
    const ImpairmentSettings& settings = rules_[i]->settings;
    if (direction.has_value() && settings.direction != *direction) continue;
    if (filter.has_value() && !(settings.filter == *filter)) continue;
    RemoveRule(i);
    ++removed;
  }
  return removed;
}

std::vector<ShardedDevice::ImpairmentState> ShardedDevice::Impairments() const {
  std::vector<ImpairmentState> states;
  for (const auto& rule : rules_) {
    ImpairmentState& state = states.emplace_back();
    state.settings = rule->settings;
    for (const auto& lane : rule->lanes) Add(state.counters, lane->counters());
  }
  return states;
}

}  // namespace roci::dataplane
