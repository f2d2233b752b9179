// Adds captures, traces and impairments of a device between its lanes and its port, and sets its
// link down.
#include "dataplane/shard/device_impairments.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/link/capture_tap.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/rings/trace.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/sharded_device.h"

namespace roci::dataplane {

void DeviceClient::OpenTaps() {
  const size_t lanes = device_->lanes().size();
  fault_tables_.resize(lanes);
  for (size_t i = taps_.size(); i < lanes; ++i) {
    taps_.push_back(std::make_unique<LinkTap>(
        static_cast<uint32_t>(i), device_->LcoreOf(i).view().now_ns,
        device_->dataplane().frames().mempool(), device_->lane(i).view()));
  }
}

// With virtual time there is one lcore, and the lane keeps its tap.
void DeviceClient::UseWireTime(uint32_t rate_mbps) {
  OpenTaps();
  device_->LcoreOf(0).Call([&](const OnShard& shard) {
    taps_[0]->UseWireTime(shard, rate_mbps, device_->dataplane().frames().capacity());
    device_->lane(0).AttachTap(shard, *taps_[0]);
  });
}

void DeviceClient::Do(const SetLinkDown& command) {
  is_set_down_ = command.is_down;
  Do(RefreshLink{});
  OpenTaps();
  device_->ForEachLane([&](const OnShard& shard, DeviceLane& lane, size_t i) {
    lane.SetDown(shard, command.is_down, *taps_[i]);
  });
}

absl::StatusOr<std::unique_ptr<CaptureReader>> DeviceClient::Do(const StartCapture& command) {
  if (captures_.size() == LinkTap::kMaxCaptures) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the device has ", LinkTap::kMaxCaptures, " captures, the most possible: end one of them"));
  }
  OpenTaps();
  absl::StatusOr<std::unique_ptr<CaptureTap>> capture =
      CaptureTap::Create(static_cast<uint32_t>(taps_.size()), command.settings);
  if (!capture.ok()) return capture.status();
  captures_.push_back(capture->get());
  absl::Cleanup stop = [&] { Do(StopCapture{**capture}); };
  device_->ForEachLane([&](const OnShard& shard, DeviceLane& lane, size_t i) {
    taps_[i]->AddCapture(shard, **capture);
    lane.AttachTap(shard, *taps_[i]);
  });
  std::move(stop).Cancel();
  return *std::move(capture);
}

// The lane removes a tap without work.
void DeviceClient::Do(const StopCapture& command) {
  auto& capture = static_cast<CaptureTap&>(command.reader);  // StartCapture makes no others
  std::erase(captures_, &capture);
  device_->ForEachLane([&](const OnShard& shard, DeviceLane&, size_t i) {
    taps_[i]->RemoveCapture(shard, capture);
  });
}

absl::Status DeviceClient::Do(const StartTrace& command) {
  if (trace_ != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        name_, " is being traced, and a device has one trace at a time: end it first"));
  }
  OpenTaps();
  auto& rings = static_cast<TraceRings&>(command.reader);  // OpenTrace makes no others
  trace_ = std::make_unique<DeviceTrace>(rings, command.settings, command.number);
  absl::Cleanup stop = [this] { Do(StopTrace{}); };
  for (size_t i = 0; i < device_->lanes().size(); ++i) {
    Lcore& lcore = device_->LcoreOf(i);
    LaneTrace& trace = *trace_->lanes[i];
    trace.UseClock(lcore.view().now_ns);
    lcore.Call([&](const OnShard& shard) {
      device_->lane(i).UseTrace(shard, &trace);
      taps_[i]->UseTrace(shard, &trace);
      device_->lane(i).AttachTap(shard, *taps_[i]);
    });
  }
  std::move(stop).Cancel();
  return absl::OkStatus();
}

void DeviceClient::Do(const StopTrace&) {
  device_->ForEachLane([&](const OnShard& shard, DeviceLane& lane, size_t i) {
    lane.UseTrace(shard, nullptr);
    taps_[i]->UseTrace(shard, nullptr);
  });
  trace_.reset();
}

absl::Status DeviceClient::Do(const SetImpairment& command) {
  const ImpairmentSettings& settings = command.settings;
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
  for (size_t i = 0; i < device_->lanes().size(); ++i) {
    rule.lanes.push_back(std::make_unique<Impairment>(rule.settings, static_cast<uint32_t>(i),
                                                      rule.shared_bottleneck()));
    device_->LcoreOf(i).Call([&](const OnShard& shard) {
      taps_[i]->AddRule(shard, settings.direction, *rule.lanes[i]);
      device_->lane(i).AttachTap(shard, *taps_[i]);
    });
  }
  return absl::OkStatus();
}

void DeviceClient::RemoveRule(size_t index) {
  device_->ForEachLane([&](const OnShard& shard, DeviceLane&, size_t i) {
    taps_[i]->RemoveRule(shard, *rules_[index]->lanes[i]);
  });
  rules_.erase(rules_.begin() + static_cast<ptrdiff_t>(index));
}

size_t DeviceClient::Do(const ClearImpairments& command) {
  const auto& [direction, filter] = command;
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

std::vector<ImpairmentState> DeviceClient::Do(const ListImpairments&) const {
  std::vector<ImpairmentState> states;
  for (const auto& rule : rules_) {
    ImpairmentState& state = states.emplace_back();
    state.settings = rule->settings;
    for (const auto& lane : rule->lanes) Add(state.counters, lane->counters());
  }
  return states;
}

}  // namespace roci::dataplane
