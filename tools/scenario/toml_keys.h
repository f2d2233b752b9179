// Reads the keys of one table of a scenario; unknown keys are refused with the nearest right one.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "control/config/toml_reader.h"

namespace roci::tools {

// Each function returns whether the key is there and right. Faults are collected in `faults`, which
// keeps the first; an absent key is none.
class TomlKeys {
 public:
  // `known`: all keys that the table may have. `prefix` precedes keys in messages ("step[0].").
  TomlKeys(const toml::table& table, std::string prefix, std::span<const std::string_view> known,
           control::TomlFaults& faults);

  bool Has(std::string_view key) const { return table_.contains(key); }
  const toml::node* Get(std::string_view key) const { return table_.get(key); }
  bool Text(std::string_view key, std::string& out);
  // A text, or a list of texts.
  bool Texts(std::string_view key, std::vector<std::string>& out);
  // A text, or a number, which is returned as text.
  bool Word(std::string_view key, std::string& out);
  // The same, or true or false.
  bool Value(std::string_view key, std::string& out);
  bool Number(std::string_view key, uint32_t most, uint32_t& out);
  // "300ms"
  bool Time(std::string_view key, uint64_t most_ns, uint64_t& out);
  // Calls `read` with each table of a list, at most `most`.
  void Tables(std::string_view key, size_t most,
              const std::function<void(const toml::table&, const std::string& prefix)>& read);

  // Takes the value of `result`, or its error as the key's fault.
  template <class T>
  bool Take(std::string_view key, absl::StatusOr<T> result, T& out) {
    if (!result.ok()) {
      Fault(key, result.status().message());
      return false;
    }
    out = *std::move(result);
    return true;
  }
  // Adds a fault at the line of `key`; of the table if the key is absent or empty.
  void Fault(std::string_view key, absl::string_view reason);

 private:
  const toml::table& table_;
  const std::string prefix_;
  control::TomlFaults& faults_;
};

}  // namespace roci::tools
