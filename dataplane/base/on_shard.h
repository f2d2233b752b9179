// Proof that the code that has it runs as a shard, which is an lcore with all that it serves: in
// its loop, or in a function that runs in its place while it does nothing. What belongs to a shard
// and can be reached from elsewhere takes one, so that the compiler refuses calls from other
// threads.
#pragma once

namespace roci::dataplane {

// Made by the loop and by the function that runs others in its place, alone; never kept.
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
