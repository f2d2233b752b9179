// Whether the system calls are those of qemu-user, which differ from the kernel's in places (tests/
// systems/arm64_test.py says so in the environment).
#pragma once

#include <cstdlib>

namespace roci {

inline bool IsEmulated() { return std::getenv("ROCI_EMULATED") != nullptr; }

}  // namespace roci
