// The loop of ibv_post_send and ibv_post_recv over a list of work requests.
#pragma once

#include <cstdint>

#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

/// Calls write(request) for the requests of `list` until it answers an errno, which this returns;
/// `*bad` is then that request. A circular list ends when the queue is full.
template <class Request, class Write>
int WriteList(Request* list, Request** bad, Write&& write) {
  for (; list != nullptr; list = list->next) {
    const int error = write(*list);
    if (error != 0) [[unlikely]] {
      *bad = list;
      return error;
    }
  }
  return 0;
}

/// Posts a list to a queue whose lock is held: write(index, request) writes one entry. On an error
/// the requests before `*bad` are posted.
template <class Queue, class Request, class Write>
int PostList(Queue& queue, Request* list, Request** bad, Write&& write) {
  uint32_t head = queue.head;
  const int error = WriteList(list, bad, [&](const Request& request) {
    const int refused = write(head, request);
    if (refused == 0) [[likely]]
      ++head;
    return refused;
  });
  if (head != queue.head) {
    queue.head = head;
    Publish(queue.shared, head, queue.bells, queue.handle);
  }
  return error;
}

}  // namespace roci::provider
