// What a daemon that was killed left of a port's listening socket: its name in the file system,
// which keeps the next one from listening there.
#pragma once

#include <string>

namespace roci::dataplane {

// Removes `path` if it is a Unix socket that nobody has any more. True if it did.
bool RemoveStaleSocket(const std::string& path);

}  // namespace roci::dataplane
