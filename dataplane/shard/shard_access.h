// The way from a client of the control thread to what a shard owns, for the files that execute
// commands. control/ cannot include this header.
#pragma once

#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/shard_client.h"

namespace roci::dataplane {

class ShardAccess {
 public:
  static Lcore& LcoreOf(Dataplane& dataplane, uint32_t index) { return *dataplane.lcores_[index]; }
  static Lcore& LcoreOf(ShardClient& client) { return *client.lcore_; }
  static ShardedDevice& DeviceOf(DeviceClient& client) { return *client.device_; }
  static PendingReleases& ReleasesOf(Dataplane& dataplane) { return *dataplane.releases_; }
  // The shard's side of the client's context.
  static VerbsContext& ContextOf(const OnShard&, ShardClient& client) { return *client.context_; }
};

}  // namespace roci::dataplane
