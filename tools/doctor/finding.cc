#include "tools/doctor/finding.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace roci::tools {
namespace {

std::string Line(const Finding& finding) {
  std::string line =
      absl::StrFormat("%-8s %-16s %s", NameOf(finding.verdict), finding.name, finding.found);
  if (!finding.cost.empty()) absl::StrAppend(&line, ". Cost: ", finding.cost);
  if (!finding.remedy.empty()) absl::StrAppend(&line, ". To do: ", finding.remedy);
  // What a file or another program said may have more lines.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line + "\n";
}

}  // namespace

Finding Ok(std::string name, std::string found) {
  return {.name = std::move(name),
          .verdict = Verdict::kOk,
          .found = std::move(found),
          .cost = {},
          .remedy = {}};
}

Finding Slow(std::string name, std::string found, std::string cost, std::string remedy) {
  return {.name = std::move(name),
          .verdict = Verdict::kSlow,
          .found = std::move(found),
          .cost = std::move(cost),
          .remedy = std::move(remedy)};
}

Finding Missing(std::string name, std::string found, std::string cost, std::string remedy) {
  Finding finding = Slow(std::move(name), std::move(found), std::move(cost), std::move(remedy));
  finding.verdict = Verdict::kMissing;
  return finding;
}

Finding Fatal(std::string name, std::string found, std::string cost, std::string remedy) {
  Finding finding = Missing(std::move(name), std::move(found), std::move(cost), std::move(remedy));
  finding.nothing_works = true;
  return finding;
}

const char* NameOf(Verdict verdict) {
  constexpr std::array<const char*, 3> kNames = {"ok", "slow", "missing"};
  return kNames[static_cast<size_t>(verdict)];
}

bool NothingWorks(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.nothing_works; });
}

std::string FormatFindings(const std::vector<Finding>& findings) {
  std::string text;
  std::array<size_t, 3> counts = {};
  for (const Finding& finding : findings) {
    text += Line(finding);
    ++counts[static_cast<size_t>(finding.verdict)];
  }
  return absl::StrCat(text, counts[0], " ok, ", counts[1], " slow, ", counts[2], " missing",
                      NothingWorks(findings) ? "; no program can use a device here\n" : "\n");
}

nlohmann::json DescribeFindings(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"name", finding.name},
                    {"verdict", NameOf(finding.verdict)},
                    {"found", finding.found},
                    {"cost", finding.cost},
                    {"remedy", finding.remedy}});
  }
  return {{"works", !NothingWorks(findings)}, {"findings", list}};
}

}  // namespace roci::tools
