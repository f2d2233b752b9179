#include "tools/scenario/comparison.h"

#include <array>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/link/selection.h"

namespace roci::tools {
namespace {

constexpr uint64_t kMostTimeNs = uint64_t{1} << 52;

// Longer operators first: "<=" begins with "<".
constexpr auto kOperators = std::to_array<std::string_view>({"==", "!=", "<=", ">=", "<", ">"});

struct Parts {
  std::string_view name;  // of the operator
  std::string value;
};

Parts Split(const std::string& text) {
  const std::string all(absl::StripAsciiWhitespace(text));
  for (const std::string_view name : kOperators) {
    if (!std::string_view(all).starts_with(name)) continue;
    return {name, std::string(absl::StripLeadingAsciiWhitespace(all.substr(name.size())))};
  }
  return {kOperators[0], all};
}

}  // namespace

std::optional<Comparison> Comparison::Parse(const std::string& text) {
  static constexpr std::array kMeanings = {Operator::kEqual,  Operator::kUnequal,
                                           Operator::kAtMost, Operator::kAtLeast,
                                           Operator::kLess,   Operator::kGreater};
  const Parts parts = Split(text);
  if (parts.value.empty()) return std::nullopt;
  Comparison out;
  for (size_t i = 0; i < kOperators.size(); ++i) {
    if (kOperators[i] == parts.name) out.operator_ = kMeanings[i];
  }
  double number = 0;
  if (absl::SimpleAtod(parts.value, &number)) {
    out.value_ = number;
  } else if (out.operator_ != Operator::kEqual && out.operator_ != Operator::kUnequal) {
    return std::nullopt;
  } else if (parts.value == "true" || parts.value == "false") {
    out.value_ = parts.value == "true";
  } else {
    out.value_ = parts.value;
  }
  out.text_ = absl::StrCat(std::string(parts.name), " ", parts.value);
  return out;
}

std::optional<Comparison> Comparison::ParseTime(const std::string& text) {
  const Parts parts = Split(text);
  const std::optional<uint64_t> time_ns = ParseDuration(parts.value, kMostTimeNs);
  if (!time_ns.has_value()) return std::nullopt;
  std::optional<Comparison> out = Parse(absl::StrCat(std::string(parts.name), *time_ns));
  if (out.has_value()) out->text_ = absl::StrCat(std::string(parts.name), " ", parts.value);
  return out;
}

bool Comparison::Holds(const nlohmann::json& value) const {
  if (value_.is_number() ? !value.is_number() : value_.type() != value.type()) return false;
  switch (operator_) {
    case Operator::kEqual:
      return value == value_;
    case Operator::kUnequal:
      return value != value_;
    case Operator::kLess:
      return value < value_;
    case Operator::kAtMost:
      return value <= value_;
    case Operator::kGreater:
      return value > value_;
    case Operator::kAtLeast:
      return value >= value_;
  }
  return false;
}

}  // namespace roci::tools
