// The arguments of a virtual port, "net_x0,KEY=VALUE,...": which keys its driver takes, and which
// values. DPDK's drivers leave out what they do not know, some of them everything at once, or
// refuse the port without a reason.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace roci::control {

struct PortArgument {
  absl::string_view key;
  absl::string_view value;
};

// In their order; the views are into `port`.
std::vector<PortArgument> PortArguments(absl::string_view port);

// The value of `key`, or nothing.
std::string ValueOf(const std::vector<PortArgument>& arguments, absl::string_view key);

// The kernel's network device under a port of net_af_packet or net_af_xdp; empty for others.
std::string NetworkDeviceOf(absl::string_view port);

// What is wrong with the arguments of `port`, as a sentence without its subject; empty: nothing, or
// the driver is not known here.
std::string FaultOfPortArguments(absl::string_view port);

}  // namespace roci::control
