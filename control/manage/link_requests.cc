#include "control/manage/link_requests.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "control/manage/request_values.h"
#include "dataplane/base/limits.h"
#include "roce/work.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using dataplane::LinkDirection;

// Reads the ECN thresholds; `out.queue_bytes` is set already.
absl::Status TakeMarks(const Json& request, dataplane::BottleneckSettings& out) {
  constexpr uint64_t kMost = uint64_t{1} << 53;
  if (request.contains("rate_ecn_all_bytes") && !request.contains("rate_ecn_bytes")) {
    return absl::InvalidArgumentError("\"rate_ecn_all_bytes\" needs \"rate_ecn_bytes\"");
  }
  absl::Status status = TakeNumber(request, "rate_ecn_bytes", kMost, out.ecn_bytes);
  if (!status.ok()) return status;
  out.ecn_all_bytes = 5 * out.ecn_bytes;
  status = TakeNumber(request, "rate_ecn_all_bytes", kMost, out.ecn_all_bytes);
  if (!status.ok()) return status;
  if (out.ecn_all_bytes < out.ecn_bytes) {
    return absl::InvalidArgumentError(
        "the upper threshold (rate_ecn_all_bytes) is less than the lower one (rate_ecn_bytes)");
  }
  if (out.ecn_bytes != 0 && out.ecn_bytes >= out.queue_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a queue of ", out.queue_bytes, " bytes (rate_queue_bytes) never reaches ",
                     out.ecn_bytes, " (rate_ecn_bytes): nothing would be marked"));
  }
  return absl::OkStatus();
}

// Low rates have a shorter default queue: a queue holds at most kMostQueueNs of traffic.
absl::Status TakeRate(const Json& request, dataplane::BottleneckSettings& out) {
  using dataplane::BottleneckSettings;
  absl::Status status =
      TakeNumber(request, "rate_bps", BottleneckSettings::kMostRateBps, out.rate_bps);
  if (!status.ok()) return status;
  if (out.rate_bps == 0) {
    for (const char* key : {"rate_queue_bytes", "rate_ecn_bytes", "rate_ecn_all_bytes"}) {
      if (request.contains(key)) {
        return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" needs \"rate_bps\""));
      }
    }
    return absl::OkStatus();
  }
  if (out.rate_bps < BottleneckSettings::kLeastRateBps) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"rate_bps\" must be at least ", BottleneckSettings::kLeastRateBps));
  }
  const uint64_t most = BottleneckSettings::MostQueueBytes(out.rate_bps);
  out.queue_bytes = std::min(BottleneckSettings::kDefaultQueueBytes, most);
  status = TakeNumber(request, "rate_queue_bytes", most, out.queue_bytes);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(status.message(), ", the traffic of ",
                     BottleneckSettings::kMostQueueNs / roce::kNsPerSecond, " s at this rate"));
  }
  return TakeMarks(request, out);
}

}  // namespace

absl::StatusOr<std::string> DeviceOfRequest(const Json& request) {
  const auto it = request.find("device");
  if (it == request.end() || !it->is_string())
    return absl::InvalidArgumentError("\"device\" is missing");
  return it->get<std::string>();
}

absl::StatusOr<CaptureRequest> DecodeCapture(const Json& request) {
  CaptureRequest out;
  absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(request);
  if (!filter.ok()) return filter.status();
  out.settings.filter = *std::move(filter);
  std::optional<LinkDirection> direction;
  uint64_t snap_length = 0;
  for (const absl::Status& status :
       {TakeDirection(request, direction),
        TakeNumber(request, "snap_length", dataplane::kMaxSnapLengthBytes, snap_length),
        TakeNumber(request, "count", UINT64_MAX, out.count)}) {
    if (!status.ok()) return status;
  }
  out.settings.in = direction != LinkDirection::kOut;
  out.settings.out = direction != LinkDirection::kIn;
  if (snap_length != 0) out.settings.snap_length = static_cast<uint32_t>(snap_length);
  return out;
}

absl::StatusOr<dataplane::ImpairmentSettings> DecodeImpairment(const Json& request) {
  using dataplane::ImpairmentSettings;
  ImpairmentSettings out;
  absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(request);
  if (!filter.ok()) return filter.status();
  out.filter = *std::move(filter);
  std::optional<LinkDirection> direction = LinkDirection::kOut;
  constexpr uint64_t kMost = ImpairmentSettings::kMaxDelayNs;
  for (const absl::Status& status :
       {TakeDirection(request, direction), TakeChance(request, "loss", out.loss),
        TakeChance(request, "duplicate", out.duplicate),
        TakeChance(request, "corrupt", out.corrupt), TakeChance(request, "reorder", out.reorder),
        TakeChance(request, "ecn", out.ecn), TakeNumber(request, "delay_ns", kMost, out.delay_ns),
        TakeNumber(request, "reorder_ns", kMost, out.reorder_ns), TakeRate(request, out.bottleneck),
        TakeNumber(request, "seed", UINT64_MAX, out.seed)}) {
    if (!status.ok()) return status;
  }
  if (!direction.has_value()) return WrongValue("direction", "in or out");
  if (!out.DoesSomething()) return absl::InvalidArgumentError("the impairment has no effect");
  out.direction = *direction;
  return out;
}

