// The judge's results as text, JSON and a drawing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/judge/judge.h"

namespace roci::tools::judge {

// One line, without a newline: "frame 7 0.000123456 10.0.0.1 > 10.0.0.2 qp 0x11: violation
// second_nak: ...". Unsure findings say so.
std::string FindingText(const Finding& finding);
nlohmann::ordered_json FindingJson(const Finding& finding);

// The traffic of a flow: counts, times, bytes over time.
nlohmann::ordered_json FlowJson(const Flow& flow);
// Several lines, each with a newline; the last is the goodput in characters.
std::string FlowText(const Flow& flow);
// Of ports and of pairs of addresses: the CNPs and their shortest interval.
nlohmann::ordered_json CnpJson(const CongestionWatch& watch);
std::string CnpText(const CongestionWatch& watch);

// The goodput of all flows over time, one drawing for each, as an SVG document.
std::string GoodputSvg(const FlowTable& flows);

// "1.234567890", or "" without a time.
std::string TimeText(bool has_time, int64_t time_ns);
// "12.3 us".
std::string DurationText(uint64_t ns);

}  // namespace roci::tools::judge
