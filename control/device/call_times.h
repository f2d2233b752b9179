// How long the control thread takes for each kind of request of programs: a histogram by command.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/session_head.h"

namespace roci::control {

// Control thread only.
class CallTimes {
 public:
  // Upper bounds of the buckets; one more has the rest.
  static constexpr std::array<uint64_t, 10> kBoundsNs = {
      4'000,     16'000,     64'000,      250'000,       1'000'000,
      4'000'000, 16'000'000, 100'000'000, 1'000'000'000, 10'000'000'000};

  struct Histogram {
    std::array<uint64_t, kBoundsNs.size() + 1> buckets{};  // each without those below it
    uint64_t sum_ns = 0;
    uint64_t refused = 0;  // answered with an error
  };

  // `command`: roci_abi_command.
  void Note(uint32_t command, uint64_t duration_ns, bool is_refused) {
    if (command >= histograms_.size()) return;
    Histogram& histogram = histograms_[command];
    const auto bound = std::lower_bound(kBoundsNs.begin(), kBoundsNs.end(), duration_ns);
    ++histogram.buckets[static_cast<size_t>(bound - kBoundsNs.begin())];
    histogram.sum_ns += duration_ns;
    histogram.refused += is_refused;
  }
  // Indexed by roci_abi_command.
  const std::array<Histogram, ROCI_ABI_COMMAND_COUNT>& histograms() const { return histograms_; }

 private:
  std::array<Histogram, ROCI_ABI_COMMAND_COUNT> histograms_{};
};

}  // namespace roci::control
