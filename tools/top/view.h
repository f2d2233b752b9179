// The view of `roci top`: rates between two samples of the daemon's state, as lines of text. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace roci::tools {

// The daemon's answers to `show`, all of about the same time.
struct TopSample {
  uint64_t at_ns = 0;
  nlohmann::json qps, counters, lcores;
};

// The order of the table of queue pairs: the largest value first, or by number or name.
enum class TopOrder : uint8_t { kTx, kRx, kDrops, kWindow, kQpn, kProgram };
// Indexed by TopOrder.
inline constexpr std::string_view kTopOrderNames[] = {"tx",     "rx", "drops",
                                                      "window", "qp", "program"};

struct TopSettings {
  TopOrder order = TopOrder::kTx;
  std::string device = {};   // empty: all
  std::string program = {};  // empty: all
  bool only_active = false;
  size_t lines = SIZE_MAX;  // at most, headings included
  size_t columns = SIZE_MAX;
};

// The rates since `before`; a first sample may be its own predecessor. Lines are cut to the width.
std::vector<std::string> TopLines(const TopSample& before, const TopSample& now,
                                  const TopSettings& settings);

// "999", "1.2K", "15M": at most 5 characters.
std::string ShortNumber(double value);

}  // namespace roci::tools
