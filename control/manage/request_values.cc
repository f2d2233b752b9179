#include "control/manage/request_values.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "roce/types.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

// A list of numbers up to `most`, at most `longest` of them.
absl::StatusOr<std::vector<uint32_t>> TakeList(const Json& request, const char* key, uint32_t most,
                                               size_t longest) {
  std::vector<uint32_t> out;
  const auto it = request.find(key);
  if (it == request.end()) return out;
  const std::string expected = absl::StrCat("a list of at most ", longest, " numbers up to ", most);
  if (!it->is_array() || it->size() > longest) return WrongValue(key, expected.c_str());
  for (const Json& entry : *it) {
    if (!entry.is_number_unsigned() || entry.get<uint64_t>() > most) {
      return WrongValue(key, expected.c_str());
    }
    out.push_back(entry.get<uint32_t>());
  }
  return out;
}

// Sorted, without duplicates, so that equal filters compare equal.
absl::Status TakeQpns(const Json& request, const char* key, std::vector<roce::Qpn>& out) {
  auto numbers = TakeList(request, key, roce::kMask24, dataplane::FrameFilter::kMaxQpns);
  if (!numbers.ok()) return numbers.status();
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
  for (const uint32_t number : *numbers) out.emplace_back(number);
  return absl::OkStatus();
}

}  // namespace

absl::Status WrongValue(const char* key, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be ", what));
}

absl::Status TakeNumber(const Json& request, const char* key, uint64_t most, uint64_t& out) {
  const auto it = request.find(key);
  if (it == request.end()) return absl::OkStatus();
  if (!it->is_number_unsigned() || it->get<uint64_t>() > most) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be a number up to ", most));
  }
  out = it->get<uint64_t>();
  return absl::OkStatus();
}

absl::Status TakeFlag(const Json& request, const char* key, bool& out) {
  const auto it = request.find(key);
  if (it == request.end()) return absl::OkStatus();
  if (!it->is_boolean()) return WrongValue(key, "true or false");
  out = it->get<bool>();
  return absl::OkStatus();
}

absl::Status TakeChance(const Json& request, const char* key, dataplane::Chance& out) {
  const auto it = request.find(key);
  if (it == request.end()) return absl::OkStatus();
  if (!it->is_number()) return WrongValue(key, "a probability from 0 to 1");
  const double chance = it->get<double>();
  if (!(chance >= 0 && chance <= 1)) return WrongValue(key, "a probability from 0 to 1");
  out = static_cast<dataplane::Chance>(std::llround(chance * double{dataplane::kAlways}));
  return out != 0 || chance == 0 ? absl::OkStatus() : WrongValue(key, "0 or at least 2^-32");
}

absl::Status TakeDirection(const Json& request, std::optional<dataplane::LinkDirection>& out) {
  const auto it = request.find("direction");
  if (it == request.end()) return absl::OkStatus();
  if (*it == "in") {
    out = dataplane::LinkDirection::kIn;
  } else if (*it == "out") {
    out = dataplane::LinkDirection::kOut;
  } else if (*it == "both") {
    out = std::nullopt;
  } else {
    return WrongValue("direction", "in, out or both");
  }
  return absl::OkStatus();
}

absl::StatusOr<dataplane::FrameFilter> TakeFilter(const nlohmann::json& request) {
  dataplane::FrameFilter filter;
  absl::Status status = TakeQpns(request, "qps", filter.qpns);
  if (!status.ok()) return status;
  status = TakeQpns(request, "peers", filter.peers);
  if (!status.ok()) return status;
  const auto opcodes = TakeList(request, "opcodes", 255, 256);
  if (!opcodes.ok()) return opcodes.status();
  for (const uint32_t opcode : *opcodes) filter.opcodes.set(opcode);
  return filter;
}

}  // namespace roci::control
