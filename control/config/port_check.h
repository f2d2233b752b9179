// What a port of the configuration lacks on this machine. DPDK's drivers themselves only say that
// there is no such device, or that it is not permitted.
#pragma once

#include <string>

namespace roci::control {

// What follows on the port's name in a sentence; empty: nothing is known to lack. Before the EAL is
// started.
std::string WhatPortLacks(const std::string& port);

}  // namespace roci::control
