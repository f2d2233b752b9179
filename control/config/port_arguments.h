// Checks the arguments of a virtual port, "net_x0,KEY=VALUE,..." or "packet:eth0,KEY=VALUE,...",
// against the keys and values that its driver takes. DPDK's drivers silently ignore unknown
// arguments (some then ignore all of them) or refuse the port without a reason.
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

// The value of `key`, or an empty string.
std::string ValueOf(const std::vector<PortArgument>& arguments, absl::string_view key);

// The kernel's network device under a port of packet sockets, net_af_packet or net_af_xdp; empty
// for others.
std::string NetworkDeviceOf(absl::string_view port);

// Describes what is wrong with the arguments of `port`. Empty: nothing, or the driver is unknown.
std::string FaultOfPortArguments(absl::string_view port);

}  // namespace roci::control
