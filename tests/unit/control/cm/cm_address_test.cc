// Addresses of librdmacm's identifiers, and their service IDs.
#include <endian.h>
#include <gtest/gtest.h>

#include "control/cm/ip_service.h"
#include "control/cm/socket_address.h"
#include "control/net/ip_text.h"

namespace roci::control::cm {
namespace {

constexpr uint64_t kPortSpaces = ~uint64_t{0xFFFF};

TEST(CmAddress, ServiceIdsSayTheirPortSpace) {
  const uint64_t tcp = ServiceIdOf({PortSpace::kTcp, 7});
  const uint64_t ib = ServiceIdOf({PortSpace::kIb, 7});
  EXPECT_EQ(tcp, 0x0000000001060007u);
  EXPECT_EQ(ib, 0x00000000013F0007u);
  EXPECT_EQ(PortSpaceOfService(PortSpace::kTcp, tcp, kPortSpaces), PortSpace::kTcp);
  EXPECT_EQ(PortSpaceOfService(PortSpace::kIb, tcp, kPortSpaces), PortSpace::kTcp);
  EXPECT_EQ(PortSpaceOfService(PortSpace::kIb, ib, ~uint64_t{0}), PortSpace::kIb);
  EXPECT_EQ(PortSpaceOfService(PortSpace::kTcp, ib, kPortSpaces), std::nullopt);
  EXPECT_EQ(PortSpaceOfService(PortSpace::kUdp, tcp, kPortSpaces), std::nullopt);
  EXPECT_EQ(PortSpaceOfService(PortSpace::kIpoib, 0, 0), std::nullopt);
  // The mask leaves the port space open: the identifier's own is used.
  for (const PortSpace own : {PortSpace::kTcp, PortSpace::kUdp, PortSpace::kIb}) {
    EXPECT_EQ(PortSpaceOfService(own, 0x1234, 0xFFFF), own);
    EXPECT_EQ(PortSpaceOfService(own, uint64_t{1} << 60, kPortSpaces), std::nullopt);
  }
}

TEST(CmAddress, IbAddressesRoundTrip) {
  SockaddrIb given = {};
  given.family = AF_IB;
  const roce::Gid gid = *ParseIp("fd00::7");
  std::memcpy(given.gid, gid.bytes.data(), sizeof(given.gid));
  given.service = htobe64(0x01061234);
  given.service_mask = htobe64(kPortSpaces | 0xFF00);
  const auto bytes = std::as_bytes(std::span<const SockaddrIb, 1>(&given, 1));
  const std::optional<SocketAddress> address = LoadSocketAddress(bytes);
  ASSERT_TRUE(address);
  EXPECT_EQ(address->family, AF_IB);
  EXPECT_EQ(address->gid, gid);
  EXPECT_EQ(address->port, 0x1200) << "only bits that count";
  EXPECT_EQ(address->service, 0x01061234u);
  EXPECT_FALSE(address->IsAny());
  for (size_t size = 0; size < sizeof(given); ++size) {
    EXPECT_FALSE(LoadSocketAddress(bytes.first(size))) << size;
  }
  SockaddrIb back = {};
  EXPECT_EQ(StoreSocketAddress(*address, &back), sizeof(back));
  given.pkey = 0xFFFF;
  EXPECT_EQ(std::memcmp(&given, &back, sizeof(back)), 0);
}

TEST(CmAddress, AGidOfZerosIsAny) {
  EXPECT_TRUE(ServiceAddress(roce::Gid{}, 1).IsAny());
  EXPECT_FALSE(ServiceAddress(*ParseIp("10.0.0.1"), 1).IsAny());
}

}  // namespace
}  // namespace roci::control::cm
