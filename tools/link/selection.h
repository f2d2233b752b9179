// Options of `roci capture` and `roci impair` that select frames, and parsers of option values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "control/config/value_text.h"
#include "dataplane/types/impairment_settings.h"

namespace CLI {
class App;
}

namespace roci::tools {

struct Selection {
  std::vector<std::string> qps;
  std::vector<std::string> opcodes;
};

// --qp and --opcode, checked when they are parsed. `selection` outlives the parse.
void AddSelectionOptions(CLI::App& command, Selection& selection);

// Adds "qps" and "opcodes" to a request to the daemon.
void AddSelection(const Selection& selection, nlohmann::json& request);

// Adds "peers" to a request: the peers of those of its "qps" that are connected queue pairs of
// `device`, since the packets that these send carry only the peer's number. `shown`: the result of
// `roci show --json qps`.
void AddPeers(const nlohmann::json& shown, const std::string& device, nlohmann::json& request);

using control::FindOpcodes;
using control::kMostInJson;
using control::ParseChance;
using control::ParseNumber;

// "10us", "1.5ms", "200ns", "1s": nanoseconds, at most `most_ns` (less than 2^53).
inline std::optional<uint64_t> ParseDuration(
    const std::string& text, uint64_t most_ns = dataplane::BottleneckSettings::kMostQueueNs) {
  return control::ParseDuration(text, most_ns);
}
// "10Gbit", "500Mbit", "64kbit", "1000000": bit/s, at most 1 Tbit. Units of tc(8),
// case-insensitive, except "bps" (bytes per second in tc), which is ambiguous and refused.
std::optional<uint64_t> ParseRate(const std::string& text);
// "256kB", "1MB", "65536": bytes in units of tc(8), a kB has 1024; or a time as above, converted to
// the bytes sent in it at `rate_bps`.
std::optional<uint64_t> ParseQueue(const std::string& text, uint64_t rate_bps);

}  // namespace roci::tools
