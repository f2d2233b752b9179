#include "tools/scenario/reports.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace roci::tools {
namespace {

// "port_flap", with several runs "port_flap run 3"
std::string NameOf(const Outcome& outcome, uint32_t repeat) {
  return repeat > 1 ? absl::StrCat(outcome.scenario, " run ", outcome.run) : outcome.scenario;
}

std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

std::string XmlOf(const std::string& text) {
  return absl::StrReplaceAll(OneLine(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Plural(uint64_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

uint64_t Failures(const Outcome& outcome) {
  return static_cast<uint64_t>(std::ranges::count(outcome.verdicts, false, &Verdict::holds));
}

}  // namespace

std::string TextOf(const Outcome& outcome, uint32_t repeat) {
  std::string out;
  for (const Verdict& verdict : outcome.verdicts) {
    if (verdict.holds && repeat > 1) continue;
    absl::StrAppend(&out, verdict.holds ? "ok      " : "not ok  ", NameOf(outcome, repeat), ": ",
                    OneLine(verdict.expectation), "; found: ", OneLine(verdict.found), "\n");
  }
  if (!outcome.kept.empty()) absl::StrAppend(&out, "        kept in ", outcome.kept, "\n");
  return out;
}

std::string SummaryOf(const std::vector<Outcome>& outcomes, uint32_t repeat, uint64_t interrupted,
                      double seconds) {
  struct Runs {
    uint64_t all = 0;
    uint64_t failed = 0;
  };
  std::map<std::string, Runs> scenarios;
  uint64_t expectations = 0;
  uint64_t failures = 0;
  for (const Outcome& outcome : outcomes) {
    Runs& runs = scenarios[outcome.scenario];
    ++runs.all;
    if (!outcome.Passed()) ++runs.failed;
    expectations += outcome.verdicts.size();
    failures += Failures(outcome);
  }
  std::string out;
  uint64_t failed = 0;
  for (const auto& [name, runs] : scenarios) {
    if (runs.failed == 0) continue;
    ++failed;
    absl::StrAppend(&out, runs.failed < runs.all ? "flaky: " : "failed: ", name);
    if (repeat > 1) absl::StrAppend(&out, ", ", runs.failed, " of ", Plural(runs.all, "run"));
    absl::StrAppend(&out, "\n");
  }
  if (interrupted != 0) {
    absl::StrAppend(&out, "interrupted: ", Plural(interrupted, "run"), " did not end\n");
  }
  absl::StrAppend(&out, Plural(scenarios.size(), "scenario"), ", ", failed, " failed");
  if (repeat > 1) absl::StrAppend(&out, "; ", Plural(outcomes.size(), "run"));
  absl::StrAppend(&out, "; ", Plural(expectations, "expectation"), ", ", failures, " failed; ",
                  absl::StrFormat("%.1f s\n", seconds));
  return out;
}

std::string TapOf(const Outcome& outcome, uint32_t repeat, uint64_t first) {
  std::string out;
  for (const Verdict& verdict : outcome.verdicts) {
    const std::string description = absl::StrReplaceAll(
        OneLine(absl::StrCat(NameOf(outcome, repeat), ": ", verdict.expectation)),
        {{"\\", "\\\\"}, {"#", "\\#"}});
    absl::StrAppend(&out, verdict.holds ? "ok " : "not ok ", first++, " - ", description, "\n");
    if (!verdict.holds) absl::StrAppend(&out, "# found: ", OneLine(verdict.found), "\n");
  }
  if (!outcome.kept.empty()) absl::StrAppend(&out, "# kept in ", outcome.kept, "\n");
  return out;
}

std::string TapEnd(uint64_t lines, uint64_t interrupted) {
  if (interrupted != 0) {
    return absl::StrCat("Bail out! interrupted: ", Plural(interrupted, "run"), " did not end\n");
  }
  return absl::StrCat("1..", lines, "\n");
}

std::string JunitOf(const std::vector<Outcome>& outcomes, uint32_t repeat) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const Outcome& outcome : outcomes) {
    const std::string name = XmlOf(NameOf(outcome, repeat));
    absl::StrAppend(
        &out, "  <testsuite name=\"", name, "\" tests=\"", outcome.verdicts.size(),
        "\" failures=\"", Failures(outcome),
        absl::StrFormat("\" errors=\"0\" skipped=\"0\" time=\"%.3f\">\n", outcome.seconds));
    for (const Verdict& verdict : outcome.verdicts) {
      absl::StrAppend(&out, "    <testcase classname=\"", name, "\" name=\"",
                      XmlOf(verdict.expectation), "\"");
      if (verdict.holds) {
        absl::StrAppend(&out, "/>\n");
      } else {
        absl::StrAppend(&out, "><failure message=\"", XmlOf(verdict.found), "\"/></testcase>\n");
      }
    }
    absl::StrAppend(&out, "  </testsuite>\n");
  }
  return out + "</testsuites>\n";
}

nlohmann::json JsonOf(const std::vector<Outcome>& outcomes, uint64_t interrupted, double seconds) {
  nlohmann::json runs = nlohmann::json::array();
  for (const Outcome& outcome : outcomes) runs.push_back(ToJson(outcome));
  return {{"ok", interrupted == 0 && std::ranges::all_of(outcomes, &Outcome::Passed)},
          {"seconds", seconds},
          {"interrupted", interrupted},
          {"runs", std::move(runs)}};
}

}  // namespace roci::tools
