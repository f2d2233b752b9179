#include "tools/judge/report.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "control/net/ip_text.h"
#include "roce/work.h"

namespace roci::tools::judge {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kNsPerSecond = static_cast<int64_t>(roce::kNsPerSecond);
constexpr char kUnsure[] = " (unsure, the capture may lack frames)";

const char* TransportName(roce::Transport transport) {
  constexpr std::array kNames = {"RC", "UC", "RD", "UD", "CNP", "XRC"};
  return kNames[static_cast<size_t>(transport)];
}

std::string FlowNameText(const FlowName& name) {
  return absl::StrFormat("%s > %s qp 0x%x", control::IpText(name.src), control::IpText(name.dst),
                         name.dest_qpn);
}

Json HistogramJson(const TimeHistogram& times) {
  if (times.count() == 0) return nullptr;
  return {{"count", times.count()},
          {"least_ns", times.least_ns()},
          {"mean_ns", times.mean_ns()},
          {"p99_ns", times.QuantileNs(0.99)},
          {"most_ns", times.most_ns()}};
}

std::string HistogramText(const char* name, const TimeHistogram& times) {
  if (times.count() == 0) return "";
  return absl::StrCat("  ", name, ": ", DurationText(times.least_ns()), " least, ",
                      DurationText(times.mean_ns()), " mean, ",
                      DurationText(times.QuantileNs(0.99)), " 99%, ", DurationText(times.most_ns()),
                      " most (", times.count(), ")\n");
}

double MegabitsPerSecond(uint64_t bytes, uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(bytes) * 8e3 / static_cast<double>(ns);
}

// One character for each interval: the denser, the more bytes.
std::string SeriesText(const ByteSeries& series) {
  constexpr std::string_view kDensity = " .:-=+*#%@";
  const uint64_t most = series.most();
  std::string out;
  for (const uint64_t bytes : series.bins()) {
    const uint64_t level = most == 0 ? 0 : (bytes * (kDensity.size() - 1) + most - 1) / most;
    out += kDensity[level];
  }
  return out;
}

Json CountsJson(const FlowTotals& totals) {
  return {{"packets", totals.packets},   {"bytes", totals.payload_bytes},
          {"messages", totals.messages}, {"missing", totals.missing},
          {"repeated", totals.repeated}, {"copies", totals.duplicates},
          {"damaged", totals.damaged},   {"naks", totals.naks},
          {"rnr_naks", totals.rnr_naks}, {"selective_naks", totals.selective_naks},
          {"timeouts", totals.timeouts}, {"nak_recoveries", totals.nak_recoveries},
          {"marked", totals.marked},     {"cnps", totals.cnps}};
}

Json SeriesJson(const ByteSeries& series) {
  return {{"start_ns", series.start_ns()},
          {"interval_ns", series.interval_ns()},
          {"bytes", std::vector<uint64_t>(series.bins().begin(), series.bins().end())}};
}

roce::Gid GidOf(const CongestionWatch::PortKey& key) { return roce::Gid{key}; }

}  // namespace

std::string TimeText(bool has_time, int64_t time_ns) {
  if (!has_time) return "";
  const bool is_before = time_ns < 0;
  const uint64_t magnitude =
      is_before ? uint64_t{0} - static_cast<uint64_t>(time_ns) : static_cast<uint64_t>(time_ns);
  return absl::StrFormat("%s%d.%09d", is_before ? "-" : "", magnitude / kNsPerSecond,
                         magnitude % kNsPerSecond);
}

