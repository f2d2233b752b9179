#include "control/cm/ip_service.h"

#include <algorithm>
#include <cstring>

#include "roce/headers.h"

namespace roci::control::cm {
namespace {

constexpr uint32_t kPortBits = 16;  // the low bits of a service ID; the port space is above
// The IP header in private data (IBTA vol 1, A11.3).
constexpr uint8_t kVersion = 0;
constexpr size_t kIpVersionOffset = 1;  // in the upper 4 bits
constexpr size_t kSourcePortOffset = 2;
constexpr size_t kSourceOffset = 4;
constexpr size_t kDestinationOffset = 20;
constexpr size_t kAddressBytes = 16;
constexpr size_t kIpv4At = 12;  // an IPv4 address is the last 4 bytes, after 12 zero bytes

void StoreAddress(const roce::Gid& address, std::byte* out) {
  std::memcpy(out, address.bytes.data(), kAddressBytes);
  if (address.IsIpv4()) std::memset(out, 0, kIpv4At);
}

roce::Gid LoadAddress(const std::byte* in, bool ipv4) {
  roce::Gid address;
  std::memcpy(address.bytes.data(), in, kAddressBytes);
  if (!ipv4) return address;
  const auto& b = address.bytes;
  return roce::Gid::FromIpv4(roce::Ipv4{{b[12], b[13], b[14], b[15]}});
}

}  // namespace

std::optional<PortSpace> PortSpaceFrom(uint16_t value) {
  for (const PortSpace space :
       {PortSpace::kIpoib, PortSpace::kIb, PortSpace::kTcp, PortSpace::kUdp}) {
    if (static_cast<uint16_t>(space) == value) return space;
  }
  return std::nullopt;
}

uint64_t ServiceIdOf(const IpService& service) {
  return uint64_t{static_cast<uint16_t>(service.space)} << kPortBits | service.port;
}

std::optional<PortSpace> PortSpaceOfService(PortSpace own, uint64_t service_id, uint64_t mask) {
  mask &= ~uint64_t{0} << kPortBits;
  for (const PortSpace space : {PortSpace::kIb, PortSpace::kTcp, PortSpace::kUdp}) {
    const bool is_allowed = own == space || own == PortSpace::kIb;
    if (is_allowed && ((service_id ^ ServiceIdOf({space, 0})) & mask) == 0) return space;
  }
  return std::nullopt;
}

std::optional<IpService> IpServiceOf(uint64_t service_id) {
  const std::optional<PortSpace> space =
      service_id >> 32 == 0 ? PortSpaceFrom(static_cast<uint16_t>(service_id >> kPortBits))
                            : std::nullopt;
  if (!space) return std::nullopt;
  return IpService{*space, static_cast<uint16_t>(service_id)};
}

IpHeaderBytes BuildIpHeader(const IpHeader& header) {
  IpHeaderBytes out{};
  roce::StoreBe<uint8_t>(out.data(), kVersion);
  roce::StoreBe<uint8_t>(out.data() + kIpVersionOffset,
                         header.destination.IsIpv4() ? 4 << 4 : 6 << 4);
  roce::StoreBe<uint16_t>(out.data() + kSourcePortOffset, header.source_port);
  StoreAddress(header.source, out.data() + kSourceOffset);
  StoreAddress(header.destination, out.data() + kDestinationOffset);
  return out;
}

std::optional<IpHeader> ParseIpHeader(std::span<const std::byte> private_data) {
  if (private_data.size() < kIpHeaderBytes) return std::nullopt;
  const std::byte* in = private_data.data();
  const uint8_t ip_version = roce::LoadBe<uint8_t>(in + kIpVersionOffset) >> 4;
  if (roce::LoadBe<uint8_t>(in) != kVersion || (ip_version != 4 && ip_version != 6)) {
    return std::nullopt;
  }
  IpHeader header;
  header.source_port = roce::LoadBe<uint16_t>(in + kSourcePortOffset);
  header.source = LoadAddress(in + kSourceOffset, ip_version == 4);
  header.destination = LoadAddress(in + kDestinationOffset, ip_version == 4);
  return header;
}

}  // namespace roci::control::cm
