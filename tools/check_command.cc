// roci check FILE...
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/gunzip.h"
#include "tools/judge/judge.h"
#include "tools/judge/report.h"

namespace roci::tools {
namespace {

using judge::Certainty;
using judge::Finding;
using judge::Findings;
using judge::Flow;
using judge::Judge;
using judge::JudgeTotals;
using judge::Rule;
using judge::RuleRow;
using judge::Severity;

constexpr int kViolations = 1;
constexpr int kTrouble = 2;

constexpr char kManual[] =
    R"(FILE is a capture as `roci decode` reads it: pcap or pcapng, also compressed with gzip; - is standard
input. It may come from any adapter, any host on the way, and have one or both directions. Each file
is judged alone. In a file of several interfaces each interface is.

Print a line for each finding: the number of the frame, its time, source, destination and destination
queue pair, its severity, the rule and its text, details, and the clause of IBTA volume 1 (A: an
annex). `--rules` lists the rules. Of one rule and queue pair the first ten findings are printed
(--most), and all are counted.

  violation   breaks a requirement: receivers may drop the packet, or the connection may fail
  deviation   differs from the specification, and peers work with it; printed once for a queue pair
  note        unusual: printed with --notes, once for a queue pair

A capture may lack frames. A finding that a missing frame would explain is marked as unsure if the
capture shows that it lacks frames of the queue pair, says so in its statistics, or could not show it.
--whole says that it lacks none: then such findings count as certain.

Queue pairs are matched by the messages of the connection manager, or by the PSNs of responses.
Without a match (one direction only, or several candidates) each direction is judged alone. RoCEv1
and packets in undecoded headers are counted. Of cut frames the headers are judged, not the ICRC. A
frame that an adapter sent to itself is judged once, if the capture says which frames were sent
(pcapng).

--summary prints for each direction of a queue pair: packets, payload bytes, messages; PSNs that were
missing at first, packets sent again, copies made by the network, damaged packets; NAKs, and what
followed; the time from a request with AckReq to its answer, from a NAK to the retransmission, and
from the last progress to a retransmission without a NAK; CNPs; payload over time, the denser the
more.

With --json each file is one JSON object: file, error (null, or why the file ends early), frames, roce,
dropped, own_copies (of frames that an adapter sent to itself), findings, counts (by rule, of all findings: sure and unsure), and with --summary queue_pairs and cnps.

Exit status: 0 if no certain violation was found; 1 if there is one; 2 for wrong usage, for a file that
cannot be read or is no capture, for a file that is damaged or cut off (what it has is judged), and if
the output cannot be written.

Examples:
  roci check traffic.pcapng
  tcpdump -i eth0 -w - udp port 4791 | roci check --summary -
  roci check --json traffic.pcap | jq '.findings[] | select(.severity == "violation")')";

struct CheckOptions {
  std::vector<std::string> paths;
  bool json = false;
  bool summary = false;
  bool notes = false;
  bool whole = false;
  bool rules = false;
  uint32_t most = Findings::kMostPerFlow;
  std::string svg;
};

bool IsCertain(const Finding& finding, const CheckOptions& options) {
  return options.whole || finding.certainty == Certainty::kSure;
}

bool IsPrinted(const Finding& finding, const CheckOptions& options) {
  return options.notes || judge::RowOf(finding.rule).severity != Severity::kNote;
}

// Result of one file.
struct FileResult {
  int status = 0;
  std::string error;  // why it was not read to its end
};

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void PrintRules() {
  for (const RuleRow& row : judge::kRules) {
    std::printf("%-20s %-10s %s [IBTA %s]\n", row.name, judge::SeverityName(row.severity), row.text,
                row.clause);
  }
}

void PrintText(const std::string& path, const Judge& judge, const CheckOptions& options) {
  for (const Finding& finding : judge.findings().list()) {
    if (!IsPrinted(finding, options)) continue;
    Finding shown = finding;
    if (options.whole) shown.certainty = Certainty::kSure;
    Print(path + ": " + judge::FindingText(shown) + "\n");
  }
  if (!options.summary) return;
  for (const Flow& flow : judge.flows().flows()) Print(judge::FlowText(flow));
  Print(judge::CnpText(judge.congestion()));
}

nlohmann::ordered_json CountsJson(const Findings& findings) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (size_t i = 0; i < judge::kRuleCount; ++i) {
    const auto rule = static_cast<Rule>(i);
    const uint64_t sure = findings.count(rule, Certainty::kSure);
    const uint64_t unsure = findings.count(rule, Certainty::kUnsure);
    if (sure + unsure != 0) counts[judge::kRules[i].name] = {{"sure", sure}, {"unsure", unsure}};
  }
  return counts;
}

