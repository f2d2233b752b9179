// The table of all attacks. An attack is a function that runs in a separate process as an ordinary
// user; a program of root that runs at the same time must not be affected.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/hostile/victim.h"

namespace roci::testing::hostile {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Arguments of an attack. Lives in the attacker's process.
class Scene {
 public:
  Scene(const VictimPage& seen, uint64_t seed, bool at_night)
      : victim(seen), random(seed), is_long(at_night), end_(Clock::now() + Length()) {}

  uint32_t Random() { return static_cast<uint32_t>(random()); }
  uint64_t Random64() { return random(); }
  uint32_t Below(uint32_t limit) { return Random() % limit; }
  // For attacks that run until a time limit.
  Milliseconds Length() const { return Milliseconds(is_long ? 1000 : 150); }
  bool Goes() const { return Clock::now() < end_; }

  const VictimPage& victim;  // data of the victim that an attacker may know
  std::mt19937_64 random;
  const bool is_long;  // long campaign

 private:
  const Clock::time_point end_;
};

struct Attack {
  std::string topic;
  std::string name;
  // Failed expectations fail the case.
  std::function<void(Scene&)> run;
  bool in_sample = false;  // of the short run
};
using Attacks = std::vector<Attack>;

// Ends the attacker's process: the system lacks what the attack needs.
[[noreturn]] void Lacks(const std::string& what);

// One for each topic.
void AddSendQueueAttacks(Attacks& out);
void AddReceiveQueueAttacks(Attacks& out);
void AddCompletionQueueAttacks(Attacks& out);
void AddDoorbellAttacks(Attacks& out);
void AddEventAttacks(Attacks& out);
void AddMessageAttacks(Attacks& out);
void AddNumberAttacks(Attacks& out);
void AddHandleAttacks(Attacks& out);
void AddDescriptorAttacks(Attacks& out);
void AddQuotaAttacks(Attacks& out);
void AddMemoryAttacks(Attacks& out);
void AddProcessAttacks(Attacks& out);
void AddConnectionManagerAttacks(Attacks& out);
void AddNetworkAttacks(Attacks& out);

}  // namespace roci::testing::hostile
