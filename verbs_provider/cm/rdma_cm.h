// Emulates the rdma_cm character device for librdmacm: forwards its commands to the daemon, on one
// connection for each open descriptor, and writes the answers to the program's memory.
#pragma once

namespace roci::provider {

// Called once, by the plugin's constructor. Does nothing if no daemon serves the connection manager
// or the machine has no librdmacm.
void ServeRdmaCm();

}  // namespace roci::provider
