// Rules that a device's taps apply: an impairment (its settings, its part on every lcore, and the
// shared bottleneck) and a fault of packets.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dataplane/link/fault.h"
#include "dataplane/link/fault_table.h"
#include "dataplane/link/impairment.h"
#include "dataplane/shard/device_client.h"

namespace roci::dataplane {

struct DeviceClient::ImpairmentRule {
  explicit ImpairmentRule(const ImpairmentSettings& asked) : settings(asked) {
    if (settings.bottleneck.rate_bps != 0) bottleneck.emplace(settings.bottleneck);
  }
  Bottleneck* shared_bottleneck() { return bottleneck.has_value() ? &*bottleneck : nullptr; }

  const ImpairmentSettings settings;
  std::optional<Bottleneck> bottleneck;  // shared by all lcores
  std::vector<std::unique_ptr<Impairment>> lanes;
};

struct DeviceClient::FaultRule {
  FaultRule(uint32_t number, const FaultSettings& settings, uint64_t now_ns)
      : id(number), fault(settings, now_ns), qpns(settings.match.filter.qpns) {}

  const uint32_t id;
  Fault fault;
  bool is_over = false;         // its queue pairs are gone; it is still in tables
  std::vector<roce::Qpn> qpns;  // of the filter, as far as they still exist
  std::vector<std::unique_ptr<FaultLane>> lanes;
};

}  // namespace roci::dataplane
