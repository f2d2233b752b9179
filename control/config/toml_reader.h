// Reads the keys of one TOML table into variables, remembers the first fault with its line, and
// refuses unknown keys.
#pragma once

#include <toml++/toml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roci::control {

// The first fault of a file; later ones are dropped.
class TomlFaults {
 public:
  explicit TomlFaults(absl::string_view file) : file_(file) {}
  void Add(const toml::source_region& where, absl::string_view key, absl::string_view reason);
  const absl::Status& status() const { return status_; }

 private:
  const std::string file_;
  absl::Status status_;
};

// The text of `file`. NotFound: it cannot be read. InvalidArgument: it is longer than `most_bytes`,
// so it is not `what`.
absl::StatusOr<std::string> ReadTextFile(const std::string& file, size_t most_bytes,
                                         absl::string_view what);

// Parses `text` and gives the table to `read`. The first fault, of the syntax or added by `read`.
absl::Status ParseToml(absl::string_view text, const std::string& file,
                       const std::function<void(const toml::table&, TomlFaults&)>& read);

// Each function that reads a key returns whether it set its variable; an absent or wrong key leaves
// the variable unchanged. `prefix` precedes keys in messages ("device[0].").
class TomlReader {
 public:
  TomlReader(const toml::table& table, std::string prefix, TomlFaults& faults)
      : table_(table), prefix_(std::move(prefix)), faults_(faults) {}

  bool Bool(absl::string_view key, bool& out);
  bool Number(absl::string_view key, uint32_t min, uint32_t max, uint32_t& out);
  bool Numbers(absl::string_view key, uint32_t min, uint32_t max, std::vector<uint32_t>& out);
  bool String(absl::string_view key, std::string& out);
  bool Strings(absl::string_view key, std::vector<std::string>& out);
  // The text of a string or number, or of each of an array of them.
  bool Texts(absl::string_view key, std::vector<std::string>& out);
  // `parse` returns false for a wrong text; `expected` describes a right one in the message.
  bool Parsed(absl::string_view key, absl::string_view expected,
              const std::function<bool(const std::string&)>& parse);
  // Like Parsed, for each element of an array of strings.
  bool ParsedEach(absl::string_view key, absl::string_view expected,
                  const std::function<bool(const std::string&)>& parse);
  // Runs `read` on the table at `key`, or on each table of the array there.
  void Table(absl::string_view key, const std::function<void(TomlReader&)>& read);
  void Tables(absl::string_view key, const std::function<void(TomlReader&, size_t index)>& read);

  // Adds a fault at the line of `key`, or of the table if the key is absent.
  void Fault(absl::string_view key, absl::string_view reason);
  // Adds a fault for the first key that was not read.
  void RefuseOthers();

 private:
  const toml::node* Find(absl::string_view key);
  void FaultAt(const toml::node& node, absl::string_view key, absl::string_view reason);
  bool ReadNumber(const toml::node& node, absl::string_view key, uint32_t min, uint32_t max,
                  uint32_t& out);

  const toml::table& table_;
  const std::string prefix_;
  TomlFaults& faults_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace roci::control
