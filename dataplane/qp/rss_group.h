// Receive side scaling: selects the work queue by which a raw packet queue pair receives a frame.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "roce/toeplitz.h"

namespace roci::dataplane {

class QueuePair;

// Immutable. The work queues are receiving queue pairs of the same context and outlive the group.
class RssGroup {
 public:
  // The number of queues is a power of two; `fields`: roce::kHash*.
  RssGroup(const roce::ToeplitzKey& key, uint32_t fields, std::vector<QueuePair*> queues)
      : key_(key), fields_(fields), queues_(std::move(queues)) {
    assert(std::has_single_bit(queues_.size()));
  }
  QueuePair& Choose(const roce::FlowKey& flow) const {
    return *queues_[roce::HashFlow(key_, fields_, flow) & (queues_.size() - 1)];
  }

 private:
  roce::ToeplitzKey key_;
  uint32_t fields_;
  std::vector<QueuePair*> queues_;
};

}  // namespace roci::dataplane
