#include "tools/top/view.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/show/printable.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

uint64_t Number(const Json& item, const char* key) {
  const auto it = item.find(key);
  const bool is_count = it != item.end() && it->is_number_integer() && *it >= 0;
  return is_count ? it->get<uint64_t>() : 0;
}

std::string Word(const Json& item, const char* key) {
  const auto it = item.find(key);
  return it != item.end() && it->is_string() ? Printable(it->get<std::string>()) : "-";
}

double Seconds(const TopSample& before, const TopSample& now) {
  return now.at_ns > before.at_ns ? static_cast<double>(now.at_ns - before.at_ns) / 1e9 : 0;
}

// Per second; 0 without an earlier value, or if the count began anew.
double Rate(uint64_t before, uint64_t now, double seconds) {
  return seconds > 0 && now > before ? static_cast<double>(now - before) / seconds : 0;
}

// ---- Devices

struct DeviceRates {
  std::string name;
  std::string state;
  double tx_packets, rx_packets, tx_bits, rx_bits, drops, retransmitted;
};

uint64_t Sum(const Json& numbers) {
  uint64_t sum = 0;
  for (const Json& each : numbers) sum += each.is_number_unsigned() ? each.get<uint64_t>() : 0;
  return sum;
}

const Json& Part(const Json& item, const char* key) {
  static const Json nothing = Json::object();
  const auto it = item.find(key);
  return it != item.end() && it->is_object() ? *it : nothing;
}

DeviceRates RatesOf(const Json& before, const Json& now, double seconds) {
  const auto counter = [&](const char* part, const char* key) {
    return Rate(Number(Part(before, part), key), Number(Part(now, part), key), seconds);
  };
  return {.name = Word(now, "device"),
          .state = Word(now, "state"),
          .tx_packets = counter("counters", "tx_packets"),
          .rx_packets = counter("counters", "rx_packets"),
          .tx_bits = 8 * counter("counters", "tx_bytes"),
          .rx_bits = 8 * counter("counters", "rx_bytes"),
          .drops = Rate(Sum(Part(before, "drops")), Sum(Part(now, "drops")), seconds),
          .retransmitted = counter("transport", "retransmitted_packets")};
}

const Json* Find(const Json& items, const char* key, const Json& wanted) {
  for (const Json& item : items) {
    if (item.contains(key) && wanted.contains(key) && item.at(key) == wanted.at(key)) return &item;
  }
  return nullptr;
}

void AddDevices(const TopSample& before, const TopSample& now, const TopSettings& settings,
                std::vector<std::string>& lines) {
  lines.push_back(absl::StrFormat("%-12s %-7s %6s %6s %7s %7s %7s %7s", "DEVICE", "LINK", "TX/s",
                                  "RX/s", "TXbit/s", "RXbit/s", "DROPS/s", "RETX/s"));
  for (const Json& item : now.counters) {
    if (!settings.device.empty() && Word(item, "device") != settings.device) continue;
    const Json* const old = Find(before.counters, "device", item);
    const DeviceRates rates = RatesOf(old != nullptr ? *old : item, item, Seconds(before, now));
    lines.push_back(absl::StrFormat("%-12s %-7s %6s %6s %7s %7s %7s %7s", rates.name, rates.state,
                                    ShortNumber(rates.tx_packets), ShortNumber(rates.rx_packets),
                                    ShortNumber(rates.tx_bits), ShortNumber(rates.rx_bits),
                                    ShortNumber(rates.drops), ShortNumber(rates.retransmitted)));
  }
}

// ---- Queue pairs

struct QpRow {
  const Json* item;
  double tx, rx, drops;
  uint64_t window;
  uint32_t qpn;
  std::string program;
};

using QpKey = std::tuple<std::string, uint64_t, uint64_t>;  // device, number, session

QpKey KeyOf(const Json& item) {
  return {Word(item, "device"), Number(item, "qpn"), Number(item, "session")};
}

std::vector<QpRow> Rows(const TopSample& before, const TopSample& now,
                        const TopSettings& settings) {
  std::map<QpKey, const Json*> old;
  for (const Json& item : before.qps) old[KeyOf(item)] = &item;
  const double seconds = Seconds(before, now);
  std::vector<QpRow> rows;
  for (const Json& item : now.qps) {
    if (!settings.device.empty() && Word(item, "device") != settings.device) continue;
    if (!settings.program.empty() && Word(item, "program") != settings.program) continue;
    const auto earlier = old.find(KeyOf(item));
    const Json& last = earlier != old.end() ? *earlier->second : item;
    const auto rate = [&](const char* key) {
      return Rate(Number(last, key), Number(item, key), seconds);
    };
    rows.push_back({&item, rate("tx_packets"), rate("rx_packets"), rate("drops"),
                    Number(Part(item, "requester"), "window"),
                    static_cast<uint32_t>(Number(item, "qpn")), Word(item, "program")});
  }
  return rows;
}

