// Options that `roci capture` and `roci impair` share: which frames are meant.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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

// Adds to a request "peers", those of its "qps" that are connected queue pairs of `device`, for
// what they send carries the peer's number. `shown` is what `roci show --json qps` says.
void AddPeers(const nlohmann::json& shown, const std::string& device, nlohmann::json& request);

// The largest number that every reader of JSON takes for what it is (RFC 8259, 6).
inline constexpr uint64_t kMostInJson = uint64_t{1} << 53;

// "17" or "0x11", at most `most`.
std::optional<uint64_t> ParseNumber(const std::string& text, uint64_t most);
// Opcodes that "0x11", "RC_ACKNOWLEDGE" or "*_READ_*" (in any case) names; none: nothing is called
// that.
std::vector<uint32_t> FindOpcodes(const std::string& text);
// "1%", "0.01": from 0 to 1.
std::optional<double> ParseChance(const std::string& text);
// "10us", "1.5ms", "200ns", "1s": nanoseconds, at most 5 s.
std::optional<uint64_t> ParseDuration(const std::string& text);
// "10Gbit", "500Mbit", "64kbit", "1000000": bit/s, at most 1 Tbit. As tc(8) has them, in any case;
// its "bps" for bytes per second is not taken, since others mean bits.
std::optional<uint64_t> ParseRate(const std::string& text);
// "256kB", "1MB", "65536": bytes as tc(8) has them, a kB of 1024 bytes; or a time as above, which
// stands for the bytes that pass at `rate_bps` meanwhile.
std::optional<uint64_t> ParseQueue(const std::string& text, uint64_t rate_bps);

}  // namespace roci::tools
