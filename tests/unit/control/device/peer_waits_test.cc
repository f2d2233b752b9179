#include "control/device/peer_waits.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace roci::control {
namespace {

roce::NetAddress Peer(uint8_t number, uint16_t vlan = 0) {
  roce::NetAddress peer;
  peer.gid.bytes[0] = 0xFE;
  peer.gid.bytes[15] = number;
  peer.vlan = vlan;
  return peer;
}

class PeerWaitsTest : public testing::Test {
 protected:
  struct OfUser {
    OfUser(uint64_t most_waits, uint64_t most_peers, Quota& all_waits, Quota& all_peers)
        : waits(most_waits, &all_waits), peers(most_peers, &all_peers) {}
    Quota waits, peers;
  };
  // Whether `user` may wait for `peer`, and then does.
  bool Begin(OfUser& user, const roce::NetAddress& peer) {
    absl::StatusOr<PeerWaits::Wait> wait = waits_.Begin(peer, user.waits, user.peers);
    EXPECT_TRUE(wait.ok() || absl::IsResourceExhausted(wait.status())) << wait.status();
    if (!wait.ok()) return false;
    under_way_.push_back(std::make_unique<PeerWaits::Wait>(*std::move(wait)));
    return true;
  }

  Quota all_waits_{6}, all_peers_{4};
  OfUser alice_{4, 2, all_waits_, all_peers_}, bob_{4, 2, all_waits_, all_peers_};
  PeerWaits waits_;
  std::vector<std::unique_ptr<PeerWaits::Wait>> under_way_;
};

TEST_F(PeerWaitsTest, AUserAtItsLimitOfPeersLeavesSomeToOthers) {
  EXPECT_TRUE(Begin(alice_, Peer(1)));
  EXPECT_TRUE(Begin(alice_, Peer(1, 100))) << "another peer, in a VLAN";
  EXPECT_FALSE(Begin(alice_, Peer(2)));
  EXPECT_EQ(alice_.waits.used(), 2u) << "a refusal takes nothing";
  EXPECT_TRUE(Begin(alice_, Peer(1))) << "it waits for this one already";
  EXPECT_TRUE(Begin(bob_, Peer(1)));
  EXPECT_TRUE(Begin(bob_, Peer(2)));
  EXPECT_EQ(all_peers_.used(), 4u) << "one that two users wait for counts twice";
}

TEST_F(PeerWaitsTest, AUserAtItsLimitOfWaitsLeavesSomeToOthers) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Begin(alice_, Peer(1)));
  EXPECT_FALSE(Begin(alice_, Peer(1)));
  EXPECT_FALSE(Begin(alice_, Peer(2)));
  EXPECT_EQ(alice_.peers.used(), 1u) << "a refusal takes nothing";
  EXPECT_TRUE(Begin(bob_, Peer(1)));
  EXPECT_TRUE(Begin(bob_, Peer(1)));
  EXPECT_FALSE(Begin(bob_, Peer(1))) << "the limit of all";
}

TEST_F(PeerWaitsTest, APeerCountsUntilItsLastWaitHasEnded) {
  EXPECT_TRUE(Begin(alice_, Peer(1)));
  EXPECT_TRUE(Begin(alice_, Peer(1)));
  EXPECT_TRUE(Begin(alice_, Peer(2)));
  under_way_.erase(under_way_.begin());
  EXPECT_EQ(alice_.waits.used(), 2u);
  EXPECT_EQ(alice_.peers.used(), 2u);
  under_way_.front()->End();
  under_way_.front()->End();
  EXPECT_EQ(alice_.peers.used(), 1u);
  EXPECT_TRUE(Begin(alice_, Peer(3)));
  under_way_.clear();
  EXPECT_EQ(all_waits_.used(), 0u);
  EXPECT_EQ(all_peers_.used(), 0u);
}

}  // namespace
}  // namespace roci::control
