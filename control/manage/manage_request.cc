#include "control/manage/manage_request.h"

#include "absl/strings/str_cat.h"

namespace roci::control {

using Json = nlohmann::json;

absl::StatusOr<std::string> RequestText(const Json& request, const char* key) {
  const auto value = request.find(key);
  if (value == request.end() || !value->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is missing"));
  }
  return value->get<std::string>();
}

absl::StatusOr<Device*> RequestDevice(const Services& services, const Json& request) {
  const absl::StatusOr<std::string> name = RequestText(request, "device");
  if (!name.ok()) return name.status();
  Device* const device = services.FindDevice(*name);
  if (device == nullptr) return absl::NotFoundError(absl::StrCat("there is no device ", *name));
  return device;
}

absl::Status CheckPlugged(const Device& device) {
  if (device.is_plugged()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      device.name(), " is unplugged (`roci device plug ", device.name(), "` plugs it in)"));
}

absl::StatusOr<uint16_t> RequestVlan(const Json& request) {
  const auto value = request.find("vlan");
  if (value == request.end()) return uint16_t{0};
  if (!value->is_number_unsigned() || value->get<uint64_t>() > roce::VlanTag::kMaxId) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"vlan\" must be a number up to ", roce::VlanTag::kMaxId, ", 0 for none"));
  }
  return value->get<uint16_t>();
}

absl::Status RequestRefusal(absl::string_view device, absl::string_view what,
                            absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(device, ": ", what, ": ", reason));
}

}  // namespace roci::control
