// Writes tag list operations into their ring, and chooses the slots of new tags.
#include "verbs_provider/rings/tag_ops.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace roci::provider {

int TagOps::Use(const SharedMapping& memory, const roci_abi_create_tag_srq_response& layout,
                uint32_t tags, uint32_t operations) {
  const auto is_power = [](uint32_t value) { return value != 0 && (value & (value - 1)) == 0; };
  auto* new_shared = memory.At<roci_abi_tag_queue>(0);
  ops = memory.At<roci_abi_tag_op>(layout.ops_offset, layout.ops_capacity);
  freed = memory.At<uint32_t>(layout.freed_offset, layout.freed_capacity);
  if (new_shared == nullptr || ops == nullptr || freed == nullptr ||
      !is_power(layout.ops_capacity) || !is_power(layout.freed_capacity) ||
      layout.ops_capacity < operations || layout.freed_capacity < tags ||
      layout.doorbell >= ROCI_ABI_MAX_QP_HANDLES || tags > ROCI_ABI_MAX_TAGS) {
    return EPROTO;
  }
  free_slots = static_cast<uint16_t*>(malloc(tags * sizeof(*free_slots)));
  generations = static_cast<uint16_t*>(calloc(tags, sizeof(*generations)));
  if (free_slots == nullptr || generations == nullptr) {
    FreeMemory();
    return ENOMEM;
  }
  for (uint32_t slot = tags; slot != 0; --slot) {
    free_slots[free_count++] = static_cast<uint16_t>(slot - 1);
  }
  ops_mask = layout.ops_capacity - 1;
  freed_mask = layout.freed_capacity - 1;
  max_ops = operations;
  max_tags = tags;
  doorbell = layout.doorbell;
  shared = new_shared;
  return 0;
}

void TagOps::FreeMemory() {
  free(free_slots);
  free(generations);
  free_slots = nullptr;
  generations = nullptr;
}

namespace {

void CollectFreed(TagOps& ops) {
  const uint32_t freed =
      std::atomic_ref<uint32_t>(ops.shared->freed).load(std::memory_order_acquire);
  while (ops.freed_seen != freed && ops.free_count < ops.max_tags) {
    const uint32_t slot = ops.freed[ops.freed_seen++ & ops.freed_mask];
    if (slot < ops.max_tags) ops.free_slots[ops.free_count++] = static_cast<uint16_t>(slot);
  }
}

// Chooses a free slot and makes a new handle for it. The slot stays free until the operation is
// posted.
int ChooseHandle(TagOps& ops, uint32_t* handle) {
  if (ops.free_count == 0) CollectFreed(ops);
  if (ops.free_count == 0) return ENOMEM;
  const uint16_t slot = ops.free_slots[ops.free_count - 1];
  *handle = slot | uint32_t{++ops.generations[slot]} << 16;
  return 0;
}

int FillAdd(TagOps& ops, const ibv_ops_wr& wr, roci_abi_tag_op* out) {
  const int count = wr.tm.add.num_sge;
  if (count < 0 || count > ROCI_ABI_MAX_TAG_SGE) return EINVAL;
  out->recv_wr_id = wr.tm.add.recv_wr_id;
  out->tag = wr.tm.add.tag;
  out->mask = wr.tm.add.mask;
  out->num_sge = static_cast<uint8_t>(count);
  for (int i = 0; i < count; ++i) {
    const ibv_sge& sge = wr.tm.add.sg_list[i];
    out->sges[i] = {sge.addr, sge.length, sge.lkey};
  }
  return ChooseHandle(ops, &out->handle);
}

// Writes `wr` as the next operation, which is not published yet.
int Write(TagOps& ops, ibv_ops_wr* wr) {
  constexpr int kFlags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
  static_assert(int{ROCI_ABI_TAG_SIGNALED} == IBV_OPS_SIGNALED &&
                int{ROCI_ABI_TAG_WITH_COUNT} == IBV_OPS_TM_SYNC);
  const uint32_t taken =
      std::atomic_ref<uint32_t>(ops.shared->consumer).load(std::memory_order_acquire);
  if (ops.head - taken >= ops.max_ops) return ENOMEM;
  if ((wr->flags & ~kFlags) != 0) return EINVAL;
  roci_abi_tag_op op = {};
  op.wr_id = wr->wr_id;
  op.unexpected_count = wr->tm.unexpected_cnt;
  op.opcode = static_cast<uint8_t>(wr->opcode);
  op.flags = static_cast<uint8_t>(wr->flags);
  int error = 0;
  switch (wr->opcode) {
    case IBV_WR_TAG_ADD:
      error = FillAdd(ops, *wr, &op);
      if (error != 0) return error;
      --ops.free_count;
      wr->tm.handle = op.handle;
      break;
    case IBV_WR_TAG_DEL:
      op.handle = wr->tm.handle;
      break;
    case IBV_WR_TAG_SYNC:
      break;
    default:
      return EINVAL;
  }
  ops.ops[ops.head & ops.ops_mask] = op;
  ++ops.head;
  return 0;
}

}  // namespace

int PostTagOps(TagOps& ops, ibv_ops_wr* list, ibv_ops_wr** bad) {
  const SpinGuard guard(ops.lock);
  const uint32_t before = ops.head;
  int error = 0;
  // A circular list ends when the ring is full.
  for (; list != nullptr; list = list->next) {
    error = Write(ops, list);
    if (error != 0) [[unlikely]] {
      *bad = list;
      break;
    }
  }
  if (ops.head == before) return error;
  // On x86, the exchange is the store and the full fence in one instruction.
  std::atomic_ref<uint32_t>(ops.shared->producer).exchange(ops.head, std::memory_order_seq_cst);
  abi::FenceAfterExchange();
  ops.bells.Ring(ops.doorbell);
  return error;
}

}  // namespace roci::provider
