// Converts socket addresses of programs (struct sockaddr_in, sockaddr_in6, sockaddr_ib) to and from
// values. Pure.
#pragma once

#include <endian.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "roce/types.h"

namespace roci::control::cm {

struct SocketAddress {
  uint16_t family = AF_UNSPEC;  // AF_INET, AF_INET6 or AF_IB otherwise
  roce::Gid gid;                // IPv4-mapped for AF_INET; see IsAny
  uint16_t port = 0;            // host byte order; AF_IB: the last 16 bits of the service ID
  uint32_t scope = 0;
  // AF_IB only: a service ID, and a mask of the bits that count in bind.
  uint64_t service = 0;
  uint64_t service_mask = 0;

  bool IsLoopback() const {
    if (family == AF_INET) return gid.ToIpv4().bytes[0] == 127;
    return gid.bytes.back() == 1 && std::all_of(gid.bytes.begin(), gid.bytes.end() - 1,
                                                [](uint8_t byte) { return byte == 0; });
  }
  // Loopback addresses count as wildcards, as in Linux: libfabric binds "localhost" to find out
  // whether there is a device.
  bool IsAny() const {
    return IsLoopback() || (family == AF_INET ? gid == roce::Gid::FromIpv4({}) : gid.IsZero());
  }
};

// struct sockaddr_ib of <infiniband/ib.h>.
struct SockaddrIb {
  uint16_t family;
  uint16_t pkey;  // network byte order, as all that follow
  uint32_t flow_info;
  uint8_t gid[16];
  uint64_t service;
  uint64_t service_mask;
  uint64_t scope;
};
static_assert(sizeof(SockaddrIb) == 48);

inline SocketAddress AnyAddress(uint16_t family) {
  SocketAddress any;
  any.family = family;
  if (family == AF_INET) any.gid = roce::Gid::FromIpv4({});
  return any;
}

// `bytes` begin with an address family. Nothing: another family, or too short.
inline std::optional<SocketAddress> LoadSocketAddress(std::span<const std::byte> bytes) {
  SocketAddress out;
  if (bytes.size() < sizeof(sockaddr_in)) return std::nullopt;
  std::memcpy(&out.family, bytes.data(), sizeof(out.family));
  if (out.family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, bytes.data(), sizeof(in));
    roce::Ipv4 ip;
    std::memcpy(ip.bytes.data(), &in.sin_addr, sizeof(in.sin_addr));
    out.gid = roce::Gid::FromIpv4(ip);
    out.port = ntohs(in.sin_port);
    return out;
  }
  if (out.family == AF_IB) {
    SockaddrIb ib;
    if (bytes.size() < sizeof(ib)) return std::nullopt;
    std::memcpy(&ib, bytes.data(), sizeof(ib));
    std::memcpy(out.gid.bytes.data(), ib.gid, sizeof(ib.gid));
    out.service = be64toh(ib.service);
    out.service_mask = be64toh(ib.service_mask);
    out.port = static_cast<uint16_t>(out.service & out.service_mask);
    return out;
  }
  if (out.family != AF_INET6 || bytes.size() < sizeof(sockaddr_in6)) return std::nullopt;
  sockaddr_in6 in6;
  std::memcpy(&in6, bytes.data(), sizeof(in6));
  std::memcpy(out.gid.bytes.data(), &in6.sin6_addr, sizeof(in6.sin6_addr));
  out.port = ntohs(in6.sin6_port);
  out.scope = in6.sin6_scope_id;
  // An IPv4-mapped IPv6 address.
  if (out.gid.IsIpv4()) out.family = AF_INET;
  return out;
}

// Writes at most sizeof(SockaddrIb) bytes and returns their number; 0: no address.
inline size_t StoreSocketAddress(const SocketAddress& in, void* out) {
  if (in.family == AF_INET) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(in.port);
    const roce::Ipv4 ip = in.gid.ToIpv4();
    std::memcpy(&address.sin_addr, ip.bytes.data(), sizeof(address.sin_addr));
    std::memcpy(out, &address, sizeof(address));
    return sizeof(address);
  }
  if (in.family == AF_IB) {
    SockaddrIb address = {};
    address.family = AF_IB;
    address.pkey = roce::kDefaultPkey;
    std::memcpy(address.gid, in.gid.bytes.data(), sizeof(address.gid));
    address.service = htobe64(in.service);
    address.service_mask = htobe64(in.service_mask);
    std::memcpy(out, &address, sizeof(address));
    return sizeof(address);
  }
  if (in.family != AF_INET6) return 0;
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(in.port);
  address.sin6_scope_id = in.scope;
  std::memcpy(&address.sin6_addr, in.gid.bytes.data(), sizeof(address.sin6_addr));
  std::memcpy(out, &address, sizeof(address));
  return sizeof(address);
}

// An AF_IB address with a complete service ID.
inline SocketAddress ServiceAddress(const roce::Gid& gid, uint64_t service) {
  SocketAddress out;
  out.family = AF_IB;
  out.gid = gid;
  out.port = static_cast<uint16_t>(service);
  out.service = service;
  out.service_mask = ~uint64_t{0};
  return out;
}

// AF_INET for an IPv4-mapped `gid`, else AF_INET6.
inline SocketAddress AddressFromGid(const roce::Gid& gid, uint16_t port) {
  SocketAddress out;
  out.family = gid.IsIpv4() ? AF_INET : AF_INET6;
  out.gid = gid;
  out.port = port;
  return out;
}

}  // namespace roci::control::cm
