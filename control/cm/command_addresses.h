// The socket addresses in librdmacm's commands.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "control/cm/command_decoder.h"
#include "control/cm/socket_address.h"

namespace roci::control::cm {

// An unchecked address, in a command's structure. LoadSocketAddress checks it.
using AddressBytes = std::span<const std::byte>;

// `field` has a size of its own; `bytes` limits it if the command has one.
template <class T>
AddressBytes AddressIn(const T& field, size_t bytes = sizeof(T)) {
  return {reinterpret_cast<const std::byte*>(&field), std::min(bytes, sizeof(T))};
}

// The address that a command binds its identifier to. Empty: the command has none.
template <class T>
AddressBytes LocalAddressIn(const T&) {
  return {};
}
inline AddressBytes LocalAddressIn(const rdma_ucm_bind_ip& in) { return AddressIn(in.addr); }
inline AddressBytes LocalAddressIn(const rdma_ucm_bind& in) {
  return AddressIn(in.addr, in.addr_size);
}
inline AddressBytes LocalAddressIn(const rdma_ucm_resolve_ip& in) { return AddressIn(in.src_addr); }
inline AddressBytes LocalAddressIn(const rdma_ucm_resolve_addr& in) {
  return AddressIn(in.src_addr, in.src_size);
}

// False: the bytes are too short or all zero, which stands for no address.
inline bool HasFamily(AddressBytes address) {
  sa_family_t family = AF_UNSPEC;
  if (address.size() < sizeof(family)) return false;
  std::memcpy(&family, address.data(), sizeof(family));
  return family != AF_UNSPEC;
}

}  // namespace roci::control::cm
