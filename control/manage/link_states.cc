#include "control/manage/link_states.h"

#include <algorithm>

#include "control/manage/manage_request.h"
#include "control/manage/request_values.h"
#include "dataplane/shard/device_client.h"

namespace roci::control {

using Json = nlohmann::json;

absl::StatusOr<Json> LinkStates::Run(const Json& request, roce::TimeNs now) {
  const absl::StatusOr<Device*> device = RequestDevice(services_, request);
  if (!device.ok()) return device.status();
  if (absl::Status status = CheckPlugged(**device); !status.ok()) return status;
  const absl::StatusOr<std::string> state = RequestText(request, "state");
  if (!state.ok()) return state.status();
  uint64_t for_ns = 0;
  if (absl::Status status = TakeNumber(request, "for_ns", kMostNs, for_ns); !status.ok()) {
    return status;
  }
  const bool is_down = *state == "down";
  if (!is_down && *state != "up") return WrongValue("state", "down or up");
  if (!is_down && for_ns != 0) {
    return absl::InvalidArgumentError("\"for_ns\" needs the state down");
  }
  up_at_.erase(*device);
  if (for_ns != 0) up_at_[*device] = now + for_ns;
  (*device)->dataplane().Do(dataplane::SetLinkDown{is_down});
  changed_();
  return Json{{"device", (*device)->name()},
              {"state", (*device)->dataplane().link_up() ? "active" : "down"}};
}

roce::TimeNs LinkStates::NextTimeout() const {
  roce::TimeNs next = roce::kNever;
  for (const auto& [device, up_at] : up_at_) next = std::min(next, up_at);
  return next;
}

void LinkStates::HandleTimeout(roce::TimeNs now) {
  for (auto it = up_at_.begin(); it != up_at_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    if (it->first->is_plugged()) it->first->dataplane().Do(dataplane::SetLinkDown{false});
    it = up_at_.erase(it);
  }
  changed_();
}

}  // namespace roci::control
