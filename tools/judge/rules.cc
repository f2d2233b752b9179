#include "tools/judge/rules.h"

#include <string_view>

namespace roci::tools::judge {
namespace {

constexpr bool NamesAreUnique() {
  for (size_t i = 0; i < kRules.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (std::string_view(kRules[i].name) == kRules[j].name) return false;
    }
  }
  return true;
}
static_assert(NamesAreUnique());

}  // namespace

const char* SeverityName(Severity severity) {
  constexpr std::array<const char*, 3> kNames = {"violation", "deviation", "note"};
  return kNames[static_cast<size_t>(severity)];
}

}  // namespace roci::tools::judge
