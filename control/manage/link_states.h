// The management command "link": sets links of devices down and up again, also after a time.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "roce/work.h"

namespace roci::control {

// Control thread only.
class LinkStates {
 public:
  // The longest "for_ns".
  static constexpr uint64_t kMostNs = 3'600 * roce::kNsPerSecond;

  // `changed` shows a change to programs. `services` outlives this object.
  LinkStates(const Services& services, std::function<void()> changed)
      : services_(services), changed_(std::move(changed)) {}

  // {"device": NAME, "state": "down"|"up"}, with "for_ns" for a link that goes up by itself after
  // that time. Returns {"device": NAME, "state": "active"|"down"}: "up" lets the link follow its
  // port, which may be down.
  absl::StatusOr<nlohmann::json> Run(const nlohmann::json& request, roce::TimeNs now);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 private:
  const Services& services_;
  const std::function<void()> changed_;
  std::map<Device*, roce::TimeNs> up_at_;
};

}  // namespace roci::control
