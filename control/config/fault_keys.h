// The keys of a fault, as options of `roci fault add` and in a [[device.fault]] of the
// configuration, and what each becomes in the management request.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace roci::control {

enum class FaultKeyKind : uint8_t {
  kFlag,
  kNumber,
  kDelay,   // a time
  kPeriod,  // a time, not 0: that would mean for ever
  kChance,
  kPsn,      // a number, or "+N"
  kChoice,   // one of `choices`
  kText,     // the daemon checks it
  kProgram,  // a number, or a text under another key
  kName,     // a number or a text under the same key
  kTexts,    // several
  kQueuePairs,
  kOpcodes,  // several, by name, pattern or number
};

struct FaultKey {
  std::string_view name;  // of the option; in files "_" stands for "-"
  FaultKeyKind kind;
  const char* request;  // its key in the request
  const char* help;     // of the option
  std::array<std::string_view, 2> choices = {};

  bool takes_several() const { return kind >= FaultKeyKind::kTexts; }
};
std::span<const FaultKey> FaultKeys();

// Adds one value to the request. An empty text, or what is wrong with the value.
std::string TakeFaultValue(const FaultKey& key, const std::string& text, nlohmann::json& request);

}  // namespace roci::control
