// The plugin's implementation of rocidv.h: FLUSH requests, for which this libibverbs has no call.
#include "verbs_provider/rings/send_entry.h"
#include "verbs_provider/rocidv/direct_list.h"

namespace roci::provider {
namespace {

constexpr uint32_t kTypes = ROCIDV_FLUSH_GLOBAL | ROCIDV_FLUSH_PERSISTENT;

struct Flush {
  uint32_t rkey;
  uint64_t address;
  size_t length;
  uint32_t type;
  uint32_t level;
};

// Writes entry `index`. Null with `*error` set on failure.
roci_abi_send_wqe* Put(Qp* qp, uint32_t index, const Flush& flush, uint64_t wr_id, unsigned flags,
                       int* error) {
  if (flush.type == 0 || (flush.type & ~kTypes) != 0 || flush.level > ROCIDV_FLUSH_WHOLE_REGION ||
      flush.length > ROCI_ABI_MAX_MESSAGE_BYTES || (flags & IBV_SEND_INLINE) != 0) {
    *error = EINVAL;
    return nullptr;
  }
  roci_abi_send_wqe* entry =
      BeginEntry(qp->sq, index, qp->sq.opcodes.rocidv, ROCI_ABI_WR_FLUSH, wr_id, flags, error);
  if (entry == nullptr) return nullptr;
  entry->rkey = flush.rkey;
  entry->remote_va = flush.address;
  entry->u.flush.length = flush.length;
  entry->u.flush.type = flush.type;
  entry->u.flush.level = flush.level;
  return entry;
}

}  // namespace

void WrFlush(ibv_qp_ex* qpx, uint32_t rkey, uint64_t address, size_t length, uint32_t type,
             uint32_t level) {
  auto* qp = reinterpret_cast<Qp*>(qpx);
  SendBuilder& builder = qp->builder;
  if (builder.error != 0) return;
  builder.entry = Put(qp, builder.next, {rkey, address, length, type, level}, qpx->wr_id,
                      qpx->wr_flags, &builder.error);
  if (builder.entry != nullptr) ++builder.next;
}

int PostFlush(ibv_qp* ibqp, uint32_t rkey, uint64_t address, size_t length, uint32_t type,
              uint32_t level, uint64_t wr_id, unsigned send_flags) {
  Qp* qp = ToQp(ibqp);
  // A request of an XRC queue pair would need a shared receive queue number.
  if (ibqp->qp_type != IBV_QPT_RC) return EINVAL;
  if (!qp->session->alive()) return EIO;
  int error = qp->send_refusal.load(std::memory_order_relaxed);
  if (error != 0) return PostResult(error);
  SendQueue& sq = qp->sq;
  const SpinGuard guard(sq.lock);
  const roci_abi_send_wqe* entry =
      Put(qp, sq.head, {rkey, address, length, type, level}, wr_id, send_flags, &error);
  if (entry == nullptr) return error;
  Publish(sq.shared, ++sq.head, sq.bells, sq.handle);
  return 0;
}

}  // namespace roci::provider
