#include "control/config/fault_reader.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "control/config/fault_keys.h"

namespace roci::control {
namespace {

void ReadKey(TomlReader& table, const FaultKey& key, nlohmann::json& request) {
  const std::string name = absl::StrReplaceAll(std::string(key.name), {{"-", "_"}});
  if (key.kind == FaultKeyKind::kFlag) {
    bool value = false;
    if (table.Bool(name, value) && value) TakeFaultValue(key, "", request);
    return;
  }
  std::vector<std::string> texts;
  if (!table.Texts(name, texts)) return;
  // It would match everything.
  if (texts.empty()) return table.Fault(name, "must not be empty");
  if (texts.size() > 1 && !key.takes_several()) {
    return table.Fault(name, "must be one value, not several");
  }
  for (const std::string& text : texts) {
    const std::string fault = TakeFaultValue(key, text, request);
    if (!fault.empty()) table.Fault(name, fault);
  }
}

}  // namespace

void ReadFaults(TomlReader& device, std::vector<std::string>& out) {
  device.Tables("fault", [&](TomlReader& table, size_t) {
    nlohmann::json request = nlohmann::json::object();
    for (const FaultKey& key : FaultKeys()) ReadKey(table, key, request);
    out.push_back(request.dump());
  });
}

}  // namespace roci::control
