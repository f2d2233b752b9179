// Runs a simulation over many seeds, and checks that the intended faults occurred.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "roce/counters.h"

namespace roci::sim {

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

// Environment variables: ROCI_SIM_SEEDS is the number of seeds, ROCI_SIM_FIRST_SEED the first one.
struct Seeds {
  explicit Seeds(uint64_t usual)
      : first(FromEnvironment("ROCI_SIM_FIRST_SEED", 1)),
        count(FromEnvironment("ROCI_SIM_SEEDS", usual)) {}
  // Enough seeds that every random event occurs in some of them.
  bool AreMany() const { return count >= 100; }

  const uint64_t first;
  const uint64_t count;
};

// `make` returns the run of a seed. Its Go() returns what went wrong, if anything. `look` gets the
// finished run. Stops after kMaxFailures failures.
template <class Make, class Look>
void ForEachSeed(const Seeds& seeds, Make&& make, Look&& look) {
  constexpr int kMaxFailures = 5;
  int failures = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count && failures < kMaxFailures;
       ++seed) {
    auto run = make(seed);
    const std::optional<std::string> wrong = run.Go();
    look(run);
    if (!wrong) continue;
    ++failures;
    ADD_FAILURE() << "seed " << seed << ": " << *wrong;
  }
}

// A simulation without recovery would show nothing, so each of these counters must exceed one per
// fifty runs.
class MustHappen {
 public:
  explicit MustHappen(std::span<const roce::QpCounter> counters) : counters_(counters) {}

  template <class Run>
  void Look(Run& run) {
    for (const roce::QpCounter counter : counters_) seen_[counter] += run.Count(counter);
  }
  void Check(const Seeds& seeds) {
    if (!seeds.AreMany()) return;
    for (const roce::QpCounter counter : counters_) {
      EXPECT_GT(seen_[counter], seeds.count / 50)
          << roce::kQpCounterNames[static_cast<size_t>(counter)];
    }
  }

 private:
  std::span<const roce::QpCounter> counters_;
  std::map<roce::QpCounter, uint64_t> seen_;
};

}  // namespace roci::sim
