#include "tools/scenario/parse_scenario.h"

#include <array>
#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "control/config/nearest_name.h"
#include "tools/scenario/placeholders.h"
#include "tools/scenario/toml_keys.h"
#include "tools/scenario/words.h"

namespace roci::tools {
namespace {

using Names = std::map<std::string, size_t>;

constexpr size_t kMostPatterns = 64;

constexpr auto kScenarioKeys = std::to_array<std::string_view>(
    {"title", "text", "time_limit", "rocid", "program", "step", "expect"});
constexpr auto kProgramKeys =
    std::to_array<std::string_view>({"name", "command", "at", "when", "wait", "ready", "stop",
                                     "exit", "lasts", "prints", "prints_not"});
constexpr auto kReadyKeys = std::to_array<std::string_view>({"listens", "prints", "after"});
constexpr auto kStepKeys =
    std::to_array<std::string_view>({"name", "at", "when", "wait", "roci", "hits", "signal",
                                     "program", "show", "device", "value", "is"});
constexpr auto kConditionKeys = std::to_array<std::string_view>(
    {"ready", "ended", "done", "program", "prints", "show", "device", "value", "is"});
constexpr auto kExpectKeys =
    std::to_array<std::string_view>({"show", "device", "value", "is", "fault", "number", "counter",
                                     "file", "bytes", "lasts", "log", "log_not"});

bool IsName(const std::string& text) {
  constexpr size_t kMost = 40;
  if (text.empty() || text.size() > kMost) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') return false;
  }
  return true;
}

// "/home/x/port_flap.toml": "port_flap"
std::string NameOfFile(const std::string& file) {
  return std::string(
      absl::StripSuffix(file.substr(file.rfind('/') + 1), absl::string_view(".toml")));
}

class Parser {
 public:
  Parser(const toml::table& table, const std::string& file, control::TomlFaults& faults)
      : faults_(faults), keys_(table, "", kScenarioKeys, faults) {
    out_.file = file;
    out_.name = NameOfFile(file);
  }

  Scenario Parse() {
    for (const std::string_view key : {"title", "text", "program"}) {
      if (!keys_.Has(key)) keys_.Fault(key, "is missing");
    }
    keys_.Text("title", out_.title);
    keys_.Text("text", out_.text);
    keys_.Time("time_limit", Scenario::kMostTimeLimitNs, out_.time_limit_ns);
    ReadRocid();
    // Names first: programs and steps may refer to later ones.
    ReadNames("program", Scenario::kMostPrograms, programs_);
    ReadNames("step", Scenario::kMostSteps, steps_);
    keys_.Tables("program", Scenario::kMostPrograms,
                 [&](const auto& table, const auto& prefix) { ReadProgram(table, prefix); });
    keys_.Tables("step", Scenario::kMostSteps,
                 [&](const auto& table, const auto& prefix) { ReadStep(table, prefix); });
    keys_.Tables("expect", Scenario::kMostExpectations,
                 [&](const auto& table, const auto& prefix) { ReadExpect(table, prefix); });
    return std::move(out_);
  }

 private:
  void ReadRocid() {
    const toml::node* const node = keys_.Get("rocid");
    if (node == nullptr) return;
    if (node->is_string()) {
      keys_.Text("rocid", out_.rocid_config);
      return;
    }
    if (!node->is_table()) return keys_.Fault("rocid", "must be a table, or the text of a file");
    std::ostringstream text;
    text << toml::toml_formatter(*node->as_table());
    out_.rocid_config = text.str();
  }

  void ReadNames(std::string_view key, size_t most, Names& names) {
    size_t index = 0;
    keys_.Tables(key, most, [&](const toml::table& table, const std::string& prefix) {
      const auto name = table["name"].value<std::string>();
      const size_t number = index++;
      if (!name.has_value() && key == "step") return;
      if (!name.has_value() || !IsName(*name)) {
        faults_.Add(table.source(), absl::StrCat(prefix, "name"),
                    "must be letters, digits, _ and -, at most 40");
      } else if (!names.emplace(*name, number).second) {
        faults_.Add(table.source(), absl::StrCat(prefix, "name"),
                    absl::StrCat("there are two of the name ", *name));
      }
    });
  }

