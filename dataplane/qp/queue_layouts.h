// Where the parts of a queue lie in its memory, and how much memory a queue takes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/shared_receive_queue_config.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

// InvalidArgument if the config asks for more than kQueueLimits.
absl::StatusOr<QueueLayout> LayOutQueues(const QueuePairConfig& config);
// InvalidArgument: more than kQueueLimits, or no entry.
absl::StatusOr<roci_abi_srq_layout> LayOutSharedReceiveQueue(uint32_t max_wr, uint32_t max_sge);
// InvalidArgument: more than the device has, or 0.
absl::StatusOr<TagQueueLayout> LayOutTagQueue(const TagQueueConfig& config);
// Private memory of the daemon for its list, bytes.
uint64_t TagListBytes(const TagQueueConfig& config);
// Private memory of the daemon for a queue pair that uses tag matching, bytes.
uint64_t TagReceiverBytes();

}  // namespace roci::dataplane
