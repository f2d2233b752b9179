// Where the daemon serves metrics: the key `metrics` of [daemon], and --metrics.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace roci::control {

struct MetricsAddress {
  std::string host;   // an IP address, without brackets
  uint16_t port = 0;  // 0: no metrics are served

  // "127.0.0.1:9095", "[::1]:9095"
  std::string Text() const;
};

// Reads "PORT" (of 127.0.0.1), "ADDRESS:PORT" with a loopback address, or "public:ADDRESS:PORT"
// with any. InvalidArgument: anything else, with the reason. Other machines must not be able to
// read what runs here unless the word says so.
absl::StatusOr<MetricsAddress> ParseMetricsAddress(const std::string& text);

}  // namespace roci::control
