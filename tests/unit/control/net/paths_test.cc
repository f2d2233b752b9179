// Paths of address vectors: next hop, VLAN, hop limit, refusals.
#include "control/net/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "control/loop/errno_status.h"
#include "control/net/addresses.h"
#include "control/net/ip_text.h"

namespace roci::control {
namespace {

class PathTest : public testing::Test {
 protected:
  roci_abi_ah_attr Attr(const char* destination, uint8_t sgid_index) {
    roci_abi_ah_attr attr{};
    const roce::Gid gid = *ParseIp(destination);
    std::copy(gid.bytes.begin(), gid.bytes.end(), attr.dgid);
    attr.sgid_index = sgid_index;
    attr.is_global = 1;
    attr.port = 1;
    return attr;
  }
  int Plan(const roci_abi_ah_attr& attr) {
    return ErrnoOf(PlanPath(table_, attr, roce::Qpn(5), roce::Qpn(6)).status());
  }

  const std::vector<InterfaceAddress> addresses_ = {*ParseInterfaceAddress("10.0.0.1/24"),
                                                    *ParseInterfaceAddress("fd00::1/64")};
  const AddressTable table_{roce::Mac{{2, 0, 0, 0, 0, 1}}, addresses_, {}, {}};
};

TEST_F(PathTest, ToANeighbour) {
  roci_abi_ah_attr attr = Attr("10.0.0.2", 1);
  attr.traffic_class = 0xA8;
  attr.flow_label = 0xFFF12345;
  attr.hop_limit = 7;
  const absl::StatusOr<PathPlan> plan = PlanPath(table_, attr, roce::Qpn(5), roce::Qpn(6));
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->resolved);
  EXPECT_EQ(plan->next_hop, *ParseIp("10.0.0.2"));
  EXPECT_EQ(plan->path.src_gid, *ParseIp("10.0.0.1"));
  EXPECT_EQ(plan->path.dst_gid, *ParseIp("10.0.0.2"));
  EXPECT_EQ(plan->path.traffic_class, 0xA8);
  EXPECT_EQ(plan->path.flow_label, 0x12345u);
  EXPECT_EQ(plan->path.hop_limit, 7);
  EXPECT_GE(plan->path.udp_src_port, 0xC000);
}

// A mark that the sender made would count as congestion of the network at the receiver.
TEST_F(PathTest, ProgramsCannotSendCongestionMarks) {
  roci_abi_ah_attr attr = Attr("10.0.0.2", 1);
  for (uint8_t ecn = 0; ecn < 4; ++ecn) {
    attr.traffic_class = static_cast<uint8_t>(0xA8 | ecn);
    EXPECT_EQ(PlanPath(table_, attr, {}, {})->path.traffic_class, 0xA8 | (ecn == 3 ? 0 : ecn));
  }
}

TEST_F(PathTest, InfiniBandHopLimitsAreNotTaken) {
  for (const uint8_t given : {uint8_t{0}, uint8_t{1}}) {
    roci_abi_ah_attr attr = Attr("10.0.0.2", 1);
    attr.hop_limit = given;
    EXPECT_EQ(PlanPath(table_, attr, {}, {})->path.hop_limit, 64);
  }
}

TEST_F(PathTest, InAVlanFramesHaveItsTag) {
  VlanSettings vlan;
  vlan.id = 100;
  vlan.addresses = {*ParseInterfaceAddress("10.1.0.1/24")};
  vlan.egress_qos_map[2] = 5;
  const AddressTable table(roce::Mac{{2, 0, 0, 0, 0, 1}}, addresses_, {}, {}, {&vlan, 1});
  const auto plan = [&](const roci_abi_ah_attr& attr) { return PlanPath(table, attr, {}, {}); };
  ASSERT_TRUE(plan(Attr("10.0.0.2", 1)).ok());
  EXPECT_FALSE(plan(Attr("10.0.0.2", 1))->path.has_vlan);
  roci_abi_ah_attr attr = Attr("10.1.0.2", 4);
  ASSERT_TRUE(plan(attr).ok());
  EXPECT_TRUE(plan(attr)->path.has_vlan);
  EXPECT_EQ(plan(attr)->path.vlan_tci, 100);
  attr.traffic_class = 0x08;  // bulk
  EXPECT_EQ(plan(attr)->path.vlan_tci, 100 | 5 << 13) << "by the VLAN's map";
  attr.sl = 0xA;
  EXPECT_EQ(plan(attr)->path.vlan_tci, 100 | 5 << 13) << "no service level";
  attr.sl = 3;
  EXPECT_EQ(plan(attr)->path.vlan_tci, 100 | 3 << 13) << "a service level rules";
  EXPECT_EQ(ErrnoOf(plan(Attr("10.0.0.2", 4)).status()), ENETUNREACH) << "of another VLAN";
  EXPECT_EQ(ErrnoOf(plan(Attr("10.1.0.2", 1)).status()), ENETUNREACH) << "of a VLAN";
  attr = Attr("ff02::1", 3);
  ASSERT_TRUE(plan(attr).ok()) << "a group";
  EXPECT_EQ(plan(attr)->path.vlan(), 100);
}

TEST_F(PathTest, MulticastNeedsNoNeighbour) {
  const absl::StatusOr<PathPlan> plan = PlanPath(table_, Attr("239.1.2.3", 1), {}, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->resolved);
  EXPECT_EQ(MacText(plan->path.dst_mac), "01:00:5e:01:02:03");
}

TEST_F(PathTest, Refusals) {
  EXPECT_EQ(Plan(Attr("10.0.0.2", 1)), 0);
  EXPECT_EQ(Plan(Attr("10.0.0.2", 0)), EINVAL) << "families differ";
  EXPECT_EQ(Plan(Attr("fd00::2", 1)), EINVAL) << "families differ";
  EXPECT_EQ(Plan(Attr("10.0.0.2", 3)), EINVAL) << "no such index";
  EXPECT_EQ(Plan(Attr("::", 0)), EINVAL);
  EXPECT_EQ(Plan(Attr("10.0.1.2", 1)), ENETUNREACH) << "no gateway";
  roci_abi_ah_attr attr = Attr("10.0.0.2", 1);
  attr.port = 2;
  EXPECT_EQ(Plan(attr), EINVAL);
  attr = Attr("10.0.0.2", 1);
  attr.is_global = 0;
  EXPECT_EQ(Plan(attr), EINVAL);
}

}  // namespace
}  // namespace roci::control
