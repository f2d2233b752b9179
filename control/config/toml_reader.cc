#include "control/config/toml_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "control/config/nearest_name.h"

namespace roci::control {
namespace {

// Debian's Abseil has its own string_view type.
std::string_view Standard(absl::string_view text) { return {text.data(), text.size()}; }

// The shortest text that stands for exactly this number.
std::string ShortestText(double number) {
  std::array<char, 32> text;
  const std::to_chars_result end = std::to_chars(text.begin(), text.end(), number);
  return std::string(text.begin(), end.ptr);
}

}  // namespace

void TomlFaults::Add(const toml::source_region& where, absl::string_view key,
                     absl::string_view reason) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(file_, ":", uint32_t{where.begin.line}, ": ",
                                                    key, key.empty() ? "" : ": ", reason));
}

absl::StatusOr<std::string> ReadTextFile(const std::string& file, size_t most_bytes,
                                         absl::string_view what) {
  std::FILE* const stream = std::fopen(file.c_str(), "re");
  std::string text;
  if (stream != nullptr) {
    char buffer[4096];
    while (const size_t count = std::fread(buffer, 1, sizeof(buffer), stream)) {
      text.append(buffer, count);
      if (text.size() > most_bytes) break;
    }
  }
  const bool failed = stream == nullptr || std::ferror(stream) != 0;
  const int error = errno;
  if (stream != nullptr) std::fclose(stream);
  if (failed) {
    return absl::NotFoundError(absl::StrCat(file, ": cannot be read: ", std::strerror(error)));
  }
  if (text.size() > most_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": longer than ", most_bytes, " bytes, not ", what));
  }
  return text;
}

absl::Status ParseToml(absl::string_view text, const std::string& file,
                       const std::function<void(const toml::table&, TomlFaults&)>& read) {
  TomlFaults faults(file);
  try {
    const toml::table table = toml::parse(Standard(text), file);
    read(table, faults);
  } catch (const toml::parse_error& error) {
    const std::string_view description = error.description();
    faults.Add(error.source(), "", absl::string_view(description.data(), description.size()));
  }
  return faults.status();
}

const toml::node* TomlReader::Find(absl::string_view key) {
  known_.emplace(std::string(key));
  return table_.get(Standard(key));
}

void TomlReader::FaultAt(const toml::node& node, absl::string_view key, absl::string_view reason) {
  faults_.Add(node.source(), absl::StrCat(prefix_, key), reason);
}

void TomlReader::Fault(absl::string_view key, absl::string_view reason) {
  const toml::node* node = table_.get(Standard(key));
  faults_.Add(node != nullptr ? node->source() : table_.source(), absl::StrCat(prefix_, key),
              reason);
}

bool TomlReader::Bool(absl::string_view key, bool& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return false;
  if (!node->is_boolean()) {
    FaultAt(*node, key, "must be true or false");
    return false;
  }
  out = node->as_boolean()->get();
  return true;
}

bool TomlReader::ReadNumber(const toml::node& node, absl::string_view key, uint32_t min,
                            uint32_t max, uint32_t& out) {
  const auto* integer = node.as_integer();
  if (integer == nullptr || integer->get() < min || integer->get() > max) {
    FaultAt(node, key, absl::StrCat("must be a whole number from ", min, " to ", max));
    return false;
  }
  out = static_cast<uint32_t>(integer->get());
  return true;
}

bool TomlReader::Number(absl::string_view key, uint32_t min, uint32_t max, uint32_t& out) {
  const toml::node* node = Find(key);
  return node != nullptr && ReadNumber(*node, key, min, max, out);
}

bool TomlReader::Numbers(absl::string_view key, uint32_t min, uint32_t max,
                         std::vector<uint32_t>& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return false;
  if (!node->is_array()) {
    FaultAt(*node, key, "must be an array of whole numbers");
    return false;
  }
  std::vector<uint32_t> numbers;
  for (const toml::node& element : *node->as_array()) {
    if (!ReadNumber(element, key, min, max, numbers.emplace_back())) return false;
  }
  out = std::move(numbers);
  return true;
}