void PrintJson(const std::string& path, const Judge& judge, const FileResult& result,
               const CheckOptions& options) {
  using Json = nlohmann::ordered_json;
  Json out = {{"file", path},
              {"error", result.error.empty() ? Json() : Json(result.error)},
              {"frames", judge.totals().frames},
              {"roce", judge.totals().roce},
              {"dropped", judge.totals().dropped},
              {"own_copies", judge.totals().own_copies},
              {"findings", Json::array()},
              {"counts", CountsJson(judge.findings())}};
  for (const Finding& finding : judge.findings().list()) {
    if (!IsPrinted(finding, options)) continue;
    Json entry = judge::FindingJson(finding);
    entry["sure"] = IsCertain(finding, options);
    out["findings"].push_back(std::move(entry));
  }
  if (options.summary) {
    out["queue_pairs"] = Json::array();
    for (const Flow& flow : judge.flows().flows())
      out["queue_pairs"].push_back(judge::FlowJson(flow));
    out["cnps"] = judge::CnpJson(judge.congestion());
  }
  // A path may have any bytes.
  Print(out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void PrintTotals(const std::string& path, const Judge& judge) {
  const JudgeTotals& totals = judge.totals();
  const Findings& findings = judge.findings();
  const auto total = [&](Severity severity, Certainty certainty) {
    return findings.Total(severity, certainty);
  };
  std::fprintf(
      stderr,
      "%s: %" PRIu64 " frames, %" PRIu64 " of RoCE: %" PRIu64 " violations (and %" PRIu64
      " unsure), %" PRIu64 " deviations, %" PRIu64 " notes",
      path.c_str(), totals.frames, totals.roce, total(Severity::kViolation, Certainty::kSure),
      total(Severity::kViolation, Certainty::kUnsure),
      total(Severity::kDeviation, Certainty::kSure) +
          total(Severity::kDeviation, Certainty::kUnsure),
      total(Severity::kNote, Certainty::kSure) + total(Severity::kNote, Certainty::kUnsure));
  const char* separator = "; not judged: ";
  const auto print = [&separator](uint64_t count, const char* words) {
    if (count == 0) return;
    std::fprintf(stderr, "%s%" PRIu64 " %s", separator, count, words);
    separator = ", ";
  };
  print(totals.cut, "cut within the headers");
  print(totals.unchecked, "ICRCs of cut frames");
  print(totals.v1, "of RoCEv1");
  print(totals.hidden, "in headers that are not decoded");
  print(totals.unfollowed, "of too many flows");
  print(totals.dropped, "that the capture lacks");
  print(totals.own_copies, "that the adapter received from itself");
  std::fputc('\n', stderr);
}

// Judges all records. The error: why the file was not read to its end.
FileResult JudgeFile(std::FILE* file, Judge& judge) {
  int read_error = 0;
  Gunzip gunzip([&](std::byte* p, size_t n) {
    const size_t got = std::fread(p, 1, n, file);
    if (got < n && std::ferror(file) != 0) read_error = errno;
    return got;
  });
  constexpr size_t kAhead = 1 << 20;
  CaptureReader reader([&gunzip](std::byte* p, size_t n) { return gunzip.Read(p, n); }, kAhead);
  CaptureRecord record;
  while (reader.Next(record) == CaptureReader::Outcome::kRecord) judge.Add(record);
  judge.Finish(reader.dropped());
  FileResult result;
  if (read_error != 0) {
    result.error = std::strerror(read_error);
  } else {
    result.error = gunzip.error().empty() ? reader.error() : gunzip.error();
  }
  if (!result.error.empty()) result.status = kTrouble;
  return result;
}

bool WriteSvg(const std::string& path, const std::string& document) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                             &std::fclose);
  const bool done =
      file != nullptr &&
      std::fwrite(document.data(), 1, document.size(), file.get()) == document.size() &&
      std::fflush(file.get()) == 0;
  if (!done) std::fprintf(stderr, "roci: %s: %s\n", path.c_str(), std::strerror(errno));
  return done;
}

