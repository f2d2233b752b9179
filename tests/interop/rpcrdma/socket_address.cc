#include "tests/interop/rpcrdma/socket_address.h"

#include <netdb.h>

#include <cstring>
#include <stdexcept>

namespace rpcrdma {

SocketAddress::SocketAddress(const std::string& ip, uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw std::invalid_argument("\"" + ip + "\" is not a numeric address: " + gai_strerror(error));
  }
  std::memcpy(&storage_, found->ai_addr, found->ai_addrlen);
  length_ = found->ai_addrlen;
  freeaddrinfo(found);
}

}  // namespace rpcrdma
