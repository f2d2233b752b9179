// Quotas of a user in shared resources, and the time limit for opening a device.
#include "control/device/users.h"

#include <gtest/gtest.h>

#include <vector>

#include "control/loop/hello_deadlines.h"

namespace roci::control {
namespace {

constexpr uid_t kOwner = 1000;
constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

class UsersTest : public testing::Test {
 protected:
  SharedQuotas whole_{.sessions = Quota(10),
                      .descriptors = Quota(100),
                      .ring_memory = Quota(1000),
                      .ring_mappings = Quota(20),
                      .app_mappings = Quota(7)};
  Users users_{whole_, 30};
};

TEST_F(UsersTest, AUserHoldsItsPartExactly) {
  const std::shared_ptr<User> alice = users_.Get(kAlice);
  EXPECT_EQ(alice->sessions.limit(), 3u);
  EXPECT_EQ(alice->descriptors.limit(), 30u);
  EXPECT_EQ(alice->ring_memory.limit(), 300u);
  EXPECT_EQ(alice->app_mappings.limit(), 2u);
  const QuotaShare three(alice->sessions, 3);
  EXPECT_TRUE(three.ok());
  EXPECT_FALSE(QuotaShare(alice->sessions, 1).ok());
  EXPECT_EQ(whole_.sessions.used(), 3u);
}

TEST_F(UsersTest, RingsTakeMemoryAndMappings) {
  const std::shared_ptr<User> alice = users_.Get(kAlice);
  RingShare first = alice->TakeRings(100);
  EXPECT_TRUE(first.ok());
  EXPECT_EQ(alice->ring_memory.left(), 200u);
  EXPECT_EQ(alice->ring_mappings.left(), 5u);
  EXPECT_FALSE(alice->TakeRings(201).ok());
  EXPECT_FALSE(alice->TakeRings(1, 6).ok());
  EXPECT_TRUE(alice->TakeRings(200, 5).ok());
  first = RingShare();
  EXPECT_EQ(whole_.ring_mappings.used(), 0u);
}

TEST_F(UsersTest, AppMemoryTakesMappingsAndAddresses) {
  const std::shared_ptr<User> alice = users_.Get(kAlice);
  EXPECT_LT(alice->app_bytes.limit(), SharedQuotas::kMaxAppBytes / 3);
  EXPECT_TRUE(alice->TakeAppMappings(2, 1).ok());
  EXPECT_FALSE(alice->TakeAppMappings(3, 1).ok());
  EXPECT_FALSE(alice->TakeAppMappings(1, SharedQuotas::kMaxAppBytes).ok());
  EXPECT_EQ(whole_.app_bytes.used(), 0u);
}

// One user's memory that waits to be unmapped does not keep another user's from being mapped.
TEST_F(UsersTest, MappingsThatAreNotUnmappedYetCountForTheirUser) {
  std::shared_ptr<User> alice = users_.Get(kAlice);
  const std::shared_ptr<User> bob = users_.Get(kBob);
  EXPECT_TRUE(alice->MayMap());
  alice->retired->mappings = User::kMostRetired;
  EXPECT_FALSE(alice->MayMap());
  EXPECT_TRUE(bob->MayMap());
  alice->retired->mappings = 0;
  alice->retired->bytes = User::kMostRetiredBytes;
  EXPECT_FALSE(alice->MayMap());
  EXPECT_TRUE(bob->MayMap());
  const std::shared_ptr<memory::RetiredUse> waiting = alice->retired;
  alice.reset();
  EXPECT_FALSE(users_.Get(kAlice)->MayMap()) << "after its last session, too";
}

TEST_F(UsersTest, RootAndTheOwnerMayTakeEverythingThatIsLeft) {
  const std::shared_ptr<User> alice = users_.Get(kAlice);
  const QuotaShare taken(alice->sessions, 2);
  for (const uid_t uid : {uid_t{0}, kOwner}) {
    const std::shared_ptr<User> user = users_.Get(uid, true);
    EXPECT_EQ(user->sessions.limit(), 10u);
    EXPECT_EQ(user->sessions.left(), 8u);
    EXPECT_FALSE(QuotaShare(user->sessions, 9).ok()) << "the whole rules";
    EXPECT_TRUE(QuotaShare(user->sessions, 8).ok());
  }
}

// As the root of a container, which lacks capabilities.
TEST_F(UsersTest, RootThatIsNotTrustedIsAnOrdinaryUser) {
  const std::shared_ptr<User> user = users_.Get(0);
  EXPECT_EQ(user->sessions.limit(), 3u);
  EXPECT_NE(user, users_.Get(0, true));
  EXPECT_EQ(users_.Get(0), user);
}

TEST_F(UsersTest, SessionsOfOneUserShareAndOthersDoNot) {
  const std::shared_ptr<User> alice = users_.Get(kAlice);
  const QuotaShare three(alice->sessions, 3);
  EXPECT_EQ(users_.Get(kAlice), alice);
  EXPECT_TRUE(QuotaShare(users_.Get(kBob)->sessions, 3).ok());
}

// As a copy that waits for a page: it outlives the sessions of its program.
TEST_F(UsersTest, CopiesUnderWayCountAfterTheLastSession) {
  std::shared_ptr<dataplane::CopyUse> copy = users_.Get(kAlice)->copy_use;
  copy->threads = 3;
  EXPECT_EQ(users_.Get(kAlice)->copy_use, copy);
  EXPECT_NE(users_.Get(kBob)->copy_use, copy);
  EXPECT_EQ(users_.Get(kAlice)->copy_use->threads, 3u) << "while another user came";
  copy.reset();
  EXPECT_EQ(users_.Get(kAlice)->copy_use->threads, 0u);
}

TEST_F(UsersTest, UsersWhoHaveBlockedAnLcoreAreKnownAfterTheirLastSession) {
  EXPECT_EQ(users_.Get(kAlice)->copy_use->account, kAlice);
  EXPECT_FALSE(users_.Get(kAlice)->copy_use->is_trusted);
  EXPECT_TRUE(users_.Get(kOwner, true)->copy_use->is_trusted);
  users_.Get(kAlice)->copy_use->SetBlocked();
  EXPECT_FALSE(users_.Get(kBob)->copy_use->has_blocked());
  EXPECT_TRUE(users_.Get(kAlice)->copy_use->has_blocked());
}

// Alice has the IDs from 100000 on for her containers, the owner those from 200000 on, root those
// from 300000 on.
TEST_F(UsersTest, SubordinateIdsShareThePartOfTheirAccount) {
  Users users(whole_, 30);
  for (const uid_t uid : {100'000, 165'535}) users.Learn(uid, kAlice);
  for (const uid_t uid : {200'001, 200'002}) users.Learn(uid, kOwner);
  for (const uid_t uid : {300'001, 300'002}) users.Learn(uid, 0);
  const std::shared_ptr<User> alice = users.Get(kAlice);
  EXPECT_EQ(users.Get(100'000), alice);
  EXPECT_EQ(users.Get(165'535), alice);
  EXPECT_NE(users.Get(kBob), alice);
  for (const uid_t container : {200'001, 300'001}) {
    EXPECT_EQ(users.Get(container)->sessions.limit(), 3u);
    EXPECT_EQ(users.Get(container), users.Get(container + 1)) << "of one account";
  }
  EXPECT_NE(users.Get(200'001), users.Get(kOwner, true)) << "not trusted";
  EXPECT_NE(users.Get(300'001), users.Get(0, true)) << "not trusted";
  EXPECT_EQ(users.Get(300'001), users.Get(0)) << "root of a container";
}

// What the daemon's cgroup may have: pages of programs' files are charged to it.
TEST_F(UsersTest, OrdinaryUsersMapNoMoreThanTheCgroupHolds) {
  SharedQuotas limited{.sessions = Quota(160),
                       .descriptors = Quota(1000),
                       .ring_memory = Quota(10),
                       .ring_mappings = Quota(20),
                       .app_mappings = Quota(32),
                       .charged_bytes = 1600};
  Users users(limited, 50);
  const std::shared_ptr<User> alice = users.Get(kAlice), bob = users.Get(kBob);
  EXPECT_EQ(alice->app_bytes.limit(), 800u);
  EXPECT_EQ(users.Get(0, true)->app_bytes.limit(), SharedQuotas::kMaxAppBytes);
  const QuotaShare first(alice->app_bytes, 800);
  EXPECT_EQ(bob->app_bytes.left(), 700u) << "a sixteenth is kept back";
}

TEST_F(UsersTest, AUsersQuotasAreFreedWithItsLastSession) {
  {
    std::shared_ptr<User> alice = users_.Get(kAlice);
    const QuotaShare three(alice->sessions, 3);
    EXPECT_EQ(whole_.sessions.used(), 3u);
  }
  EXPECT_EQ(whole_.sessions.used(), 0u);
  EXPECT_EQ(users_.Get(kAlice)->sessions.used(), 0u);
}

TEST_F(UsersTest, ManyUsersLeaveAReserveToRootAndTheOwner) {
  SharedQuotas large{.sessions = Quota(160),
                     .descriptors = Quota(1000),
                     .ring_memory = Quota(10),
                     .ring_mappings = Quota(20),
                     .app_mappings = Quota(32)};
  Users users(large, 100);
  const std::shared_ptr<User> alice = users.Get(kAlice);
  const std::shared_ptr<User> bob = users.Get(kBob);
  const QuotaShare first(alice->descriptors, 600);
  EXPECT_FALSE(QuotaShare(bob->descriptors, 340).ok());
  const QuotaShare second(bob->descriptors, 338);
  EXPECT_TRUE(second.ok());
  EXPECT_EQ(alice->descriptors.left(), 0u);
  EXPECT_EQ(users.Get(0, true)->descriptors.left(), 62u);
  EXPECT_EQ(users.Get(kOwner, true)->descriptors.left(), 62u);
  EXPECT_EQ(alice->sessions.left(), 150u);
  EXPECT_EQ(alice->app_mappings.left(), 30u);
  EXPECT_EQ(alice->ring_memory.left(), 10u) << "too little to keep any back";
  EXPECT_EQ(alice->event_channels.left(), SharedQuotas::kMaxEventChannels * 15 / 16);
  EXPECT_EQ(alice->identifiers.left(), SharedQuotas::kMaxIdentifiers - 4095);
  // What the owner has is no longer there for the others.
  const QuotaShare owned(users.Get(kOwner, true)->sessions, 20);
  EXPECT_EQ(alice->sessions.left(), 140u);
}

TEST_F(UsersTest, DeviceLimitsAreReducedToTheUsersPart) {
  DeviceLimits limits;
  limits.max_qp = 10;
  limits.max_pd = 1;
  DeviceQuotas device(limits);
  const std::shared_ptr<User> alice = users_.Get(kAlice);
  EXPECT_EQ(alice->LimitsOf(limits).max_qp, 3u);
  EXPECT_EQ(alice->LimitsOf(limits).max_pd, 1u) << "at least one";
  EXPECT_EQ(alice->LimitsOf(limits).max_qp_wr, limits.max_qp_wr) << "no count of objects";
  EXPECT_EQ(users_.Get(kOwner, true)->LimitsOf(limits).max_qp, 10u);
  DeviceQuotas& part = alice->QuotasOf(limits, device);
  EXPECT_EQ(&part, &alice->QuotasOf(limits, device));
  const QuotaShare three(part.qps, 3);
  EXPECT_TRUE(three.ok());
  EXPECT_FALSE(part.qps.Take());
  EXPECT_EQ(device.qps.used(), 3u);
  EXPECT_EQ(users_.Get(kBob)->QuotasOf(limits, device).qps.left(), 3u);
}

// Two users with half of everything each.
TEST_F(UsersTest, OrdinaryUsersLeaveAReserveOfEachDevice) {
  Users users(whole_, 50);
  DeviceLimits limits;
  limits.max_qp = 160;
  limits.max_srq = 10;
  DeviceQuotas device(limits), second_device(limits);
  const std::shared_ptr<User> alice = users.Get(kAlice), bob = users.Get(kBob);
  const std::shared_ptr<User> owner = users.Get(kOwner, true), root = users.Get(0, true);
  const QuotaShare first(alice->QuotasOf(limits, device).qps, 80);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(QuotaShare(bob->QuotasOf(limits, device).qps, 80).ok());
  const QuotaShare second(bob->QuotasOf(limits, device).qps, 70);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(bob->QuotasOf(limits, device).qps.left(), 0u);
  EXPECT_EQ(bob->QuotasOf(limits, second_device).qps.left(), 80u) << "each device has its own";
  EXPECT_EQ(owner->QuotasOf(limits, device).qps.left(), 10u);
  EXPECT_TRUE(QuotaShare(root->QuotasOf(limits, device).qps, 10).ok());
  for (Quota DeviceQuotas::*quota :
       {&DeviceQuotas::cqs, &DeviceQuotas::mrs, &DeviceQuotas::mws, &DeviceQuotas::dm_bytes,
        &DeviceQuotas::pds, &DeviceQuotas::ahs, &DeviceQuotas::multicast,
        &DeviceQuotas::multicast_groups, &DeviceQuotas::flows, &DeviceQuotas::counters,
        &DeviceQuotas::work_queues, &DeviceQuotas::queue_tables, &DeviceQuotas::xrcds,
        &DeviceQuotas::multicast_joins, &DeviceQuotas::path_waits,
        &DeviceQuotas::unresolved_peers}) {
    Quota& of_alice = alice->QuotasOf(limits, device).*quota;
    Quota& of_bob = bob->QuotasOf(limits, device).*quota;
    const QuotaShare all_of_alice(of_alice, of_alice.left());
    const QuotaShare all_of_bob(of_bob, of_bob.left());
    EXPECT_GE((owner->QuotasOf(limits, device).*quota).left(), (device.*quota).limit() / 16);
  }
  EXPECT_EQ(alice->MostOf(limits.max_multicast_members), 240u);
  EXPECT_EQ(root->MostOf(limits.max_multicast_members), 256u);
  EXPECT_EQ(alice->LimitsOf(limits).max_srq, 5u) << "too few to keep any back";
  Users generous(whole_, 100);
  EXPECT_EQ(generous.Get(kAlice)->LimitsOf(limits).max_qp, 150u) << "no more than there is";
  EXPECT_EQ(generous.Get(kOwner, true)->LimitsOf(limits).max_qp, 160u);
}

// As of a multicast membership whose identifier has migrated to a channel of another user.
TEST_F(UsersTest, AShareKeepsItsUserAlive) {
  UserShare share(users_.Get(kAlice), users_.Get(kAlice)->sessions, 2);
  ASSERT_TRUE(share.ok());
  EXPECT_EQ(users_.Get(kAlice)->sessions.used(), 2u) << "after the last session, too";
  std::vector<UserShare> shares;
  shares.push_back(std::move(share));
  shares.emplace_back(users_.Get(kBob), users_.Get(kBob)->sessions, 1);
  shares.erase(shares.begin());
  EXPECT_EQ(users_.Get(kAlice)->sessions.used(), 0u);
  EXPECT_EQ(whole_.sessions.used(), 1u);
}

TEST_F(UsersTest, LargeLimitsDoNotOverflow) {
  SharedQuotas large{.sessions = Quota(1),
                     .descriptors = Quota(1),
                     .ring_memory = Quota(~uint64_t{0}),
                     .ring_mappings = Quota(20),
                     .app_mappings = Quota(0)};
  Users users(large, 99);
  EXPECT_GT(users.Get(kAlice)->ring_memory.limit(), ~uint64_t{0} / 100 * 98);
  EXPECT_LT(users.Get(kAlice)->ring_memory.limit(), ~uint64_t{0});
  EXPECT_EQ(users.Get(kAlice)->app_mappings.left(), 0u) << "never more than the whole has";
}

TEST(HelloDeadlinesTest, NumbersAreDueInTimeAndOnce) {
  HelloDeadlines deadlines;
  EXPECT_EQ(deadlines.Next(), roce::kNever);
  const roce::TimeNs first = deadlines.Add(1, 1000);
  const roce::TimeNs second = deadlines.Add(2, 2000);
  EXPECT_EQ(first, 1000 + HelloDeadlines::kLimit);
  EXPECT_EQ(deadlines.Next(), first);
  EXPECT_TRUE(deadlines.TakeDue(first - 1).empty());
  EXPECT_EQ(deadlines.TakeDue(first), std::vector<uint32_t>{1});
  EXPECT_EQ(deadlines.Next(), second);
  deadlines.Forget(2, second);
  deadlines.Forget(2, second);
  EXPECT_EQ(deadlines.Next(), roce::kNever);
  EXPECT_TRUE(deadlines.TakeDue(second).empty());
}

}  // namespace
}  // namespace roci::control
