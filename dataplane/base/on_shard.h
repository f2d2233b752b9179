// A token that proves that its holder runs as the shard (an lcore with all that it owns): in the
// lcore's loop, or in a function that runs in its place while the loop is stopped. Functions of a
// shard that other threads could reach take this token, so that calls from other threads do not
// compile.
#pragma once

namespace roci::dataplane {

// Only the loop, which keeps one, and the function that runs others in its place make one.
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
