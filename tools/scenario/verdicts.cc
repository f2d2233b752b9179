#include "tools/scenario/verdicts.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kSettleLimitNs = 3'000'000'000;
constexpr uint64_t kPauseNs = 20'000'000;

void CheckProgram(const ScenarioProgram& about, const ProgramRun& run, std::vector<Verdict>& out) {
  const std::string expected = absl::StrCat(about.name, " ", about.end.Text());
  if (run.process == nullptr) {
    out.push_back(
        {false, expected, absl::StrCat("not started", run.fault.empty() ? "" : ": ", run.fault)});
    return;
  }
  const Process& process = *run.process;
  const std::string line = process.output().LastLine();
  const std::string words = line.empty() ? "" : absl::StrCat(", last line: ", line);
  const int end = process.end().value_or(0);
  const bool holds = !run.was_cut && about.end.Holds(end, run.was_stopped);
  out.push_back({holds, expected,
                 absl::StrCat(run.was_cut       ? "still running"
                              : run.was_stopped ? "stopped"
                                                : EndText(end),
                              holds ? "" : words)});
  const uint64_t lasted_ns = process.ended_ns() - process.started_ns();
  for (const Comparison& bound : about.lasts) {
    out.push_back({!run.was_cut && bound.Holds(lasted_ns),
                   absl::StrCat(about.name, " lasts ", bound.text()), TimeText(lasted_ns)});
  }
  for (const Pattern& pattern : about.prints) {
    const bool found = pattern.Matches(process.output().text());
    out.push_back({found, absl::StrCat(about.name, " prints /", pattern.text(), "/"),
                   found ? "printed" : absl::StrCat("not printed", words)});
  }
  for (const Pattern& pattern : about.prints_not) {
    const bool found = pattern.Matches(process.output().text());
    out.push_back({!found, absl::StrCat(about.name, " does not print /", pattern.text(), "/"),
                   found ? absl::StrCat("printed", words) : "not printed"});
  }
}

Verdict OfNumber(const std::string& expectation, const Comparison& comparison,
                 const absl::StatusOr<Json>& found) {
  if (!found.ok()) return {false, expectation, std::string(found.status().message())};
  return {comparison.Holds(*found), expectation,
          found->is_null() ? "nothing is there" : found->dump()};
}

// A counter of a fault; an error or null: there is none.
absl::StatusOr<Json> CountOf(const Surroundings& surroundings, const std::string& device,
                             uint64_t number, const std::string& counter) {
  const absl::StatusOr<Json> faults = surroundings.AskFaults(device);
  if (!faults.ok()) return faults.status();
  for (const Json& fault : *faults) {
    if (fault.value("fault", uint64_t{0}) != number) continue;
    return fault.value("counters", Json::object()).value(counter, Json());
  }
  return absl::NotFoundError(absl::StrCat(device, " has no fault ", number));
}

absl::StatusOr<Json> BytesOf(const std::string& file) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error) return absl::NotFoundError(absl::StrCat(file, ": ", error.message()));
  return Json(bytes);
}

Verdict Judge(const Expectation& expectation, const Timeline& timeline,
              Surroundings& surroundings) {
  const std::string text = TextOf(expectation);
  if (const auto* const value = std::get_if<CheckValue>(&expectation)) {
    return OfNumber(text, value->comparison, surroundings.Ask(value->query));
  }
  if (const auto* const count = std::get_if<FaultCount>(&expectation)) {
    return OfNumber(text, count->comparison,
                    CountOf(surroundings, count->device, count->fault, count->counter));
  }
  if (const auto* const bytes = std::get_if<FileBytes>(&expectation)) {
    const absl::StatusOr<std::string> file = surroundings.Fill(bytes->file);
    return OfNumber(text, bytes->comparison,
                    file.ok() ? BytesOf(*file) : absl::StatusOr<Json>(file.status()));
  }
  if (const auto* const time = std::get_if<WholeTime>(&expectation)) {
    return {time->comparison.Holds(timeline.lasted_ns()), text, TimeText(timeline.lasted_ns())};
  }
  const auto& log = std::get<LogPrints>(expectation);
  const bool found = log.pattern.Matches(surroundings.daemon()->output().text());
  return {found == log.wanted, text, found ? "printed" : "not printed"};
}

}  // namespace

void CheckPrograms(const Scenario& scenario, const std::vector<ProgramRun>& runs,
                   std::vector<Verdict>& out) {
  for (size_t i = 0; i < runs.size(); ++i) CheckProgram(scenario.programs[i], runs[i], out);
}

void CheckRest(const Scenario& scenario, const Timeline& timeline, Surroundings& surroundings,
               ProcessSet& processes, std::vector<Verdict>& out) {
  const uint64_t deadline_ns = NowNs() + kSettleLimitNs;
  for (;;) {
    std::vector<Verdict> verdicts;
    for (const AddedFault& added : timeline.added_faults()) {
      verdicts.push_back(OfNumber(absl::StrCat(added.step, ": its fault hits ", added.hits.text()),
                                  added.hits,
                                  CountOf(surroundings, added.device, added.number, "hit")));
    }
    for (const Expectation& expectation : scenario.expectations) {
      verdicts.push_back(Judge(expectation, timeline, surroundings));
    }
    const bool all = std::ranges::all_of(verdicts, &Verdict::holds);
    if (all || processes.interrupted() || NowNs() >= deadline_ns ||
        !surroundings.daemon()->IsRunning()) {
      out.insert(out.end(), verdicts.begin(), verdicts.end());
      return;
    }
    processes.Wait(NowNs() + kPauseNs);
  }
}

}  // namespace roci::tools
