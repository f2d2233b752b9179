// The program of root that must not be affected: it moves patterned data between two of its queue
// pairs, compares every byte, and makes control calls from time to time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace roci::testing::hostile {

// Shared by the victim, which writes it, and the campaign.
struct VictimPage {
  std::atomic<uint64_t> rounds;           // complete rounds
  std::atomic<uint64_t> longest_step_ns;  // of an operation or call; may be reset
  std::atomic<uint64_t> step_ns;          // of the current one, so far
  std::atomic<uint32_t> wants_pause;      // written by the campaign
  std::atomic<uint32_t> is_paused;
  std::atomic<uint32_t> has_failed;
  char failure[256];  // the first failure
  // For attackers with full knowledge.
  std::atomic<uint32_t> near_qpn;
  std::atomic<uint32_t> far_qpn;
  std::atomic<uint32_t> rkey;
  std::atomic<uint64_t> remote_va;
};

// The group that the victim joins from time to time.
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
  // Waits for `count` more rounds. False after `limit_ms`, or if the victim has failed.
  bool AwaitRounds(uint64_t count, uint64_t limit_ms) const;
  // Pauses the victim between two rounds. False after `limit_ms`.
  bool Pause(uint64_t limit_ms);
  void Resume();

 private:
  VictimPage& page_;
  pid_t pid_ = -1;
};

}  // namespace roci::testing::hostile
