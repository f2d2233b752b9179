// Handle tables, quotas, errnos, address vectors, attributes.
#include <gtest/gtest.h>

#include <cerrno>

#include "control/device/quota.h"
#include "control/loop/errno_status.h"
#include "control/net/paths.h"
#include "control/session/context_group.h"
#include "control/session/handle_table.h"
#include "control/session/qp_attributes.h"

namespace roci::control {
namespace {

TEST(QuotaTest, HoldsItsLimitExactly) {
  Quota quota(3);
  EXPECT_TRUE(quota.Take(2));
  EXPECT_FALSE(quota.Take(2));
  EXPECT_TRUE(quota.Take(1));
  EXPECT_FALSE(quota.Take());
  EXPECT_FALSE(quota.Take(~uint64_t{0})) << "no wrap";
  quota.Give(3);
  EXPECT_EQ(quota.used(), 0u);
}

TEST(QuotaTest, SharesGiveBackOnce) {
  Quota quota(2);
  {
    QuotaShare a(quota, 2);
    EXPECT_TRUE(a.ok());
    QuotaShare refused(quota, 1);
    EXPECT_FALSE(refused.ok());
    QuotaShare b = std::move(a);
    EXPECT_EQ(quota.used(), 2u);
    b = QuotaShare();
    EXPECT_EQ(quota.used(), 0u);
    a = QuotaShare(quota, 1);
    a = QuotaShare(quota, 1);
    EXPECT_EQ(quota.used(), 1u);
  }
  EXPECT_EQ(quota.used(), 0u);
}

TEST(HandleTableTest, OfARange) {
  HandleTable<int> table(100);
  table.UseRange(0x1000001, 2);
  EXPECT_EQ(*table.Add(1), 0x1000001u);
  EXPECT_EQ(*table.Add(2), 0x1000002u);
  EXPECT_FALSE(table.Add(3).ok());
  table.Remove(0x1000001);
  EXPECT_EQ(*table.Add(3), 0x1000001u);
}

TEST(HandleTableTest, ARangeFromZero) {
  HandleTable<int> table(100);
  table.UseRange(0, 2);
  EXPECT_EQ(*table.Add(1), 0u);
  EXPECT_EQ(*table.Next(), 1u);
  EXPECT_EQ(*table.Next(), 1u) << "Next gives none away";
  EXPECT_TRUE(table.AddAs(1, 2));
  EXPECT_FALSE(table.Next().ok());
  table.Remove(0);
  EXPECT_EQ(*table.Add(3), 0u);
}

TEST(HandleTableTest, BeginsSomewhereInItsRange) {
  HandleTable<int> whole(100);
  whole.StartBehind(0xABCDE);
  EXPECT_EQ(*whole.Add(1), 0xABCDFu);
  HandleTable<int> table(100);
  table.UseRange(0x1000001, 4);
  table.StartBehind(4 * 1000 + 2);
  for (const uint32_t handle : {0x1000003u, 0x1000004u, 0x1000001u, 0x1000002u}) {
    EXPECT_EQ(*table.Add(1), handle);
  }
  EXPECT_FALSE(table.Add(1).ok());
}

TEST(RefCountTest, SharesGiveTheirPartBack) {
  RefCount original;
  ++original;
  {
    RefCount share = original.Share();
    ++share;
    ++share;
    --share;
    EXPECT_EQ(share.own(), 1u);
    EXPECT_EQ(original.total(), 2u);
  }
  EXPECT_EQ(original.total(), 1u);
  EXPECT_EQ(original.own(), 1u);
}

TEST(ContextGroupTest, FindsTheOwnerOfAHandle) {
  // Only compared, never dereferenced.
  int places[3];
  auto* opener = reinterpret_cast<Session*>(&places[0]);
  auto* second = reinterpret_cast<Session*>(&places[1]);
  auto* third = reinterpret_cast<Session*>(&places[2]);
  ContextGroup group(opener);
  const uint32_t base = group.Join(second);
  EXPECT_EQ(base, ContextGroup::kFirst);
  const uint32_t next = group.Join(third);
  EXPECT_EQ(next, base + ContextGroup::kRange);
  EXPECT_EQ(group.OwnerOf(1), opener);
  EXPECT_EQ(group.OwnerOf(ContextGroup::kFirst - 1), opener);
  EXPECT_EQ(group.OwnerOf(base + 1), second);
  EXPECT_EQ(group.OwnerOf(next - 1), second);
  EXPECT_EQ(group.OwnerOf(next), third);
  EXPECT_EQ(group.OwnerOf(UINT32_MAX), nullptr);
  group.Leave(second);
  EXPECT_EQ(group.OwnerOf(base + 1), nullptr);
  EXPECT_NE(group.Join(second), base) << "ranges go round";
  for (uint32_t i = 0; i < ContextGroup::kMaxMembers - 3; ++i) ASSERT_NE(group.Join(second), 0u);
  EXPECT_EQ(group.Join(second), 0u);
}

TEST(HandleTableTest, LimitAndReuse) {
  HandleTable<int> table(2);
  const uint32_t a = *table.Add(10);
  const uint32_t b = *table.Add(20);
  EXPECT_NE(a, b);
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add(30).status()));
  table.Remove(a);
  EXPECT_EQ(table.Find(a), nullptr);
  const uint32_t c = *table.Add(30);
  EXPECT_NE(c, a) << "a stale handle must not find another object";
  EXPECT_EQ(*table.Find(b), 20);
  EXPECT_EQ(*table.Find(c), 30);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_FALSE(table.AddAs(c, 40));
}

