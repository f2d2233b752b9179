// The program of root that must not be affected: it moves patterned data between two of its queue
// pairs, compares every byte, and makes control calls from time to time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace roci::testing::hostile {

// Shared by the victim, which writes it, and the campaign.
struct VictimPage {
  std::atomic<uint64_t> rounds;           // all of it, once
  std::atomic<uint64_t> longest_step_ns;  // of an operation or call; may be set back
  std::atomic<uint64_t> step_ns;          // of the one under way, so far
  std::atomic<uint32_t> wants_pause;      // written by the campaign
  std::atomic<uint32_t> is_paused;
  std::atomic<uint32_t> has_failed;
  char failure[256];  // what went wrong first
  // For attackers who know everything.
  std::atomic<uint32_t> near_qpn;
  std::atomic<uint32_t> far_qpn;
  std::atomic<uint32_t> rkey;
  std::atomic<uint64_t> remote_va;
};

// The group that the victim joins now and then.
inline constexpr uint8_t kVictimsGroup[16] = {0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9};

// Operations between two control calls.
inline constexpr uint64_t kRoundsBetweenCalls = 8;

class Victim {
 public:
  // Forks. `page` is shared memory.
  explicit Victim(VictimPage& page);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  bool is_alive() const;
  // True once it has done `count` more rounds; false after `limit_ms`, or when it has failed.
  bool AwaitRounds(uint64_t count, uint64_t limit_ms) const;
  // Between two rounds. False if it does not come to that in `limit_ms`.
  bool Pause(uint64_t limit_ms);
  void Resume();

 private:
  VictimPage& page_;
  pid_t pid_ = -1;
};

}  // namespace roci::testing::hostile
