// Personalities: what a device says of itself and what it lacks, so that programs see another
// adapter. One TOML table each; those with names are in control/config/personalities/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "control/config/device_limits.h"
#include "dataplane/types/vendor_errors.h"

namespace roci::control {

// An attribute that the adapter has and this device reports otherwise, because it has less.
struct PersonalityDifference {
  std::string attribute;  // as in ibv_query_device(3)
  std::string adapter;    // its value
  std::string device;     // ours
};

struct Personality {
  std::string name;  // as configured. Empty: the device is like no other
  DeviceIdentity identity;
  DeviceLimits limits;  // the smaller of the adapter's and ours
  dataplane::VendorErrors vendor_errors = dataplane::kPlainVendorErrors;
  // Posting in a state that accepts no requests, or to a datagram queue pair what it cannot do, is
  // no error of the call: the request is dropped, or completes with an error.
  bool has_lenient_posts = false;
  std::vector<PersonalityDifference> differences;
};

// The names of the built-in personalities, sorted.
std::vector<std::string_view> PersonalityNames();

// `name`: a built-in personality, or the path of a file, which contains a '/'. InvalidArgument with
// one line: an unknown name (and the most similar one), or what is wrong in the file, and where.
absl::StatusOr<Personality> LoadPersonality(const std::string& name);

// `file`: the name in error messages.
absl::StatusOr<Personality> ParsePersonality(std::string_view text, const std::string& file);

// `limits`, lowered to those of the personality.
DeviceLimits Smaller(DeviceLimits limits, const Personality& personality);

}  // namespace roci::control
