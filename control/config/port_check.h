// Checks that this machine has what a port of the configuration needs. DPDK's drivers only report
// that there is no such device, or that it is not permitted.
#pragma once

#include <string>

namespace roci::control {

// Call before the EAL starts. Returns an error text that follows the port's name; empty: nothing is
// known to be missing.
std::string WhatPortLacks(const std::string& port);

}  // namespace roci::control