void Sort(std::vector<QpRow>& rows, TopOrder order) {
  std::ranges::stable_sort(rows, [order](const QpRow& a, const QpRow& b) {
    switch (order) {
      case TopOrder::kTx:
        return a.tx > b.tx;
      case TopOrder::kRx:
        return a.rx > b.rx;
      case TopOrder::kDrops:
        return a.drops > b.drops;
      case TopOrder::kWindow:
        return a.window > b.window;
      case TopOrder::kQpn:
        return a.qpn < b.qpn;
      case TopOrder::kProgram:
        return std::tie(a.program, a.qpn) < std::tie(b.program, b.qpn);
    }
    return false;
  });
}

// "7/7 6*": retries and RNR retries left, of those that there are; * waits for an RNR timer.
std::string Retries(const Json& item) {
  const Json& requester = Part(item, "requester");
  const bool is_waiting = requester.value("rnr_waiting", false);
  return absl::StrCat(Number(requester, "retries_left"), "/", Number(item, "retry_count"), " ",
                      Number(requester, "rnr_retries_left"), is_waiting ? "*" : "");
}

std::string Peer(const Json& item) {
  const uint64_t qpn = Number(item, "remote_qpn");
  return qpn == 0 ? "-" : absl::StrFormat("%s 0x%06x", Word(item, "remote"), qpn);
}

std::string Line(const QpRow& row) {
  const Json& item = *row.item;
  return absl::StrFormat("0x%06x %-22s %6s %6s %7s %6d %-8s %-8s %-5s %-12s %s", row.qpn,
                         absl::StrCat(row.program, "[", Number(item, "pid"), "]"),
                         ShortNumber(row.tx), ShortNumber(row.rx), ShortNumber(row.drops),
                         row.window, Retries(item), Word(item, "type"), Word(item, "state"),
                         Word(item, "device"), Peer(item));
}

void AddQueuePairs(const TopSample& before, const TopSample& now, const TopSettings& settings,
                   std::vector<std::string>& lines) {
  std::vector<QpRow> rows = Rows(before, now, settings);
  if (settings.only_active) {
    std::erase_if(rows, [](const QpRow& row) { return row.tx == 0 && row.rx == 0; });
  }
  Sort(rows, settings.order);
  lines.push_back(absl::StrFormat("%-8s %-22s %6s %6s %7s %6s %-8s %-8s %-5s %-12s %s", "QPN",
                                  "PROGRAM", "TX/s", "RX/s", "DROPS/s", "WINDOW", "RETRIES", "TYPE",
                                  "STATE", "DEVICE", "PEER"));
  for (const QpRow& row : rows) {
    if (lines.size() >= settings.lines) return;
    lines.push_back(Line(row));
  }
}

// "lcore 0: 87% busy"
std::string Lcores(const TopSample& before, const TopSample& now) {
  std::string text;
  for (const Json& item : now.lcores) {
    const Json* const old = Find(before.lcores, "lcore", item);
    const auto grown = [&](const char* key) {
      const uint64_t then = old != nullptr ? Number(*old, key) : 0;
      return static_cast<double>(Number(item, key) - std::min(then, Number(item, key)));
    };
    const double busy = grown("busy_cycles");
    const double all = busy + grown("idle_cycles");
    absl::StrAppendFormat(&text, "%slcore %d: %.0f%% busy", text.empty() ? "" : ", ",
                          Number(item, "lcore"), all > 0 ? 100 * busy / all : 0);
  }
  return text;
}

}  // namespace

std::string ShortNumber(double value) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const bool has_fraction = value < 9.95 && (unit != 0 || (value != 0 && value < 1));
  return has_fraction ? absl::StrFormat("%.1f%s", value, kUnits[unit])
                      : absl::StrFormat("%.0f%s", value, kUnits[unit]);
}

std::vector<std::string> TopLines(const TopSample& before, const TopSample& now,
                                  const TopSettings& settings) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrFormat("%d queue pairs by %s; %s", now.qps.size(),
                                  kTopOrderNames[static_cast<size_t>(settings.order)],
                                  Lcores(before, now)));
  AddDevices(before, now, settings, lines);
  lines.emplace_back();
  AddQueuePairs(before, now, settings, lines);
  if (lines.size() > settings.lines) lines.resize(settings.lines);
  for (std::string& line : lines) CutText(line, settings.columns);
  return lines;
}

}  // namespace roci::tools