std::string DurationText(uint64_t ns) {
  if (ns < 1'000) return absl::StrFormat("%d ns", ns);
  const auto value = static_cast<double>(ns);
  if (ns < 1'000'000) return absl::StrFormat("%.1f us", value / 1e3);
  if (ns < 1'000'000'000) return absl::StrFormat("%.1f ms", value / 1e6);
  return absl::StrFormat("%.2f s", value / 1e9);
}

std::string FindingText(const Finding& finding) {
  const RuleRow& row = RowOf(finding.rule);
  const std::string time = TimeText(finding.has_time, finding.time_ns);
  return absl::StrCat("frame ", finding.frame, time.empty() ? "" : " ", time, " ",
                      FlowNameText({finding.src, finding.dst, finding.dest_qpn}), ": ",
                      SeverityName(row.severity), " ", row.name, ": ", row.text,
                      finding.detail.empty() ? "" : ": ", finding.detail, " [IBTA ", row.clause,
                      "]", finding.certainty == Certainty::kUnsure ? kUnsure : "");
}

Json FindingJson(const Finding& finding) {
  const RuleRow& row = RowOf(finding.rule);
  Json out = {{"frame", finding.frame}};
  if (finding.has_time) out["time"] = TimeText(true, finding.time_ns);
  out["src"] = control::IpText(finding.src);
  out["dst"] = control::IpText(finding.dst);
  out["dest_qpn"] = finding.dest_qpn;
  out["rule"] = row.name;
  out["clause"] = row.clause;
  out["severity"] = SeverityName(row.severity);
  out["sure"] = finding.certainty == Certainty::kSure;
  out["text"] = row.text;
  out["detail"] = finding.detail;
  return out;
}

Json FlowJson(const Flow& flow) {
  const FlowTotals& totals = flow.totals;
  Json out = {{"src", control::IpText(flow.key.src)},
              {"dst", control::IpText(flow.key.dst)},
              {"dest_qpn", flow.key.dest_qpn},
              {"interface", flow.key.interface},
              {"vlan", flow.key.vlan},
              {"transport", TransportName(flow.transport)},
              {"src_qpn", flow.peer == nullptr ? Json() : Json(flow.peer->key.dest_qpn)},
              {"path_mtu", flow.mtu == 0 ? Json() : Json(flow.mtu)}};
  out.update(CountsJson(totals));
  out["rtt"] = HistogramJson(totals.rtt);
  out["recovery"] = HistogramJson(totals.recovery);
  out["timeout"] = HistogramJson(totals.timeout);
  const uint64_t interval = flow.congestion.cnps.least_ns;
  out["least_cnp_interval_ns"] = interval == UINT64_MAX ? Json() : Json(interval);
  out["goodput"] = SeriesJson(totals.goodput);
  return out;
}

std::string FlowText(const Flow& flow) {
  const FlowTotals& totals = flow.totals;
  std::string out = absl::StrCat(FlowNameText(flow.name()), ", ", TransportName(flow.transport));
  if (flow.peer != nullptr) absl::StrAppendFormat(&out, ", from qp 0x%x", flow.peer->key.dest_qpn);
  if (flow.mtu != 0) absl::StrAppend(&out, ", path MTU ", flow.mtu);
  absl::StrAppend(&out, "\n ");
  const Json counts = CountsJson(totals);
  for (const auto& [name, count] : counts.items()) {
    const bool is_always = name == "packets" || name == "bytes" || name == "messages";
    if (count == 0 && !is_always) continue;
    absl::StrAppend(&out, " ", name, " ", count.get<uint64_t>());
  }
  out += '\n';
  absl::StrAppend(&out, HistogramText("rtt", totals.rtt),
                  HistogramText("after a NAK", totals.recovery),
                  HistogramText("without a NAK", totals.timeout));
  if (flow.congestion.cnps.least_ns != UINT64_MAX) {
    absl::StrAppend(&out, "  CNPs at least ", DurationText(flow.congestion.cnps.least_ns),
                    " apart\n");
  }
  const ByteSeries& goodput = totals.goodput;
  const uint64_t time = goodput.interval_ns() * goodput.bins().size();
  if (goodput.total() != 0) {
    absl::StrAppendFormat(&out, "  %.1f Mb/s in %s, %s each: |%s|\n",
                          MegabitsPerSecond(goodput.total(), time), DurationText(time),
                          DurationText(goodput.interval_ns()), SeriesText(goodput));
  }
  return out;
}

Json CnpJson(const CongestionWatch& watch) {
  const auto of = [](const CnpIntervals& intervals) {
    return Json{{"cnps", intervals.count},
                {"least_interval_ns",
                 intervals.least_ns == UINT64_MAX ? Json() : Json(intervals.least_ns)}};
  };
  Json out = {{"ports", Json::array()}, {"pairs", Json::array()}};
  for (const auto& [port, intervals] : watch.ports()) {
    Json entry = {{"src", control::IpText(GidOf(port))}};
    entry.update(of(intervals));
    out["ports"].push_back(std::move(entry));
  }
  for (const auto& [pair, intervals] : watch.pairs()) {
    Json entry = {{"src", control::IpText(GidOf(pair.first))},
                  {"dst", control::IpText(GidOf(pair.second))}};
    entry.update(of(intervals));
    out["pairs"].push_back(std::move(entry));
  }
  return out;
}

std::string CnpText(const CongestionWatch& watch) {
  std::string out;
  const auto add = [&out](const std::string& who, const CnpIntervals& intervals) {
    absl::StrAppend(&out, "CNPs of ", who, ": ", intervals.count);
    if (intervals.least_ns != UINT64_MAX) {
      absl::StrAppend(&out, ", at least ", DurationText(intervals.least_ns), " apart");
    }
    out += '\n';
  };
  for (const auto& [port, intervals] : watch.ports()) {
    add(control::IpText(GidOf(port)), intervals);
  }
  for (const auto& [pair, intervals] : watch.pairs()) {
    add(absl::StrCat(control::IpText(GidOf(pair.first)), " to ",
                     control::IpText(GidOf(pair.second))),
        intervals);
  }
  return out;
}

std::string GoodputSvg(const FlowTable& flows) {
  constexpr int kWidth = 640, kHeight = 80, kText = 16, kGap = 12;
  constexpr int kBar = kWidth / static_cast<int>(ByteSeries::kBins);
  std::string drawings;
  int top = kGap;
  for (const Flow& flow : flows.flows()) {
    const ByteSeries& series = flow.totals.goodput;
    const uint64_t most = series.most();
    if (most == 0) continue;
    absl::StrAppendFormat(
        &drawings, "<text x=\"%d\" y=\"%d\">%s: most %.1f Mb/s, %s an interval</text>\n", kGap,
        top + kText - 4,
        absl::StrCat(control::IpText(flow.key.src), " to ", control::IpText(flow.key.dst), " qp ",
                     flow.key.dest_qpn),
        MegabitsPerSecond(most, series.interval_ns()), DurationText(series.interval_ns()));
    top += kText;
    for (size_t i = 0; i < series.bins().size(); ++i) {
      const auto height = static_cast<int>(series.bins()[i] * kHeight / most);
      if (height == 0) continue;
      absl::StrAppendFormat(&drawings, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                            kGap + static_cast<int>(i) * kBar, top + kHeight - height, kBar - 1,
                            height);
    }
    top += kHeight + kGap;
  }
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\" fill=\"#346\">\n%s</svg>\n",
      kWidth + 2 * kGap, top, drawings);
}

}  // namespace roci::tools::judge
