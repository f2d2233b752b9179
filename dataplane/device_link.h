// A device's rule of impairment: what was asked for, and its part on every lcore.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/device.h"
#include "dataplane/impairment.h"

namespace roci::dataplane {

struct Device::ImpairmentRule {
  ImpairmentSettings settings;
  std::vector<std::unique_ptr<Impairment>> lanes;
};

}  // namespace roci::dataplane