  // The position of the program or step that `key` names.
  bool Refer(TomlKeys& keys, std::string_view key, const Names& names, size_t& out) {
    std::string name;
    if (!keys.Text(key, name)) return false;
    return Refer(keys, key, name, names, out);
  }
  bool Refer(TomlKeys& keys, std::string_view key, const std::string& name, const Names& names,
             size_t& out) {
    const auto found = names.find(name);
    if (found != names.end()) {
      out = found->second;
      return true;
    }
    std::vector<std::string_view> all;
    for (const auto& [each, number] : names) all.push_back(each);
    const std::string nearest =
        all.empty()
            ? ""
            : absl::StrCat("; the nearest is ", std::string(control::NearestName(name, all)));
    keys.Fault(key, absl::StrCat("nothing has the name ", name, nearest));
    return false;
  }

  bool ReadComparison(TomlKeys& keys, std::string_view key, Comparison& out) {
    std::string text;
    if (!keys.Value(key, text)) {
      if (!keys.Has(key)) keys.Fault(key, "is missing: \">= 5\"");
      return false;
    }
    const auto comparison = Comparison::Parse(text);
    if (!comparison.has_value()) {
      keys.Fault(key, absl::StrCat("\"", text, "\" is no comparison: 5, \">= 5\", \"== active\""));
      return false;
    }
    out = *comparison;
    return true;
  }

  bool ReadQuery(TomlKeys& keys, Query& query, Comparison& comparison) {
    std::string kind, device, pointer;
    if (!keys.Text("show", kind)) return false;
    keys.Text("device", device);
    if (keys.Has("value")) keys.Text("value", pointer);
    return keys.Take("show", MakeQuery(kind, device, pointer), query) &&
           ReadComparison(keys, "is", comparison);
  }

  bool ReadPattern(TomlKeys& keys, std::string_view key, Pattern& out) {
    std::string text;
    return keys.Text(key, text) && keys.Take(key, Pattern::Compile(text), out);
  }

  void ReadPatterns(TomlKeys& keys, std::string_view key, std::vector<Pattern>& out) {
    std::vector<std::string> texts;
    keys.Texts(key, texts);
    if (texts.size() > kMostPatterns) return keys.Fault(key, "there are too many");
    for (const std::string& text : texts)
      keys.Take(key, Pattern::Compile(text), out.emplace_back());
  }

  void CheckPlaceholders(TomlKeys& keys, std::string_view key, const std::string& text) {
    const absl::Status status = roci::tools::CheckPlaceholders(text);
    if (!status.ok()) keys.Fault(key, status.message());
  }

  void CheckWords(TomlKeys& keys, std::string_view key, const std::string& line) {
    const auto words = SplitWords(line);
    if (!words.ok()) return keys.Fault(key, words.status().message());
    CheckPlaceholders(keys, key, line);
  }

  void ReadSignal(TomlKeys& keys, std::string_view key, int& out) {
    std::string name;
    if (!keys.Text(key, name)) return;
    out = FindSignal(name);
    if (out == 0) keys.Fault(key, absl::StrCat("there is no signal ", name));
  }

  // The conditions of a table `when`, each of which is one key (or several that belong together).
  void ReadConditions(const toml::table& table, const std::string& prefix,
                      std::vector<Condition>& out) {
    TomlKeys keys(table, prefix, kConditionKeys, faults_);
    const size_t before = out.size();
    std::vector<std::string> names;
    size_t position = 0;
    for (const std::string_view key : {"ready", "ended"}) {
      names.clear();
      keys.Texts(key, names);
      for (const std::string& name : names) {
        if (!Refer(keys, key, name, programs_, position)) continue;
        if (key == "ready") {
          out.emplace_back(ProgramReady{position});
        } else {
          out.emplace_back(ProgramEnded{position});
        }
      }
    }
    if (Refer(keys, "done", steps_, position)) out.emplace_back(StepDone{position});
    Pattern pattern;
    if (ReadPattern(keys, "prints", pattern)) {
      if (!keys.Has("program")) keys.Fault("prints", "needs \"program\"");
      if (Refer(keys, "program", programs_, position)) {
        out.emplace_back(ProgramPrints{position, pattern});
      }
    }
    ValueHolds value;
    if (ReadQuery(keys, value.query, value.comparison)) out.emplace_back(value);
    if (out.size() == before) keys.Fault("", "names no condition");
  }

