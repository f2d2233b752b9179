#include "control/device/multicast.h"

#include <gtest/gtest.h>

#include <vector>

namespace roci::control {
namespace {

roce::Gid Group(uint32_t number) {
  roce::Gid gid;
  gid.bytes[0] = 0xFF;
  std::memcpy(gid.bytes.data() + 12, &number, sizeof(number));
  return gid;
}

constexpr uint32_t kMostGroups = DeviceLimits{}.max_multicast_groups;
constexpr uint32_t kMostMembers = DeviceLimits{}.max_multicast_members;

TEST(MulticastMembershipsTest, HoldsItsLimitsExactly) {
  MulticastMemberships memberships;
  Quota groups(kMostGroups);
  const auto join = [&](uint32_t number) {
    return memberships.Join(Group(number), groups, kMostMembers, kMostMembers);
  };
  std::vector<MulticastMemberships::Membership> members;
  for (uint32_t g = 0; g < kMostGroups; ++g) members.push_back(*join(g));
  EXPECT_TRUE(absl::IsResourceExhausted(join(kMostGroups).status()));
  for (uint32_t m = 1; m < kMostMembers; ++m) members.push_back(*join(0));
  EXPECT_TRUE(absl::IsResourceExhausted(join(0).status()));
  members.pop_back();
  EXPECT_TRUE(join(0).ok()) << "and it ends at once";
  EXPECT_EQ(memberships.memberships(), kMostGroups + kMostMembers - 2);
  members.clear();
  EXPECT_EQ(memberships.groups(), 0u);
  EXPECT_EQ(memberships.memberships(), 0u);
  EXPECT_EQ(groups.used(), 0u);
}

TEST(MulticastMembershipsTest, AUserHoldsItsPartExactly) {
  MulticastMemberships memberships;
  Quota all(3);
  Quota alice(2, &all), bob(2, &all);
  std::vector<MulticastMemberships::Membership> members;
  for (const uint32_t number : {1, 1, 2}) {
    members.push_back(*memberships.Join(Group(number), alice, 2, 4));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(memberships.Join(Group(3), alice, 2, 4).status()))
      << "groups";
  EXPECT_TRUE(absl::IsResourceExhausted(memberships.Join(Group(1), alice, 2, 4).status()))
      << "members";
  EXPECT_TRUE(memberships.Join(Group(1), bob, 2, 4).ok());
  members.push_back(*memberships.Join(Group(3), bob, 2, 4));
  EXPECT_EQ(all.used(), 3u);
  members.clear();
  EXPECT_EQ(all.used(), 0u);
}

TEST(MulticastMembershipsTest, AGroupReservesMembersForUnlimitedUsers) {
  MulticastMemberships memberships;
  Quota all(3);
  Quota alice(1, &all), bob(1, &all), root(3, &all);
  std::vector<MulticastMemberships::Membership> members;
  members.push_back(*memberships.Join(Group(1), alice, 2, 3));
  members.push_back(*memberships.Join(Group(1), alice, 2, 3));
  members.push_back(*memberships.Join(Group(1), bob, 2, 3));
  EXPECT_TRUE(absl::IsResourceExhausted(memberships.Join(Group(1), bob, 2, 3).status()));
  EXPECT_TRUE(memberships.Join(Group(1), root, 4, 4).ok());
}

// As of a device whose table of reported groups is full.
TEST(MulticastMembershipsTest, AGroupThatCannotBeJoinedGetsNoMember) {
  MulticastMemberships memberships;
  std::vector<roce::Gid> joined, left;
  bool has_room = false;
  memberships.SetListener({[&](const roce::Gid& group) {
                             if (has_room) joined.push_back(group);
                             return has_room;
                           },
                           [&](const roce::Gid& group) { left.push_back(group); }});
  Quota groups(2);
  EXPECT_TRUE(absl::IsResourceExhausted(memberships.Join(Group(1), groups, 2, 2).status()));
  EXPECT_EQ(groups.used(), 0u);
  EXPECT_EQ(memberships.groups(), 0u);
  EXPECT_EQ(memberships.memberships(), 0u);
  EXPECT_TRUE(left.empty()) << "never joined";
  has_room = true;
  {
    const auto first = memberships.Join(Group(1), groups, 2, 2);
    ASSERT_TRUE(first.ok());
    has_room = false;
    EXPECT_TRUE(memberships.Join(Group(1), groups, 2, 2).ok()) << "the group is joined";
    EXPECT_EQ(joined, std::vector<roce::Gid>{Group(1)});
    EXPECT_TRUE(left.empty());
  }
  EXPECT_EQ(left, joined);
}

TEST(MulticastMembershipsTest, MembershipsMove) {
  MulticastMemberships memberships;
  Quota groups(2);
  MulticastMemberships::Membership a = *memberships.Join(Group(1), groups, 1, 1);
  MulticastMemberships::Membership b = *memberships.Join(Group(2), groups, 1, 1);
  a = std::move(b);
  EXPECT_EQ(memberships.groups(), 1u);
  EXPECT_EQ(a.group(), Group(2));
  EXPECT_EQ(groups.used(), 1u);
}

}  // namespace
}  // namespace roci::control
