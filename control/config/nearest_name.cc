#include "control/config/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace roci::control {
namespace {

// Insertions and removals that make `b` of `a`, row by row.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 2);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view NearestName(std::string_view wrong, std::span<const std::string_view> names) {
  constexpr size_t kMostCompared = 64;
  const std::string_view compared = wrong.substr(0, kMostCompared);
  return *std::ranges::min_element(
      names, {}, [compared](std::string_view name) { return Distance(compared, name); });
}

}  // namespace roci::control
