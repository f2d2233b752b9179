// Ends the listening socket of a net_memif port. On close, the driver (DPDK 22.11) frees the data
// of the socket but leaves the socket open and registered with DPDK's interrupt thread, which
// crashes when the next peer connects.
#pragma once

#include <string>

namespace roci::dataplane {

// Ends the listener at `path` ("": none); peers that have connected are served first. Call before
// the port is closed. Control thread.
void EndMemifListener(const std::string& path);

}  // namespace roci::dataplane
