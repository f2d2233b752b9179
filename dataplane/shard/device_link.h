// An impairment rule of a device: its settings, its part on every lcore, and the shared bottleneck.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dataplane/link/impairment.h"
#include "dataplane/shard/sharded_device.h"

namespace roci::dataplane {

struct ShardedDevice::ImpairmentRule {
  explicit ImpairmentRule(const ImpairmentSettings& asked) : settings(asked) {
    if (settings.bottleneck.rate_bps != 0) bottleneck.emplace(settings.bottleneck);
  }
  Bottleneck* shared_bottleneck() { return bottleneck.has_value() ? &*bottleneck : nullptr; }

  const ImpairmentSettings settings;
  std::optional<Bottleneck> bottleneck;  // shared by all lcores
  std::vector<std::unique_ptr<Impairment>> lanes;
};

}  // namespace roci::dataplane
