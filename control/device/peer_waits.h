// The waits of users for the resolution of peers, which limit each user's part of a device's
// neighbour cache: of its waiters, and of its unresolved entries. Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "control/device/quota.h"
#include "roce/types.h"

namespace roci::control {

class PeerWaits {
 public:
  // One wait; the destructor ends it. The PeerWaits and the quotas outlive it.
  class Wait {
   public:
    Wait() = default;
    Wait(Wait&& other) noexcept
        : waits_(std::exchange(other.waits_, nullptr)),
          user_(other.user_),
          peer_(other.peer_),
          share_(std::move(other.share_)) {}
    Wait& operator=(Wait&& other) = delete;
    ~Wait() { End(); }
    void End();
    const roce::NetAddress& peer() const { return peer_; }

   private:
    friend class PeerWaits;
    Wait(PeerWaits& waits, const Quota& user, const roce::NetAddress& peer, QuotaShare share)
        : waits_(&waits), user_(&user), peer_(peer), share_(std::move(share)) {}
    PeerWaits* waits_ = nullptr;
    const Quota* user_ = nullptr;
    roce::NetAddress peer_;
    QuotaShare share_;
  };

  // `waits`, `peers`: one user's quotas of waits and of different peers; `peers` also identifies
  // the user. ResourceExhausted: one of them is used up.
  absl::StatusOr<Wait> Begin(const roce::NetAddress& peer, Quota& waits, Quota& peers);

 private:
  struct OfPeer {
    QuotaShare share;
    uint32_t waits = 0;
  };
  std::map<std::pair<const Quota*, roce::NetAddress>, OfPeer> peers_;
};

}  // namespace roci::control
