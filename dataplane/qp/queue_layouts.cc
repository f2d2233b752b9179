#include "dataplane/qp/queue_layouts.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "dataplane/base/prefetch.h"
#include "dataplane/qp/tag_receiver.h"
#include "dataplane/rings/receive_entry.h"
#include "dataplane/rings/tag_list.h"
#include "dataplane/types/queue_limits.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t RoundUp(uint32_t value, uint32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr uint32_t kMinSendStrideBytes = 2 * kCacheLineBytes;

uint32_t SendStride(uint32_t max_sge, uint32_t max_inline) {
  const uint32_t data = std::max<uint32_t>(max_sge * sizeof(roci_abi_sge), max_inline);
  return std::max(
      kMinSendStrideBytes,
      RoundUp(static_cast<uint32_t>(sizeof(roci_abi_send_wqe)) + data, kCacheLineBytes));
}

}  // namespace

QueueLayout LayOutQueues(const QueuePairConfig& config) {
  assert(config.max_send_wr <= kMaxQueueEntries && config.max_recv_wr <= kMaxQueueEntries &&
         config.max_send_sge <= kMaxSges && config.max_recv_sge <= kMaxSges &&
         config.max_inline <= kMaxInlineBytes);
  QueueLayout out{};
  out.max_send_sge = std::max(config.max_send_sge, 1u);
  out.max_recv_sge = std::max(config.max_recv_sge, 1u);
  out.send_stride = SendStride(out.max_send_sge, config.max_inline);
  out.recv_stride = RecvStride(out.max_recv_sge);
  out.max_inline =
      std::min(out.send_stride - static_cast<uint32_t>(sizeof(roci_abi_send_wqe)), kMaxInlineBytes);
  out.send_capacity = config.max_send_wr == 0 ? 0 : std::bit_ceil(config.max_send_wr);
  out.recv_capacity = config.max_recv_wr == 0 ? 0 : std::bit_ceil(config.max_recv_wr);
  out.max_send_wr = out.send_capacity;
  out.max_recv_wr = out.recv_capacity;
  out.send_queue_offset = 0;
  out.recv_queue_offset = sizeof(roci_abi_queue);
  out.send_slots_offset = 2 * sizeof(roci_abi_queue);
  out.recv_slots_offset = out.send_slots_offset + out.send_capacity * out.send_stride;
  out.memory_size = out.recv_slots_offset + uint64_t{out.recv_capacity} * out.recv_stride;
  return out;
}

uint32_t CompletionCapacity(uint32_t entries) {
  assert(entries >= 1 && entries <= kMaxCompletionEntries);
  return std::bit_ceil(entries);
}

uint64_t CompletionRingBytes(uint32_t entries) {
  return sizeof(roci_abi_cq) + uint64_t{CompletionCapacity(entries)} * sizeof(roci_abi_cqe);
}

roci_abi_srq_layout LayOutSharedReceiveQueue(uint32_t max_wr, uint32_t max_sge) {
  assert(max_wr >= 1 && max_wr <= kMaxQueueEntries && max_sge <= kMaxSges);
  constexpr uint64_t kLine = ROCI_ABI_CACHE_LINE;
  roci_abi_srq_layout out{};
  out.max_wr = max_wr;
  out.max_sge = std::max(max_sge, 1u);
  out.ring_capacity = std::bit_ceil(max_wr);
  out.stride = RecvStride(out.max_sge);
  out.ring_offset = sizeof(roci_abi_srq);
  const uint64_t ring_bytes = uint64_t{out.ring_capacity} * sizeof(uint32_t);
  out.slots_offset = static_cast<uint32_t>((out.ring_offset + ring_bytes + kLine - 1) & -kLine);
  out.memory_size = out.slots_offset + uint64_t{max_wr} * out.stride;
  return out;
}

TagQueueLayout LayOutTagQueue(const TagQueueConfig& config) {
  assert(config.max_tags >= 1 && config.max_tags <= ROCI_ABI_MAX_TAGS && config.max_ops >= 1 &&
         config.max_ops <= ROCI_ABI_MAX_TAG_OPS);
  constexpr uint32_t kLine = ROCI_ABI_CACHE_LINE;
  TagQueueLayout out{};
  out.ops_capacity = std::bit_ceil(config.max_ops);
  out.freed_capacity = std::bit_ceil(config.max_tags);
  out.freed_offset = sizeof(roci_abi_tag_queue);
  const uint32_t freed_bytes = out.freed_capacity * static_cast<uint32_t>(sizeof(uint32_t));
  out.ops_offset = (out.freed_offset + freed_bytes + kLine - 1) / kLine * kLine;
  out.memory_size = out.ops_offset + uint64_t{out.ops_capacity} * sizeof(roci_abi_tag_op);
  return out;
}

uint64_t TagListBytes(const TagQueueConfig& config) {
  // Upper bound of the memory that TagList needs for a buffer besides the buffer itself.
  constexpr uint64_t kLinkBytes = 32;
  constexpr uint64_t kBytesPerTag = sizeof(TaggedBuffer) + kLinkBytes;
  return config.max_tags * kBytesPerTag;
}

uint64_t TagReceiverBytes() { return sizeof(TagReceiver); }

}  // namespace roci::dataplane
