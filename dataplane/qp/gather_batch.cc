#include "dataplane/qp/gather_batch.h"

#include "dataplane/shard/device_lane.h"

namespace roci::dataplane {

void GatherBatch::ReleaseLanes() {
  for (uint32_t i = 0; i < count_; ++i) frames_[i].lane->Unreserve();
}

}  // namespace roci::dataplane
