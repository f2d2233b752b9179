// The outcome of a scenario.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace roci::tools {

struct Verdict {
  bool holds = false;
  std::string expectation;
  std::string found;
};

struct Outcome {
  std::string scenario;
  uint32_t run = 1;  // of --repeat
  double seconds = 0;
  std::vector<Verdict> verdicts;
  std::string kept;  // folder of --keep; empty: nothing was kept

  bool Passed() const;
};

nlohmann::json ToJson(const Outcome& outcome);
// False: the text was not made by ToJson.
bool FromJson(const nlohmann::json& json, Outcome& out);

}  // namespace roci::tools
