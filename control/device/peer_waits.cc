#include "control/device/peer_waits.h"

namespace roci::control {

absl::StatusOr<PeerWaits::Wait> PeerWaits::Begin(const roce::NetAddress& peer, Quota& waits,
                                                 Quota& peers) {
  QuotaShare share(waits, 1);
  if (!share.ok()) return LimitReached("paths whose peer is being resolved");
  auto it = peers_.find({&peers, peer});
  if (it == peers_.end()) {
    QuotaShare of_peer(peers, 1);
    if (!of_peer.ok()) return LimitReached("peers that are being resolved");
    it = peers_.emplace(std::pair{&peers, peer}, OfPeer{std::move(of_peer)}).first;
  }
  ++it->second.waits;
  return Wait(*this, peers, peer, std::move(share));
}

void PeerWaits::Wait::End() {
  if (waits_ == nullptr) return;
  const auto it = waits_->peers_.find({user_, peer_});
  if (--it->second.waits == 0) waits_->peers_.erase(it);
  share_.Reset();
  waits_ = nullptr;
}

}  // namespace roci::control
