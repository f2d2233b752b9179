// Where the parts of a queue lie in its memory, and how much memory a queue takes.
#pragma once

#include <cstdint>

#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/shared_receive_queue_config.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

QueueLayout LayOutQueues(const QueuePairConfig& config);
// The ring of a completion queue for at least `entries`, which are 1 to kMaxCompletionEntries
// (dataplane/types/queue_limits.h): its entries, its bytes.
uint32_t CompletionCapacity(uint32_t entries);
uint64_t CompletionRingBytes(uint32_t entries);
// `max_wr`: 1 to kMaxQueueEntries; `max_sge`: at most kMaxSges (dataplane/types/queue_limits.h).
roci_abi_srq_layout LayOutSharedReceiveQueue(uint32_t max_wr, uint32_t max_sge);
// For `config` with tag matching.
TagQueueLayout LayOutTagQueue(const TagQueueConfig& config);
// Private memory of the daemon for its list, bytes.
uint64_t TagListBytes(const TagQueueConfig& config);
// Private memory of the daemon for a queue pair that uses tag matching, bytes.
uint64_t TagReceiverBytes();

}  // namespace roci::dataplane
