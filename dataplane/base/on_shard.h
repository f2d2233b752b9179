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

}  // namespace roci::dataplane