  void ReadTrigger(TomlKeys& keys, const std::string& prefix, Trigger& out) {
    uint64_t at_ns = 0;
    if (keys.Time("at", Scenario::kMostTimeLimitNs, at_ns)) out.at_ns = at_ns;
    keys.Time("wait", Scenario::kMostTimeLimitNs, out.wait_ns);
    const toml::node* const when = keys.Get("when");
    if (when == nullptr) return;
    if (!when->is_table()) return keys.Fault("when", "must be a table: {ready = \"server\"}");
    ReadConditions(*when->as_table(), prefix + "when.", out.when);
  }

  void ReadReady(TomlKeys& keys, const std::string& prefix, Ready& out) {
    const toml::node* const node = keys.Get("ready");
    if (node == nullptr) return;
    if (!node->is_table()) return keys.Fault("ready", "must be a table: {listens = \"{port}\"}");
    TomlKeys inner(*node->as_table(), prefix + "ready.", kReadyKeys, faults_);
    if (inner.Word("listens", out.listens)) CheckPlaceholders(inner, "listens", out.listens);
    Pattern pattern;
    if (ReadPattern(inner, "prints", pattern)) out.prints = pattern;
    inner.Time("after", Scenario::kMostTimeLimitNs, out.after_ns);
  }

  // An exit status, a list of some, "failure", "any", or a signal.
  void ReadEnd(TomlKeys& keys, ProgramEnd& out) {
    const toml::node* const node = keys.Get("exit");
    if (node == nullptr) return;
    using Kind = ProgramEnd::Kind;
    out.kind = Kind::kStatuses;
    if (const auto* const name = node->as_string()) {
      const std::string& text = name->get();
      out.signal = FindSignal(text);
      out.kind = text == "any" ? Kind::kAny : text == "failure" ? Kind::kFailure : Kind::kSignal;
      if (out.kind == Kind::kSignal && out.signal == 0) {
        keys.Fault("exit", "must be a status, a list of some, a signal, \"failure\" or \"any\"");
      }
      return;
    }
    out.statuses.clear();
    bool fits = true;
    const auto read = [&](const toml::node& each) {
      const auto* const status = each.as_integer();
      fits = fits && status != nullptr && status->get() >= 0 && status->get() <= 255;
      if (fits) out.statuses.push_back(static_cast<int>(status->get()));
    };
    if (const auto* const list = node->as_array()) {
      for (const toml::node& each : *list) read(each);
    } else {
      read(*node);
    }
    if (!fits || out.statuses.empty()) keys.Fault("exit", "a status is a number from 0 to 255");
  }

  void ReadTimes(TomlKeys& keys, std::string_view key, std::vector<Comparison>& out) {
    std::vector<std::string> texts;
    keys.Texts(key, texts);
    for (const std::string& text : texts) {
      const auto comparison = Comparison::ParseTime(text);
      if (!comparison.has_value()) {
        return keys.Fault(key, absl::StrCat("\"", text, "\" is no bound of a time: \"<= 5s\""));
      }
      out.push_back(*comparison);
    }
  }

  void ReadProgram(const toml::table& table, const std::string& prefix) {
    TomlKeys keys(table, prefix, kProgramKeys, faults_);
    ScenarioProgram& program = out_.programs.emplace_back();
    keys.Text("name", program.name);
    if (!keys.Has("command")) keys.Fault("command", "is missing");
    if (keys.Text("command", program.command)) CheckWords(keys, "command", program.command);
    ReadTrigger(keys, prefix, program.trigger);
    ReadReady(keys, prefix, program.ready);
    ReadSignal(keys, "stop", program.stop_signal);
    if (program.stop_signal != 0) program.end.kind = ProgramEnd::Kind::kStopped;
    ReadEnd(keys, program.end);
    ReadTimes(keys, "lasts", program.lasts);
    ReadPatterns(keys, "prints", program.prints);
    ReadPatterns(keys, "prints_not", program.prints_not);
  }

