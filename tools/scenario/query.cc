#include "tools/scenario/query.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "control/config/nearest_name.h"
#include "tools/show/tables.h"

namespace roci::tools {
namespace {

using Pointer = nlohmann::json::json_pointer;

bool IsPointer(const std::string& text) {
  try {
    const Pointer pointer(text);
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

}  // namespace

absl::StatusOr<Query> MakeQuery(const std::string& kind, const std::string& device,
                                const std::string& pointer) {
  const auto found = control::FindShowKind(kind);
  if (!found.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", kind, "\" is not what `roci show` shows; the nearest is ",
                     std::string(control::NearestName(kind, control::kShowKindNames))));
  }
  if (!IsPointer(pointer)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", pointer, "\" is not a JSON pointer: /0/counters/tx_packets"));
  }
  return Query{*found, device, pointer};
}

absl::StatusOr<Query> ParseQuery(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.size() == 3) return MakeQuery(words[0], words[1], words[2]);
  if (words.size() == 2) return MakeQuery(words[0], "", words[1]);
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" must be KIND [DEVICE] POINTER"));
}

nlohmann::json ValueOf(const Query& query, const nlohmann::json& items) {
  const nlohmann::json chosen = query.device.empty() ? items : OfDevice(items, query.device);
  try {
    const nlohmann::json& value = chosen.at(Pointer(query.pointer));
    if (value.is_structured()) return value.size();
    return value;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string TextOf(const Query& query) {
  return absl::StrCat(std::string(control::NameOf(query.kind)), query.device.empty() ? "" : " ",
                      query.device, query.pointer.empty() ? "" : " ", query.pointer);
}

}  // namespace roci::tools
