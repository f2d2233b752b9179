// A MOUNT version 3 client over TCP, at a known port: no rpcbind is asked.
#pragma once

#include <cstdint>
#include <string>

namespace rpcrdma {

// The handle of the folder that the server exports as `path`. Throws std::system_error,
// std::invalid_argument, and std::runtime_error if the server refuses.
std::string MountByTcp(const std::string& address, uint16_t port, const std::string& path);

}  // namespace rpcrdma
