// The port numbers that identifiers hold.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <vector>

#include "control/cm/port_table.h"
#include "control/loop/errno_status.h"
#include "control/net/ip_text.h"

namespace roci::control::cm {
namespace {

CmId At(const char* address, uint16_t port) {
  CmId id;
  id.source = AddressFromGid(*ParseIp(address), port);
  return id;
}

TEST(CmPorts, ConflictAsLinuxSays) {
  PortTable table;
  CmId first = At("10.0.0.1", 7000);
  CmId same = At("10.0.0.1", 7000);
  CmId other = At("10.0.0.2", 7000);
  CmId any = At("10.0.0.1", 7000);
  any.source = AnyAddress(AF_INET);
  any.source.port = 7000;
  EXPECT_TRUE(table.Take(first, 0).ok());
  EXPECT_EQ(ErrnoOf(table.Take(same, 0)), EADDRINUSE);
  EXPECT_EQ(ErrnoOf(table.Take(any, 0)), EADDRNOTAVAIL);
  EXPECT_TRUE(table.Take(other, 0).ok());
  first.reuse_address = same.reuse_address = true;
  EXPECT_TRUE(table.Take(same, 0).ok());
  EXPECT_EQ(ErrnoOf(table.CheckListen(same)), EADDRINUSE);
  table.Give(first);
  EXPECT_TRUE(table.CheckListen(same).ok());
  CmId elsewhere = At("10.0.0.1", 7000);
  elsewhere.port_space = PortSpace::kUdp;
  EXPECT_TRUE(table.Take(elsewhere, 0).ok());
  for (CmId* id : {&same, &other, &elsewhere}) table.Give(*id);
  EXPECT_TRUE(table.Take(any, 0).ok()) << "nobody has it";
}

TEST(CmPorts, ListenersAreFoundAmongTheHoldersOfAPort) {
  PortTable table;
  CmId holder = At("10.0.0.1", 7000);
  CmId listener = At("10.0.0.2", 7000);
  ASSERT_TRUE(table.Take(holder, 0).ok());
  ASSERT_TRUE(table.Take(listener, 0).ok());
  EXPECT_TRUE(table.Listeners(PortSpace::kTcp, 7000).empty());
  table.Listen(listener);
  EXPECT_EQ(table.Listeners(PortSpace::kTcp, 7000), std::vector<CmId*>{&listener});
  EXPECT_TRUE(table.Listeners(PortSpace::kUdp, 7000).empty());
  table.Give(listener);
  EXPECT_TRUE(table.Listeners(PortSpace::kTcp, 7000).empty());
}

TEST(CmPorts, EachFreePortIsChosenOnce) {
  constexpr uint32_t kPorts = SharedQuotas::kChosenPorts;
  PortTable table;
  std::vector<CmId> ids(kPorts);
  std::set<uint16_t> chosen;
  for (uint32_t i = 0; i < kPorts; ++i) {
    ids[i].source = AnyAddress(AF_INET);
    ASSERT_TRUE(table.Take(ids[i], uint64_t{i} * i * 2654435761u).ok()) << i;
    EXPECT_GE(ids[i].source.port, SharedQuotas::kFirstChosenPort);
    EXPECT_LE(ids[i].source.port, SharedQuotas::kLastChosenPort);
    chosen.insert(ids[i].source.port);
  }
  EXPECT_EQ(chosen.size(), kPorts);
  CmId late;
  late.source = AnyAddress(AF_INET);
  EXPECT_EQ(ErrnoOf(table.Take(late, 5)), EADDRNOTAVAIL);
  CmId other_space;
  other_space.source = AnyAddress(AF_INET);
  other_space.port_space = PortSpace::kUdp;
  EXPECT_TRUE(table.Take(other_space, 5).ok());
  const uint16_t given = ids[kPorts / 3].source.port;
  table.Give(ids[kPorts / 3]);
  EXPECT_TRUE(table.Take(late, 5).ok());
  EXPECT_EQ(late.source.port, given);
}

TEST(CmPorts, TheFirstPortThatIsMissing) {
  PortSet set;
  EXPECT_EQ(set.FirstMissing(100, 200), 100);
  for (uint16_t port = 100; port < 192; ++port) set.Add(port);
  EXPECT_EQ(set.FirstMissing(99, 200), 99);
  EXPECT_EQ(set.FirstMissing(100, 200), 192) << "the first of a word";
  EXPECT_EQ(set.FirstMissing(100, 191), std::nullopt);
  EXPECT_EQ(set.FirstMissing(150, 200), 192);
  set.Remove(127);
  EXPECT_EQ(set.FirstMissing(100, 200), 127);
  EXPECT_EQ(set.FirstMissing(128, 191), std::nullopt);
  EXPECT_EQ(set.FirstMissing(UINT16_MAX, UINT16_MAX), UINT16_MAX);
  set.Add(UINT16_MAX);
  EXPECT_EQ(set.FirstMissing(UINT16_MAX, UINT16_MAX), std::nullopt);
}

// Listeners of both families on one port: allowed if the IPv6 one is IPv6-only.
TEST(CmPorts, AFamilyEach) {
  PortTable table;
  CmId v4 = At("10.0.0.1", 7000), v6 = At("fd00::1", 7000);
  v4.source = AnyAddress(AF_INET);
  v6.source = AnyAddress(AF_INET6);
  v4.source.port = v6.source.port = 7000;
  EXPECT_TRUE(table.Take(v4, 0).ok());
  EXPECT_EQ(ErrnoOf(table.Take(v6, 0)), EADDRNOTAVAIL);
  v6.family_only = true;
  EXPECT_TRUE(table.Take(v6, 0).ok());
  table.Give(v4);
  EXPECT_TRUE(table.Take(v4, 0).ok());
  for (CmId* id : {&v4, &v6}) table.Give(*id);
}

TEST(CmPorts, GivesOutEphemeralOnes) {
  PortTable table;
  CmId first = At("10.0.0.1", 0);
  CmId second = At("10.0.0.1", 0);
  EXPECT_TRUE(table.Take(first, 12345).ok());
  EXPECT_TRUE(table.Take(second, 12345).ok());
  EXPECT_GE(first.source.port, 32768);
  EXPECT_NE(first.source.port, second.source.port);
}

}  // namespace
}  // namespace roci::control::cm
