// Frames of one direction that wait until others have overtaken them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

struct rte_mbuf;

namespace roci::dataplane {

// On the shard.
class OvertakenFrames {
 public:
  static constexpr size_t kCapacity = 64;
  // A frame that nothing overtakes goes on after this time.
  static constexpr uint64_t kMostNs = 1'000'000'000;

  OvertakenFrames() { waiting_.reserve(kCapacity); }
  ~OvertakenFrames();
  OvertakenFrames(const OvertakenFrames&) = delete;
  OvertakenFrames& operator=(const OvertakenFrames&) = delete;

  // Takes ownership of the frame, which waits for `count` others. False: no room; the caller keeps
  // it.
  bool Push(rte_mbuf* frame, uint8_t to, uint32_t count, uint64_t now_ns);
  // A frame has passed. Calls go(frame, to) for each frame whose count reached 0; passes ownership.
  template <class Go>
  void NotePassed(Go&& go);
  // The same for frames that have waited for too long.
  template <class Go>
  void ReleaseOverdue(uint64_t now_ns, Go&& go);
  uint64_t next_due() const;
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    rte_mbuf* frame;
    uint64_t due_ns;
    uint32_t left;
    uint8_t to;
  };
  template <class Ends, class Go>
  void Release(Ends&& ends, Go&& go);

  std::vector<Waiting> waiting_;
};

template <class Ends, class Go>
void OvertakenFrames::Release(Ends&& ends, Go&& go) {
  std::erase_if(waiting_, [&](Waiting& waiting) {
    if (!ends(waiting)) return false;
    go(waiting.frame, waiting.to);
    return true;
  });
}

template <class Go>
void OvertakenFrames::NotePassed(Go&& go) {
  if (waiting_.empty()) return;
  Release([](Waiting& waiting) { return --waiting.left == 0; }, go);
}

template <class Go>
void OvertakenFrames::ReleaseOverdue(uint64_t now_ns, Go&& go) {
  if (waiting_.empty()) return;
  Release([now_ns](const Waiting& waiting) { return waiting.due_ns <= now_ns; }, go);
}

}  // namespace roci::dataplane