TEST(ErrnoTest, StatusesBecomeTheErrnosOfVerbs) {
  EXPECT_EQ(ErrnoOf(absl::OkStatus()), 0);
  EXPECT_EQ(ErrnoOf(absl::InvalidArgumentError("")), EINVAL);
  EXPECT_EQ(ErrnoOf(absl::NotFoundError("")), ENOENT);
  EXPECT_EQ(ErrnoOf(absl::FailedPreconditionError("")), EBUSY);
  EXPECT_EQ(ErrnoOf(absl::ResourceExhaustedError("")), ENOMEM);
  EXPECT_EQ(ErrnoOf(absl::UnimplementedError("")), EOPNOTSUPP);
  EXPECT_EQ(ErrnoOf(absl::PermissionDeniedError("")), EPERM);
  EXPECT_EQ(ErrnoOf(absl::DeadlineExceededError("")), ETIMEDOUT);
  EXPECT_EQ(ErrnoOf(absl::OutOfRangeError("")), EFAULT);
  EXPECT_EQ(ErrnoOf(absl::InternalError("")), EIO);
  for (const int error : {ENODEV, ENETUNREACH, EMFILE, EPROTO, ESRCH}) {
    EXPECT_EQ(ErrnoOf(StatusFromErrno(error, "x")), error);
  }
}

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

TEST(QpAttributesTest, RoundTrip) {
  roci_abi_qp_attr attr{};
  attr.state = 3;
  attr.cur_state = 2;
  attr.path_mtu = 5;
  attr.qkey = 0x11111111;
  attr.rq_psn = 0xABCDEF;
  attr.sq_psn = 0x123456;
  attr.dest_qpn = 0xFFFFFE;
  attr.access_flags = 0xE;
  attr.max_rd_atomic = 3;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.port = 1;
  attr.timeout = 14;
  attr.retry_count = 7;
  attr.rnr_retry = 6;
  const uint32_t mask = roce::kAttrState | roce::kAttrCurState | roce::kAttrPathMtu |
                        roce::kAttrDestQpn | roce::kAttrRqPsn | roce::kAttrSqPsn;
  roce::QpAttributes attributes;
  ASSERT_TRUE(AttributesFromAbi(attr, mask, attributes).ok());
  roci_abi_qp_attr back{};
  AttributesToAbi(attributes, back);
  EXPECT_EQ(std::memcmp(&attr, &back, sizeof(attr)), 0);
}

TEST(QpAttributesTest, Refusals) {
  const auto error = [](uint32_t mask, auto&& set) {
    roci_abi_qp_attr attr{};
    set(attr);
    roce::QpAttributes out;
    return ErrnoOf(AttributesFromAbi(attr, mask, out));
  };
  EXPECT_EQ(error(roce::kAttrState, [](auto& a) { a.state = 7; }), EINVAL);
  EXPECT_EQ(error(0, [](auto& a) { a.state = 7; }), 0) << "not named by the mask";
  EXPECT_EQ(error(roce::kAttrCurState, [](auto& a) { a.cur_state = ~0u; }), EINVAL);
  EXPECT_EQ(error(roce::kAttrPathMtu, [](auto& a) { a.path_mtu = 0; }), EINVAL);
  EXPECT_EQ(error(roce::kAttrPathMtu, [](auto& a) { a.path_mtu = 6; }), EINVAL);
  EXPECT_EQ(error(roce::kAttrDestQpn, [](auto& a) { a.dest_qpn = 1u << 24; }), EINVAL);
  EXPECT_EQ(error(1u << 21, [](auto&) {}), EINVAL);
  EXPECT_EQ(error(roce::kAttrCapabilities, [](auto&) {}), EOPNOTSUPP);
}

TEST(QpAttributesTest, TypesOffered) {
  EXPECT_TRUE(IsOfferedQpType(2));
  EXPECT_TRUE(IsOfferedQpType(3));
  EXPECT_TRUE(IsOfferedQpType(4));
  EXPECT_TRUE(IsOfferedQpType(8));
  EXPECT_TRUE(IsOfferedQpType(9));
  EXPECT_TRUE(IsOfferedQpType(10));
  for (const uint32_t type : {0u, 1u, 5u, 11u, 255u, 258u, ~0u}) {
    EXPECT_FALSE(IsOfferedQpType(type)) << type;
  }
}

}  // namespace
}  // namespace roci::control
