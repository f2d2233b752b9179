// Token of the shard's thread: the lcore's loop, or a function that runs instead of the stopped
// loop. (A shard is an lcore with all that it owns.) Functions of a shard that other threads could
// reach take this token, so that calls from other threads do not compile.
#pragma once

namespace roci::dataplane {

// Created by Worker and Lcore only.
class OnShard {
 public:
  OnShard(const OnShard&) = delete;
  OnShard& operator=(const OnShard&) = delete;

 private:
  friend class Lcore;
  friend class Worker;
  friend struct OnShardInTests;
  OnShard() = default;
};

// The token, kept for the hosts of a shard's queue pairs: the transport core calls a host without
// one, and it calls it on the shard only. Nothing else can take the token out.
class OnShardForHosts {
 public:
  OnShardForHosts() = default;
  explicit OnShardForHosts(const OnShard& shard) : shard_(&shard) {}

 private:
  friend class QueuePairHost;
  const OnShard& Token() const { return *shard_; }
  const OnShard* shard_ = nullptr;
};

}  // namespace roci::dataplane
