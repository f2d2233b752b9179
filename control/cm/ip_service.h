// RDMA connections by IP address: the service IDs of port spaces and the header that carries the
// addresses in a request's private data (IBTA vol 1, annex A11). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "roce/types.h"

namespace roci::control::cm {

// Values of RDMA_PS_*; bytes 4 and 5 of a service ID (A11.2).
enum class PortSpace : uint16_t { kIpoib = 0x0002, kIb = 0x013F, kTcp = 0x0106, kUdp = 0x0111 };
std::optional<PortSpace> PortSpaceFrom(uint16_t value);

struct IpService {
  PortSpace space = PortSpace::kTcp;
  uint16_t port = 0;
  friend bool operator==(const IpService&, const IpService&) = default;
};
uint64_t ServiceIdOf(const IpService& service);
// The port space of a service ID that an identifier of port space `own` is bound to. Only the bits
// in `mask` count; if they leave a choice, `own` is preferred. Nothing: not an IP service.
std::optional<PortSpace> PortSpaceOfService(PortSpace own, uint64_t service_id, uint64_t mask);
// Nothing: the service is not in one of RDMA's IP port spaces.
std::optional<IpService> IpServiceOf(uint64_t service_id);

// The addresses of a request (A11.4): 36 bytes before the program's own private data.
struct IpHeader {
  uint16_t source_port = 0;
  roce::Gid source;  // both IPv4-mapped, or neither
  roce::Gid destination;
  friend bool operator==(const IpHeader&, const IpHeader&) = default;
};
inline constexpr size_t kIpHeaderBytes = 36;
using IpHeaderBytes = std::array<std::byte, kIpHeaderBytes>;

IpHeaderBytes BuildIpHeader(const IpHeader& header);
// Nothing: `private_data` is too short, or has an unknown version or IP version.
std::optional<IpHeader> ParseIpHeader(std::span<const std::byte> private_data);

}  // namespace roci::control::cm
