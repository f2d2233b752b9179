// Writes work requests into receive queue slots.
#include "verbs_provider/rings/recv_queue.h"

#include <cerrno>

#include "verbs_provider/rings/recv_entry.h"

namespace roci::provider {
namespace {

// Writes `wr` as entry `index`, which is not published yet.
int WriteRecv(RecvQueue& queue, uint32_t index, const ibv_recv_wr& wr) {
  if (queue.IsFull(index)) [[unlikely]] {
    return ENOMEM;
  }
  return WriteReceive(queue.Slot(index), queue.max_sge, wr);
}

}  // namespace

int PostRecvList(RecvQueue& queue, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const SpinGuard guard(queue.lock);
  uint32_t head = queue.head;
  int error = 0;
  // A circular list ends when the queue is full.
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
