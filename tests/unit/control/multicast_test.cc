#include "control/multicast.h"

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

TEST(MulticastCensusTest, HoldsItsLimitsExactly) {
  MulticastCensus census;
  std::vector<MulticastCensus::Membership> members;
  for (uint32_t g = 0; g < kMaxMulticastGroups; ++g) members.push_back(*census.Join(Group(g)));
  EXPECT_TRUE(absl::IsResourceExhausted(census.Join(Group(kMaxMulticastGroups)).status()));
  for (uint32_t m = 1; m < kMaxMulticastMembers; ++m) members.push_back(*census.Join(Group(0)));
  EXPECT_TRUE(absl::IsResourceExhausted(census.Join(Group(0)).status()));
  members.pop_back();
  EXPECT_TRUE(census.Join(Group(0)).ok()) << "and it ends at once";
  EXPECT_EQ(census.memberships(), kMaxMulticastGroups + kMaxMulticastMembers - 2);
  members.clear();
  EXPECT_EQ(census.groups(), 0u);
  EXPECT_EQ(census.memberships(), 0u);
}

TEST(MulticastCensusTest, MembershipsMove) {
  MulticastCensus census;
  MulticastCensus::Membership a = *census.Join(Group(1));
  MulticastCensus::Membership b = *census.Join(Group(2));
  a = std::move(b);
  EXPECT_EQ(census.groups(), 1u);
  EXPECT_EQ(a.group(), Group(2));
}

}  // namespace
}  // namespace roci::control
