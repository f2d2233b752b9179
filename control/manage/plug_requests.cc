#include "control/manage/plug_requests.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

// Before the link goes down: a device that is gone has no port whose state could change.
absl::Status Unplug(const PlugParts& parts, Device& device) {
  if (absl::Status status = parts.publisher.Withdraw(device); !status.ok()) return status;
  parts.sessions.EndAll(device);
  parts.connections.RemoveDevice(device);
  device.SetPlugged(false);
  return absl::OkStatus();
}

absl::Status Plug(const PlugParts& parts, Device& device) {
  device.SetPlugged(true);
  absl::Status status = parts.publisher.Publish(device);
  if (!status.ok()) device.SetPlugged(false);
  return status;
}

}  // namespace

absl::StatusOr<Json> RunPlugCommand(const PlugParts& parts, const Json& request) {
  const absl::StatusOr<Device*> found = RequestDevice(parts.services, request);
  if (!found.ok()) return found.status();
  Device& device = **found;
  const absl::StatusOr<std::string> state = RequestText(request, "state");
  if (!state.ok()) return state.status();
  const bool plugs = *state == "plugged";
  if (!plugs && *state != "unplugged") return WrongValue("state", "plugged or unplugged");
  if (plugs == device.is_plugged()) {
    return absl::FailedPreconditionError(absl::StrCat(device.name(), " is ", *state, " already"));
  }
  const auto is_of_device = [&](const auto& entry) { return entry.second->device() == &device; };
  const auto programs = std::ranges::count_if(parts.sessions.sessions(), is_of_device);
  const absl::Status status = plugs ? Plug(parts, device) : Unplug(parts, device);
  if (!status.ok()) return status;
  return Json{{"device", device.name()}, {"state", *state}, {"programs", programs}};
}

}  // namespace roci::control
