// Work requests into receive queue slots.
#include "verbs_provider/recv_queue.h"

#include <cerrno>

namespace roci::provider {
namespace {

// Writes `wr` as entry `index`, which the daemon does not see yet.
int WriteRecv(RecvQueue& queue, uint32_t index, const ibv_recv_wr& wr) {
  if (queue.IsFull(index)) [[unlikely]] {
    return ENOMEM;
  }
  // A negative number is far too large here.
  if (static_cast<uint32_t>(wr.num_sge) > queue.max_sge) [[unlikely]] {
    return EINVAL;
  }
  auto* entry = reinterpret_cast<roci_abi_recv_wqe*>(queue.Slot(index));
  *entry = {wr.wr_id, static_cast<uint32_t>(wr.num_sge), 0};
  auto* out = reinterpret_cast<roci_abi_sge*>(entry + 1);
  for (int i = 0; i < wr.num_sge; ++i) {
    out[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  }
  return 0;
}

}  // namespace

int PostRecvList(RecvQueue& queue, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const SpinGuard guard(queue.lock);
  uint32_t head = queue.head;
  int error = 0;
  // A list that runs in a circle ends when the queue is full.
  for (; list != nullptr; list = list->next) {
    error = WriteRecv(queue, head, *list);
    if (error != 0) [[unlikely]] {
      *bad = list;
      break;
    }
    ++head;
  }
  if (head != queue.head) {
    queue.head = head;
    Publish(queue.shared, head, queue.bells, queue.handle);
  }
  return error;
}

}  // namespace roci::provider
