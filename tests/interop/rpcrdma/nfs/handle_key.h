// The secret of file handles and cookies: random, or kept in a file over restarts.
#pragma once

#include <string>

#include "tests/interop/rpcrdma/nfs/siphash.h"

namespace rpcrdma {

// Throw std::system_error.
SipKey RandomKey();
// Reads the key in the file. If there is no file, creates it with a random key, readable by its
// owner only.
SipKey KeyIn(const std::string& path);

}  // namespace rpcrdma
