// A numeric IPv4 or IPv6 address with a port, in the form that sockets and librdmacm take.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace rpcrdma {

class SocketAddress {
 public:
  // An IPv6 address may have a scope ("fe80::1%eth0"). Throws std::invalid_argument if it is none.
  SocketAddress(const std::string& ip, uint16_t port);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_storage storage_ = {};
  socklen_t length_ = 0;
};

}  // namespace rpcrdma
