// Writes work requests into receive queue slots.
#include "verbs_provider/rings/recv_queue.h"

#include <cerrno>

#include "verbs_provider/rings/post_list.h"
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
  return PostList(queue, list, bad, [&queue](uint32_t index, const ibv_recv_wr& wr) {
    return WriteRecv(queue, index, wr);
  });
}

}  // namespace roci::provider
