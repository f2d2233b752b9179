// An expected number or text: ">= 5", "== active", "<= 300ms".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace roci::tools {

class Comparison {
 public:
  // OPERATOR VALUE, or VALUE alone, which means ==. Operators: ==, !=, <, <=, >, >=. A text has
  // only
  // == and !=.
  static std::optional<Comparison> Parse(const std::string& text);
  // The same with a time ("300ms") as VALUE. It is compared with nanoseconds.
  static std::optional<Comparison> ParseTime(const std::string& text);

  // False also for a value of another kind; null is none.
  bool Holds(const nlohmann::json& value) const;
  // "at least 5" is ">= 5", "5" is "== 5".
  const std::string& text() const { return text_; }

 private:
  enum class Operator { kEqual, kUnequal, kLess, kAtMost, kGreater, kAtLeast };

  Operator operator_ = Operator::kEqual;
  nlohmann::json value_;  // a number or a string
  std::string text_;
};

}  // namespace roci::tools
