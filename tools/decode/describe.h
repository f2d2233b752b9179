// Prints a decoded frame: one JSON object, or one line of text with the same fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/decode/capture_file.h"
#include "tools/decode/dissect.h"

namespace roci::tools {

// Every header field by name, in wire order. Values are numbers, except addresses and verdicts.
nlohmann::ordered_json Describe(const CaptureRecord& record, const DecodedFrame& frame);

// The same on one line, without a newline: "1 0.000123456 eth{dst=... src=...} ... icrc=good".
std::string DescribeInText(const nlohmann::ordered_json& description);

}  // namespace roci::tools