  void ReadRoci(TomlKeys& keys, RunRoci& out) {
    if (!keys.Text("roci", out.line)) return;
    CheckWords(keys, "roci", out.line);
    if (absl::StartsWith(out.line, "roci ")) keys.Fault("roci", "begins with the subcommand");
    const bool adds_fault = absl::StartsWith(out.line, "fault add ");
    if (keys.Has("hits")) {
      if (!adds_fault) keys.Fault("hits", "is for `fault add` only");
      Comparison hits;
      if (ReadComparison(keys, "hits", hits)) out.hits = hits;
    } else if (adds_fault) {
      out.hits = Comparison::Parse(">= 1");
    }
  }

  void ReadStep(const toml::table& table, const std::string& prefix) {
    TomlKeys keys(table, prefix, kStepKeys, faults_);
    Step& step = out_.steps.emplace_back();
    if (keys.Has("name")) keys.Text("name", step.name);
    ReadTrigger(keys, prefix, step.trigger);
    const int actions = int{keys.Has("roci")} + int{keys.Has("signal")} + int{keys.Has("show")};
    if (actions != 1) return keys.Fault("", "needs one of roci, signal and show");
    if (keys.Has("signal")) {
      SendSignal& send = step.action.emplace<SendSignal>();
      ReadSignal(keys, "signal", send.signal);
      if (!keys.Has("program")) keys.Fault("signal", "needs \"program\"");
      Refer(keys, "program", programs_, send.program);
    } else if (keys.Has("show")) {
      CheckValue& check = step.action.emplace<CheckValue>();
      ReadQuery(keys, check.query, check.comparison);
    } else {
      ReadRoci(keys, step.action.emplace<RunRoci>());
    }
  }

  void ReadExpect(const toml::table& table, const std::string& prefix) {
    TomlKeys keys(table, prefix, kExpectKeys, faults_);
    const size_t before = out_.expectations.size();
    CheckValue value;
    if (ReadQuery(keys, value.query, value.comparison)) out_.expectations.emplace_back(value);
    FaultCount count{"", 1, "hit", {}};
    if (keys.Text("fault", count.device)) {
      keys.Number("number", UINT32_MAX, count.fault);
      keys.Text("counter", count.counter);
      if (ReadComparison(keys, "is", count.comparison)) out_.expectations.emplace_back(count);
    }
    FileBytes file;
    if (keys.Text("file", file.file) && ReadComparison(keys, "bytes", file.comparison)) {
      CheckPlaceholders(keys, "file", file.file);
      out_.expectations.emplace_back(file);
    }
    std::vector<Comparison> times;
    ReadTimes(keys, "lasts", times);
    for (const Comparison& time : times) out_.expectations.emplace_back(WholeTime{time});
    for (const bool wanted : {true, false}) {
      std::vector<Pattern> patterns;
      ReadPatterns(keys, wanted ? "log" : "log_not", patterns);
      for (const Pattern& each : patterns) out_.expectations.emplace_back(LogPrints{each, wanted});
    }
    if (out_.expectations.size() == before) keys.Fault("", "expects nothing");
  }

  control::TomlFaults& faults_;
  TomlKeys keys_;
  Names programs_;
  Names steps_;
  Scenario out_;
};

}  // namespace

absl::StatusOr<Scenario> ParseScenario(std::string_view text, const std::string& file) {
  Scenario out;
  const auto read = [&](const toml::table& table, control::TomlFaults& faults) {
    out = Parser(table, file, faults).Parse();
  };
  const absl::Status status =
      control::ParseToml(absl::string_view(text.data(), text.size()), file, read);
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<Scenario> LoadScenario(const std::string& file) {
  const absl::StatusOr<std::string> text =
      control::ReadTextFile(file, Scenario::kMostFileBytes, "a scenario");
  if (!text.ok()) return text.status();
  return ParseScenario(*text, file);
}

}  // namespace roci::tools