int CheckFile(const std::string& path, const CheckOptions& options) {
  const bool is_input = path == "-";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(
      is_input ? nullptr : std::fopen(path.c_str(), "rb"),
      [](std::FILE* file) { return file == nullptr ? 0 : std::fclose(file); });
  if (!is_input && opened == nullptr) {
    std::fprintf(stderr, "roci: %s: %s\n", path.c_str(), std::strerror(errno));
    return kTrouble;
  }
  const auto judge = std::make_unique<Judge>(options.most);
  FileResult result = JudgeFile(is_input ? stdin : opened.get(), *judge);
  const Findings& findings = judge->findings();
  const bool is_wrong =
      findings.Total(Severity::kViolation, Certainty::kSure) != 0 ||
      (options.whole && findings.Total(Severity::kViolation, Certainty::kUnsure) != 0);
  if (result.status == 0 && is_wrong) result.status = kViolations;
  if (options.json) {
    PrintJson(path, *judge, result, options);
  } else {
    PrintText(path, *judge, options);
  }
  if (!result.error.empty())
    std::fprintf(stderr, "roci: %s: %s\n", path.c_str(), result.error.c_str());
  if (result.error.empty() || judge->totals().frames != 0) PrintTotals(path, *judge);
  if (!options.svg.empty() && !WriteSvg(options.svg, judge::GoodputSvg(judge->flows())))
    return kTrouble;
  return result.status;
}

int Check(const CheckOptions& options) {
  int status = 0;
  if (options.rules) {
    PrintRules();
  } else if (options.paths.empty()) {
    std::fputs("roci: check needs a FILE\n", stderr);
    return kTrouble;
  } else if (!options.svg.empty() && options.paths.size() > 1) {
    std::fputs("roci: --svg draws one FILE\n", stderr);
    return kTrouble;
  }
  for (const std::string& path : options.paths) status = std::max(status, CheckFile(path, options));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "roci: cannot write the findings: %s\n", std::strerror(errno));
    return kTrouble;
  }
  return status;
}

}  // namespace

void AddCheckCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command =
      app.add_subcommand("check", "Judge the RoCE frames of captures: what breaks the rules");
  command->add_option("FILE", options->paths,
                      "pcap or pcapng files (also .gz), or - for standard input");
  command->add_flag("--json", options->json, "Print one JSON object per file");
  command->add_flag("--summary", options->summary,
                    "Print bytes, losses, times and rates of each queue pair");
  command->add_option("--svg", options->svg, "Draw the rates over time to this file")
      ->type_name("OUTPUT");
  command->add_flag("--notes", options->notes, "Print notes as well");
  command->add_flag("--whole", options->whole, "Take the captures as complete");
  command->add_option("--most", options->most, "Findings to print of a rule and queue pair")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--rules", options->rules, "List the rules");
  command->footer(kManual);
  command->callback([options, &context] { context.exit_status = Check(*options); });
}

}  // namespace roci::tools
