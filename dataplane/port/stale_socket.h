// Who is at the place of a port's listening socket in the file system: nobody any more, when a
// daemon that was killed has left the name behind, which keeps the next one from listening there;
// or somebody else.
#pragma once

#include <string>

namespace roci::dataplane {

// Removes `path` if it is a Unix socket that nobody has any more. True if it did.
bool RemoveStaleSocket(const std::string& path);

// Whether somebody listens at `path` (a stream or packet socket).
bool IsListenedAt(const std::string& path);

}  // namespace roci::dataplane