absl::StatusOr<std::optional<LinkDirection>> DecodeClear(const Json& request) {
  std::optional<LinkDirection> direction;
  if (absl::Status status = TakeDirection(request, direction); !status.ok()) return status;
  return direction;
}

absl::StatusOr<Json> Impair(const Services& services, const Json& request) {
  const absl::StatusOr<std::string> name = DeviceOfRequest(request);
  if (!name.ok()) return name.status();
  Device* const device = services.FindDevice(*name);
  if (device == nullptr) return absl::NotFoundError(absl::StrCat("there is no device ", *name));
  if (const auto clear = request.find("clear"); clear != request.end() && *clear == true) {
    const auto direction = DecodeClear(request);
    if (!direction.ok()) return direction.status();
    const absl::StatusOr<dataplane::FrameFilter> filter = TakeFilter(request);
    if (!filter.ok()) return filter.status();
    const bool only_one = !filter->MatchesAll();
    const size_t removed = device->dataplane().Do(dataplane::ClearImpairments{
        .direction = *direction, .filter = only_one ? std::optional(*filter) : std::nullopt});
    if (only_one && removed == 0) {
      return absl::NotFoundError(absl::StrCat(*name, " has no impairment with this filter"));
    }
  } else {
    const absl::StatusOr<dataplane::ImpairmentSettings> settings = DecodeImpairment(request);
    if (!settings.ok()) return settings.status();
    const absl::Status status = device->dataplane().Do(dataplane::SetImpairment{*settings});
    if (!status.ok()) return status;
  }
  return DescribeImpairments(device->dataplane());
}

Json DescribeImpairments(const dataplane::DeviceClient& device) {
  Json out = Json::array();
  for (const auto& [settings, counters] : device.Do(dataplane::ListImpairments{})) {
    out.push_back(DescribeImpairment(settings, counters));
  }
  return out;
}

Json DescribeImpairment(const dataplane::ImpairmentSettings& settings,
                        const dataplane::ImpairmentSnapshot& counters) {
  Json out = {{"direction", settings.direction == LinkDirection::kIn ? "in" : "out"}};
  const auto add_chance = [&](const char* name, dataplane::Chance chance) {
    // Rounded, so that the value is shown as it was typed.
    const double value = static_cast<double>(chance) / double{dataplane::kAlways};
    if (chance != 0) out[name] = std::round(value * 1e9) / 1e9;
  };
  add_chance("loss", settings.loss);
  add_chance("duplicate", settings.duplicate);
  add_chance("corrupt", settings.corrupt);
  add_chance("reorder", settings.reorder);
  add_chance("ecn", settings.ecn);
  if (settings.delay_ns != 0) out["delay_ns"] = settings.delay_ns;
  if (settings.reorder != 0) out["reorder_ns"] = settings.reorder_ns;
  if (const auto& bottleneck = settings.bottleneck; bottleneck.rate_bps != 0) {
    out["rate_bps"] = bottleneck.rate_bps;
    out["rate_queue_bytes"] = bottleneck.queue_bytes;
    if (bottleneck.ecn_bytes != 0) {
      out["rate_ecn_bytes"] = bottleneck.ecn_bytes;
      out["rate_ecn_all_bytes"] = bottleneck.ecn_all_bytes;
    }
  }
  out["seed"] = settings.seed;
  for (const roce::Qpn qpn : settings.filter.qpns) out["qps"].push_back(qpn.value());
  for (const roce::Qpn qpn : settings.filter.peers) out["peers"].push_back(qpn.value());
  for (uint32_t opcode = 0; opcode < settings.filter.opcodes.size(); ++opcode) {
    if (settings.filter.opcodes.test(opcode)) out["opcodes"].push_back(opcode);
  }
#define ROCI_DESCRIBE_COUNTER(member, name) out["counters"][name] = counters.member;
  ROCI_IMPAIRMENT_COUNTERS(ROCI_DESCRIBE_COUNTER)
#undef ROCI_DESCRIBE_COUNTER
  return out;
}

}  // namespace roci::control
