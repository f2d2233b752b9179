// The [congestion] table of the configuration, and the devices that it applies to.
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
// Reads a key with a CongestionUse. False: the key is absent or wrong, `out` is unchanged.
bool ReadCongestionUse(TomlReader& reader, const char* key, CongestionUse& out);

// The parameters for a device whose own setting is `own`; nothing: congestion control is off.
std::optional<roce::CongestionParameters> CongestionOf(const CongestionConfig& config,
                                                       std::optional<CongestionUse> own,
                                                       bool on_wire, uint32_t rate_mbps);

}  // namespace roci::control
