#include "tools/scenario/toml_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "control/config/nearest_name.h"
#include "tools/link/selection.h"

namespace roci::tools {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

TomlKeys::TomlKeys(const toml::table& table, std::string prefix,
                   std::span<const std::string_view> known, control::TomlFaults& faults)
    : table_(table), prefix_(std::move(prefix)), faults_(faults) {
  for (const auto& [key, node] : table_) {
    if (std::ranges::find(known, key.str()) != known.end()) continue;
    faults_.Add(
        key.source(), absl::StrCat(prefix_, View(key.str())),
        absl::StrCat("unknown key; the nearest is ", View(control::NearestName(key.str(), known))));
  }
}

void TomlKeys::Fault(std::string_view key, absl::string_view reason) {
  const toml::node* const node = table_.get(key);
  const std::string name = absl::StrCat(prefix_, View(key));
  faults_.Add(node != nullptr ? node->source() : table_.source(), absl::StripSuffix(name, "."),
              reason);
}

bool TomlKeys::Text(std::string_view key, std::string& out) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr) return false;
  if (!node->is_string() || node->as_string()->get().empty()) {
    Fault(key, "must be a text that is not empty");
    return false;
  }
  out = node->as_string()->get();
  return true;
}

bool TomlKeys::Texts(std::string_view key, std::vector<std::string>& out) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr) return false;
  if (!node->is_array()) {
    std::string only;
    if (Text(key, only)) out = {only};
    return !only.empty();
  }
  std::vector<std::string> texts;
  for (const toml::node& each : *node->as_array()) {
    if (!each.is_string() || each.as_string()->get().empty()) {
      Fault(key, "must be a text, or a list of texts");
      return false;
    }
    texts.push_back(each.as_string()->get());
  }
  out = std::move(texts);
  return true;
}

bool TomlKeys::Word(std::string_view key, std::string& out) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr || !node->is_integer()) return Text(key, out);
  out = absl::StrCat(node->as_integer()->get());
  return true;
}

bool TomlKeys::Value(std::string_view key, std::string& out) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr || !node->is_boolean()) return Word(key, out);
  out = node->as_boolean()->get() ? "true" : "false";
  return true;
}

bool TomlKeys::Number(std::string_view key, uint32_t most, uint32_t& out) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr) return false;
  const auto* const integer = node->as_integer();
  if (integer == nullptr || integer->get() < 0 || integer->get() > most) {
    Fault(key, absl::StrCat("must be a whole number from 0 to ", most));
    return false;
  }
  out = static_cast<uint32_t>(integer->get());
  return true;
}

bool TomlKeys::Time(std::string_view key, uint64_t most_ns, uint64_t& out) {
  std::string text;
  if (!Text(key, text)) return false;
  const std::optional<uint64_t> time_ns = ParseDuration(text, most_ns);
  if (!time_ns.has_value()) {
    Fault(key, absl::StrCat("\"", text, "\" is not a time up to ", most_ns / 1'000'000'000,
                            "s (300ms, 5s)"));
    return false;
  }
  out = *time_ns;
  return true;
}

void TomlKeys::Tables(
    std::string_view key, size_t most,
    const std::function<void(const toml::table&, const std::string& prefix)>& read) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr) return;
  if (!node->is_array_of_tables()) {
    return Fault(key, absl::StrCat("must be a list of tables: [[", View(key), "]]"));
  }
  if (node->as_array()->size() > most) {
    return Fault(key, absl::StrCat("there are more than ", most));
  }
  size_t index = 0;
  for (const toml::node& each : *node->as_array()) {
    read(*each.as_table(), absl::StrCat(prefix_, View(key), "[", index++, "]."));
  }
}

}  // namespace roci::tools
