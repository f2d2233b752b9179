// A device's rule of impairment: what was asked for, its part on every lcore, and what these share.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dataplane/link/impairment.h"
#include "dataplane/shard/device.h"

namespace roci::dataplane {

struct Device::ImpairmentRule {
  explicit ImpairmentRule(const ImpairmentSettings& asked) : settings(asked) {
    if (settings.bottleneck.rate_bps != 0) bottleneck.emplace(settings.bottleneck);
  }
  Bottleneck* shared_bottleneck() { return bottleneck.has_value() ? &*bottleneck : nullptr; }

  const ImpairmentSettings settings;
  std::optional<Bottleneck> bottleneck;  // one, however many lcores send through it
  std::vector<std::unique_ptr<Impairment>> lanes;
};

}  // namespace roci::dataplane
