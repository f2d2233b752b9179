// The [congestion] table of the configuration, and which devices it is for.
#pragma once

#include <cstdint>
#include <optional>

#include "roce/dcqcn.h"

namespace roci::control {

class TomlReader;

enum class CongestionUse : uint8_t { kAuto, kOn, kOff };  // kAuto: on ports, not on wires

struct CongestionConfig {
  CongestionUse use = CongestionUse::kAuto;
  roce::CongestionParameters parameters;  // the line rate is the device's
};

void ReadCongestion(TomlReader& reader, CongestionConfig& out);
// A key with a CongestionUse; false: it is absent or wrong, and `out` as it was.
bool ReadCongestionUse(TomlReader& reader, const char* key, CongestionUse& out);

// What holds for a device with this setting of its own; nothing: congestion control is off.
std::optional<roce::CongestionParameters> CongestionOf(const CongestionConfig& config,
                                                       std::optional<CongestionUse> own,
                                                       bool on_wire, uint32_t rate_mbps);

}  // namespace roci::control
