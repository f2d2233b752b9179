// Receive side scaling: selects the work queue by which a raw packet queue pair receives a frame.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

#include "dataplane/types/queue_pair_config.h"
#include "roce/toeplitz.h"

namespace roci::dataplane {

// Immutable. The work queues outlive the group.
class RssGroup {
 public:
  explicit RssGroup(const RssConfig& config) : config_(config) {
    assert(std::has_single_bit(config_.queues.size()));
  }
  QueuePair& Choose(const roce::FlowKey& flow) const {
    const uint32_t hash = roce::HashFlow(config_.key, config_.fields, flow);
    return *config_.queues[hash & (config_.queues.size() - 1)];
  }

 private:
  const RssConfig config_;
};

}  // namespace roci::dataplane
