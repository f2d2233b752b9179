#include "tools/scenario/placeholders.h"

#include <array>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "control/config/nearest_name.h"
#include "tools/scenario/query.h"
#include "tools/scenario/words.h"

namespace roci::tools {

int PortNumber(const std::string& placeholder) {
  if (placeholder == "port") return 1;
  for (int number = 2; number <= kMostPorts; ++number) {
    if (placeholder == absl::StrCat("port", number)) return number;
  }
  return 0;
}

absl::Status CheckPlaceholders(const std::string& text) {
  return FillIn(text,
                [](const std::string& name) -> absl::StatusOr<std::string> {
                  if (PortNumber(name) != 0 || name == "dir") return name;
                  if (name.find(' ') != std::string::npos) {
                    const absl::StatusOr<Query> query = ParseQuery(name);
                    if (!query.ok()) return query.status();
                    return name;
                  }
                  static constexpr auto kNames = std::to_array<std::string_view>({"port", "dir"});
                  return absl::InvalidArgumentError(
                      absl::StrCat("there is no placeholder {", name, "}; the nearest is {",
                                   std::string(control::NearestName(name, kNames)), "}"));
                })
      .status();
}

}  // namespace roci::tools
