// Ends the listening socket of a net_memif port. The driver (DPDK 22.11) frees what it knows of the
// socket with the port's, but leaves the socket open and with DPDK's interrupt thread, to which
// the next peer that knocks is the end of the process.
#pragma once

#include <string>

namespace roci::dataplane {

// Nobody knocks at the socket `path` any more ("": nothing is done), and who has knocked has been
// served. Before the port is closed; control thread.
void EndMemifListener(const std::string& path);

}  // namespace roci::dataplane
