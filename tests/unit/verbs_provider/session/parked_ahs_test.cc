#include "verbs_provider/session/parked_ahs.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace roci::provider {
namespace {

constexpr uint32_t kPd = 5, kPaths = 9;
constexpr uint32_t kCapacity = ParkedAhs::kSets * ParkedAhs::kWays;

AhKey Key(uint8_t peer, uint32_t pd = kPd) {
  AhKey key = {pd, {}};
  key.attr.dgid[15] = peer;
  return key;
}

class ParkedAhsTest : public ::testing::Test {
 protected:
  // ROCI_ABI_NO_HANDLE: there is none.
  uint32_t Take(const AhKey& key, uint32_t paths = kPaths) {
    uint32_t handle = ROCI_ABI_NO_HANDLE;
    return ahs_->Take(key, paths, &handle) ? handle : ROCI_ABI_NO_HANDLE;
  }
  std::unique_ptr<ParkedAhs> ahs_ = std::make_unique<ParkedAhs>();
};

TEST_F(ParkedAhsTest, IsTakenBackOnceByTheSameAddressVectorAndDomain) {
  EXPECT_EQ(Take(Key(1)), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(ahs_->Park(Key(1), {0, kPaths}, kPaths), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(Take(Key(2)), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(Take(Key(1, kPd + 1)), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(Take(Key(1)), 0u);
  EXPECT_EQ(Take(Key(1)), ROCI_ABI_NO_HANDLE);
}

TEST_F(ParkedAhsTest, EqualAddressVectorsAreDifferentHandles) {
  EXPECT_EQ(ahs_->Park(Key(1), {3, kPaths}, kPaths), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(ahs_->Park(Key(1), {4, kPaths}, kPaths), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ((std::set<uint32_t>{Take(Key(1)), Take(Key(1))}), (std::set<uint32_t>{3, 4}));
}

TEST_F(ParkedAhsTest, PathsThatMayHaveChangedAreNotReused) {
  EXPECT_EQ(ahs_->Park(Key(1), {3, kPaths}, kPaths + 1), 3u);  // changed while it was in use
  EXPECT_EQ(ahs_->Park(Key(1), {4, kPaths}, kPaths), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(Take(Key(1), kPaths + 1), ROCI_ABI_NO_HANDLE);  // changed while it was parked
  EXPECT_EQ(ahs_->Remove(kPd), 4u);
}

// Otherwise each change of paths would leave one more handle in the daemon.
TEST_F(ParkedAhsTest, ThoseWhosePathsMayHaveChangedAreReplacedFirst) {
  EXPECT_EQ(ahs_->Park(Key(1), {3, kPaths}, kPaths), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(ahs_->Park(Key(1), {4, kPaths + 1}, kPaths + 1), 3u);
  EXPECT_EQ(Take(Key(1), kPaths + 1), 4u);
}

TEST_F(ParkedAhsTest, NothingIsParkedIfTheDaemonReportsNoChanges) {
  EXPECT_EQ(ahs_->Park(Key(1), {3, 0}, 0), 3u);
}

// No handle is lost: each is parked, taken, or returned to be destroyed.
TEST_F(ParkedAhsTest, HoldsABoundedNumber) {
  std::set<uint32_t> held;
  for (uint32_t handle = 0; handle < 4 * kCapacity; ++handle) {
    held.insert(handle);
    held.erase(ahs_->Park(Key(static_cast<uint8_t>(handle % 101)), {handle, kPaths}, kPaths));
  }
  EXPECT_LE(held.size(), kCapacity);
  EXPECT_GE(held.size(), kCapacity / 2);
  for (uint32_t handle; (handle = ahs_->Remove(ROCI_ABI_NO_HANDLE)) != ROCI_ABI_NO_HANDLE;) {
    EXPECT_EQ(held.erase(handle), 1u);
  }
  EXPECT_TRUE(held.empty());
}

TEST_F(ParkedAhsTest, AreRemovedByDomain) {
  for (uint32_t pd = 0; pd < 3; ++pd) {
    for (uint8_t peer = 0; peer < 5; ++peer) {
      ASSERT_EQ(ahs_->Park(Key(peer, pd), {pd * 10 + peer, kPaths}, kPaths), ROCI_ABI_NO_HANDLE);
    }
  }
  std::set<uint32_t> removed;
  for (uint32_t handle; (handle = ahs_->Remove(1)) != ROCI_ABI_NO_HANDLE;) removed.insert(handle);
  EXPECT_EQ(removed, (std::set<uint32_t>{10, 11, 12, 13, 14}));
  EXPECT_EQ(Take(Key(0, 1)), ROCI_ABI_NO_HANDLE);
  EXPECT_EQ(Take(Key(4, 2)), 24u);
}

}  // namespace
}  // namespace roci::provider
