#include "tools/link/selection.h"

#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dataplane/types/frame_filter.h"
#include "dataplane/types/impairment_settings.h"
#include "roce/opcode.h"

namespace roci::tools {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

// "1.5ms": a number and one of the units, at most `most` of the smallest.
std::optional<uint64_t> ParseQuantity(const std::string& text, std::initializer_list<Unit> units,
                                      double most) {
  const size_t unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view name = std::string_view(text).substr(unit_at);
  const auto unit =
      std::find_if(units.begin(), units.end(), [&](const Unit& each) { return each.name == name; });
  double value = 0;
  if (unit == units.end() || !absl::SimpleAtod(text.substr(0, unit_at), &value)) {
    return std::nullopt;
  }
  if (!(value * unit->scale <= most)) return std::nullopt;
  return static_cast<uint64_t>(std::llround(value * unit->scale));
}

}  // namespace

std::optional<uint64_t> ParseNumber(const std::string& text, uint64_t most) {
  uint64_t value = 0;
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const bool is_number =
      is_hex ? absl::SimpleHexAtoi(text, &value) : absl::SimpleAtoi(text, &value);
  if (!is_number || value > most) return std::nullopt;
  return value;
}

std::vector<uint32_t> FindOpcodes(const std::string& text) {
  if (const auto number = ParseNumber(text, 255)) return {static_cast<uint32_t>(*number)};
  std::vector<uint32_t> found;
  for (uint32_t opcode = 0; opcode < roce::kOpcodeTable.size(); ++opcode) {
    const roce::OpcodeInfo& info = roce::kOpcodeTable[opcode];
    if (info.known && fnmatch(text.c_str(), info.name, FNM_CASEFOLD) == 0) found.push_back(opcode);
  }
  return found;
}

std::optional<double> ParseChance(const std::string& text) {
  const bool is_percent = text.ends_with('%');
  double value = 0;
  if (!absl::SimpleAtod(is_percent ? text.substr(0, text.size() - 1) : text, &value)) {
    return std::nullopt;
  }
  if (is_percent) value /= 100;
  if (!(value >= 0 && value <= 1)) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseDuration(const std::string& text, uint64_t most_ns) {
  return ParseQuantity(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}},
                       static_cast<double>(most_ns));
}

std::optional<uint64_t> ParseRate(const std::string& text) {
  return ParseQuantity(
      absl::AsciiStrToLower(text),
      {{"", 1}, {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12}},
      double{dataplane::BottleneckSettings::kMostRateBps});
}

std::optional<uint64_t> ParseQueue(const std::string& text, uint64_t rate_bps) {
  if (const auto time_ns = ParseDuration(text)) {
    return static_cast<uint64_t>(
        std::ceil(static_cast<double>(rate_bps) / 8e9 * static_cast<double>(*time_ns)));
  }
  constexpr double kKilo = 1024;
  return ParseQuantity(absl::AsciiStrToLower(text),
                       {{"", 1},
                        {"b", 1},
                        {"k", kKilo},
                        {"kb", kKilo},
                        {"m", kKilo * kKilo},
                        {"mb", kKilo * kKilo},
                        {"g", kKilo * kKilo * kKilo},
                        {"gb", kKilo * kKilo * kKilo}},
                       static_cast<double>(kMostInJson));
}

void AddSelectionOptions(CLI::App& command, Selection& selection) {
  command
      .add_option(
          "--qp", selection.qps,
          "Select packets to this queue pair number, datagrams from it, and all packets that it "
          "sends if it is now a connected queue pair of DEV; repeatable")
      ->expected(1)
      ->take_all()
      ->check([](const std::string& text) {
        return ParseNumber(text, roce::kMask24) ? std::string()
                                                : text + " is not a queue pair number";
      })
      ->check([&selection](const std::string&) {
        return selection.qps.size() <= dataplane::FrameFilter::kMaxQpns
                   ? std::string()
                   : absl::StrCat("at most ", dataplane::FrameFilter::kMaxQpns, " queue pairs");
      });
  command
      .add_option("--opcode", selection.opcodes,
                  "Select packets with this opcode: a name (RC_SEND_ONLY), a pattern ('*READ*') or "
                  "a number; repeatable")
      ->expected(1)
      ->take_all()
      ->check([](const std::string& text) {
        return FindOpcodes(text).empty() ? "there is no opcode " + text : std::string();
      });
}

void AddSelection(const Selection& selection, nlohmann::json& request) {
  for (const std::string& text : selection.qps) {
    request["qps"].push_back(*ParseNumber(text, roce::kMask24));
  }
  std::set<uint32_t> opcodes;
  for (const std::string& text : selection.opcodes) {
    const std::vector<uint32_t> found = FindOpcodes(text);
    opcodes.insert(found.begin(), found.end());
  }
  if (!opcodes.empty()) request["opcodes"] = opcodes;
}

void AddPeers(const nlohmann::json& shown, const std::string& device, nlohmann::json& request) {
  const std::vector<uint32_t> named = request.value("qps", std::vector<uint32_t>());
  for (const nlohmann::json& qp : shown) {
    const auto found = std::find(named.begin(), named.end(), qp.value("qpn", 0u));
    if (qp.value("device", "") != device || found == named.end()) continue;
    const uint32_t peer = qp.value("remote_qpn", 0u);
    if (peer != 0) request["peers"].push_back(peer);
  }
}

}  // namespace roci::tools
