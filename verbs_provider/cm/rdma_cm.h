// The rdma_cm character device as librdmacm sees it: carries what librdmacm writes to the daemon,
// on a connection for each open descriptor, and puts the answers where the program wants them.
#pragma once

namespace roci::provider {

// For the plugin's constructor, once. Does nothing where no daemon of ours serves the connection
// manager or the machine has no librdmacm.
void ServeRdmaCm();

}  // namespace roci::provider
