#include "tools/scenario/outcome.h"

#include <algorithm>

namespace roci::tools {

bool Outcome::Passed() const {
  return !verdicts.empty() &&
         std::ranges::all_of(verdicts, [](const Verdict& verdict) { return verdict.holds; });
}

nlohmann::json ToJson(const Outcome& outcome) {
  nlohmann::json expectations = nlohmann::json::array();
  for (const Verdict& verdict : outcome.verdicts) {
    expectations.push_back(
        {{"ok", verdict.holds}, {"expectation", verdict.expectation}, {"found", verdict.found}});
  }
  nlohmann::json out = {{"scenario", outcome.scenario},
                        {"run", outcome.run},
                        {"ok", outcome.Passed()},
                        {"seconds", outcome.seconds},
                        {"expectations", std::move(expectations)}};
  if (!outcome.kept.empty()) out["kept"] = outcome.kept;
  return out;
}

bool FromJson(const nlohmann::json& json, Outcome& out) {
  try {
    out.scenario = json.at("scenario").get<std::string>();
    out.run = json.at("run").get<uint32_t>();
    out.seconds = json.at("seconds").get<double>();
    out.kept = json.value("kept", "");
    out.verdicts.clear();
    for (const nlohmann::json& each : json.at("expectations")) {
      out.verdicts.push_back({each.at("ok").get<bool>(), each.at("expectation").get<std::string>(),
                              each.at("found").get<std::string>()});
    }
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

}  // namespace roci::tools
