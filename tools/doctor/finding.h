// A finding of `roci doctor`, and how findings are printed. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace roci::tools {

enum class Verdict : uint8_t {
  kOk,
  kSlow,     // works, but slower or not for everything
  kMissing,  // does not work
};

struct Finding {
  std::string name;  // "hugepages"; the same on every machine
  Verdict verdict = Verdict::kOk;
  std::string found;
  std::string cost;            // what the user loses; empty for kOk
  std::string remedy;          // what the user can do; empty for kOk
  bool nothing_works = false;  // no program can use a device until this is mended
};

Finding Ok(std::string name, std::string found);
Finding Slow(std::string name, std::string found, std::string cost, std::string remedy);
Finding Missing(std::string name, std::string found, std::string cost, std::string remedy);
// As Missing, with nothing_works.
Finding Fatal(std::string name, std::string found, std::string cost, std::string remedy);

// "ok", "slow", "missing"
const char* NameOf(Verdict verdict);

bool NothingWorks(const std::vector<Finding>& findings);

// A line for each finding, and one with the sum.
std::string FormatFindings(const std::vector<Finding>& findings);
// {"works": bool, "findings": [{"name": ..., "verdict": ..., "found": ..., "cost": ..., "remedy":
// ...}]}
nlohmann::json DescribeFindings(const std::vector<Finding>& findings);

}  // namespace roci::tools
