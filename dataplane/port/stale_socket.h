// Tells whether the path of a listening socket is stale (a killed daemon has left it, and the next
// daemon cannot listen there) or in use by another process.
#pragma once

#include <string>

namespace roci::dataplane {

// Removes `path` if it is a stale Unix socket. True if it did.
bool RemoveStaleSocket(const std::string& path);

// Whether a process listens at `path` (a stream or packet socket).
bool IsListenedAt(const std::string& path);

}  // namespace roci::dataplane
