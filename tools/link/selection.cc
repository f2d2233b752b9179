#include "tools/link/selection.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dataplane/types/frame_filter.h"
#include "dataplane/types/impairment_settings.h"
#include "roce/types.h"

namespace roci::tools {

using control::ParseQuantity;

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