bool TomlReader::Parsed(absl::string_view key, absl::string_view expected,
                        const std::function<bool(const std::string&)>& parse) {
  const toml::node* node = Find(key);
  if (node == nullptr) return false;
  if (!node->is_string()) {
    FaultAt(*node, key, absl::StrCat("must be ", expected));
    return false;
  }
  const std::string& text = node->as_string()->get();
  if (parse(text)) return true;
  FaultAt(*node, key, absl::StrCat("\"", text, "\" is not ", expected));
  return false;
}

bool TomlReader::ParsedEach(absl::string_view key, absl::string_view expected,
                            const std::function<bool(const std::string&)>& parse) {
  const toml::node* node = Find(key);
  if (node == nullptr) return false;
  if (!node->is_array()) {
    FaultAt(*node, key, "must be an array of strings");
    return false;
  }
  for (const toml::node& element : *node->as_array()) {
    const auto* text = element.as_string();
    if (text != nullptr && parse(text->get())) continue;
    FaultAt(element, key,
            text == nullptr ? absl::StrCat("each element must be ", expected)
                            : absl::StrCat("\"", text->get(), "\" is not ", expected));
    return false;
  }
  return true;
}

bool TomlReader::String(absl::string_view key, std::string& out) {
  return Parsed(key, "a non-empty string", [&](const std::string& text) {
    out = text;
    return !text.empty();
  });
}

bool TomlReader::Strings(absl::string_view key, std::vector<std::string>& out) {
  out.clear();
  return ParsedEach(key, "a string", [&](const std::string& text) {
    out.push_back(text);
    return true;
  });
}

bool TomlReader::Texts(absl::string_view key, std::vector<std::string>& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return false;
  std::vector<std::string> texts;
  const auto take = [&](const toml::node& value) {
    if (const auto* text = value.as_string()) {
      texts.push_back(text->get());
    } else if (const auto* integer = value.as_integer()) {
      texts.push_back(absl::StrCat(integer->get()));
    } else if (const auto* number = value.as_floating_point()) {
      texts.push_back(ShortestText(number->get()));
    } else {
      FaultAt(value, key, "must be a string, a number, or an array of them");
      return false;
    }
    return true;
  };
  const toml::array* array = node->as_array();
  const bool is_right = array == nullptr ? take(*node) : std::ranges::all_of(*array, take);
  if (is_right) out = std::move(texts);
  return is_right;
}

void TomlReader::Table(absl::string_view key, const std::function<void(TomlReader&)>& read) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (!node->is_table()) return FaultAt(*node, key, absl::StrCat("must be a table: [", key, "]"));
  TomlReader reader(*node->as_table(), absl::StrCat(prefix_, key, "."), faults_);
  read(reader);
  reader.RefuseOthers();
}

void TomlReader::Tables(absl::string_view key,
                        const std::function<void(TomlReader&, size_t index)>& read) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (!node->is_array_of_tables()) {
    return FaultAt(*node, key, absl::StrCat("must be a list of tables: [[", key, "]]"));
  }
  size_t index = 0;
  for (const toml::node& element : *node->as_array()) {
    TomlReader reader(*element.as_table(), absl::StrCat(prefix_, key, "[", index, "]."), faults_);
    read(reader, index++);
    reader.RefuseOthers();
  }
}

void TomlReader::RefuseOthers() {
  const toml::node* first = nullptr;
  absl::string_view name;
  for (const auto& [key, node] : table_) {
    if (known_.contains(key.str())) continue;
    if (first != nullptr && node.source().begin >= first->source().begin) continue;
    first = &node;
    name = absl::string_view(key.str().data(), key.str().size());
  }
  if (first == nullptr) return;
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  FaultAt(*first, name,
          known.empty() ? "unknown key"
                        : absl::StrCat("unknown key; the nearest is ",
                                       std::string(NearestName(Standard(name), known))));
}

}  // namespace roci::control
