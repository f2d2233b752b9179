// Waits on libibverbs' counts of acknowledged events, which ibv_ack_* increments and signals.
#include "verbs_provider/verbs/events.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/intercept/fd_registry.h"
#include "verbs_provider/session/channel.h"
#include "verbs_provider/verbs/objects.h"

namespace roci::provider {
namespace {

// More than an event socket of the daemon holds (control/loop/event_socket.h).
constexpr uint32_t kMostUnread = 128;

template <class Event>
struct UnreadEvents {
  uint32_t removed = 0;
  uint32_t others_count = 0;
  Event others[kMostUnread];
};

uint64_t ElementOf(const roci_abi_async_event& event) { return event.element; }
uint64_t ElementOf(const roci_abi_comp_event& event) { return event.user_handle; }

// Receives all unread events of a socket: counts and drops those of `element`.
template <class Event>
void ReceiveUnread(int socket, const void* element, UnreadEvents<Event>* out) {
  while (out->others_count < kMostUnread) {
    Event event;
    const ssize_t n = recv(socket, &event, sizeof(event), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof(event))) return;
    if (ElementOf(event) == reinterpret_cast<uintptr_t>(element)) {
      ++out->removed;
    } else {
      out->others[out->others_count++] = event;
    }
  }
}

// Shortages of memory, here or in the daemon, and of the right to pass descriptors pass quickly.
bool IsShortage(int error) { return error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM; }

// Tries again for a tenth of a second while there is a shortage. Events that are never sent to the
// daemon would be lost silently: the end of the session reports it. What the daemon refuses stays
// refused: no program has the channel, or (after a shortage) events of other objects are lost, or
// may arrive in another order.
void CallOrEnd(VerbsSession* session, roci_abi_return_events_request* request) {
  constexpr int kTries = 100;
  constexpr timespec kPause = {0, 1'000'000};
  roci_abi_plain_response response;
  int error = 0;
  for (int left = kTries; left > 0; --left) {
    response = {};  // stays so if the request cannot be sent
    error = session->client.Call(ROCI_ABI_RETURN_EVENTS, request, &response);
    if (!IsShortage(error)) break;
    syscall(SYS_nanosleep, &kPause, nullptr);
  }
  if (error != 0 && response.head.error == 0) session->client.MarkDead();
}

void Hold(VerbsSession* session) {
  roci_abi_return_events_request request = {};
  request.channel = ROCI_ABI_NO_HANDLE;
  request.flags = ROCI_ABI_RETURN_HOLD;
  CallOrEnd(session, &request);
}

// Each request puts its events before those of the last. The last one also ends Hold().
void Return(VerbsSession* session, const UnreadEvents<roci_abi_async_event>& unread) {
  uint32_t left = unread.others_count;
  do {
    roci_abi_return_events_request request = {};
    request.channel = ROCI_ABI_NO_HANDLE;
    request.count = std::min<uint32_t>(left, ROCI_ABI_MAX_RETURNED_EVENTS);
    left -= request.count;
    request.flags = left != 0 ? ROCI_ABI_RETURN_HOLD : 0;
    std::copy_n(unread.others + left, request.count, request.events);
    CallOrEnd(session, &request);
  } while (left != 0);
}

// The queues exist: destroying one removes its events first, and holds the lock.
void Return(VerbsSession* session, uint32_t channel,
            const UnreadEvents<roci_abi_comp_event>& unread) {
  for (uint32_t at = 0; at < unread.others_count;) {
    roci_abi_return_events_request request = {};
    request.channel = channel;
    for (; at < unread.others_count && request.count < ROCI_ABI_MAX_RETURNED_EVENTS; ++at) {
      auto* cq = reinterpret_cast<ibv_cq*>(unread.others[at].user_handle);
      request.events[request.count++].element = ToCq(cq)->handle;
    }
    CallOrEnd(session, &request);
  }
}

uint32_t AcknowledgedCompletionEvents(ibv_cq* cq) {
  pthread_mutex_lock(&cq->mutex);
  const uint32_t events = cq->comp_events_completed;
  pthread_mutex_unlock(&cq->mutex);
  return events;
}

}  // namespace

EventRemoval::EventRemoval(VerbsSession* session)
    : session_(session), locked_(!session->inherited()) {
  if (locked_) pthread_mutex_lock(&session_->event_mutex);
}

EventRemoval::~EventRemoval() {
  if (locked_) pthread_mutex_unlock(&session_->event_mutex);
}

uint32_t EventRemoval::RemoveAsyncEvents(const void* element, uint32_t sent) {
  if (sent == 0 || !locked_) return sent;
  const KeepErrno keep_errno;
  UnreadEvents<roci_abi_async_event> unread;
  Hold(session_);
  ReceiveUnread(session_->async_file.fd(), element, &unread);
  Return(session_, unread);
  return sent - std::min(sent, unread.removed);
}

uint32_t EventRemoval::RemoveCompletionEvents(ibv_cq* cq, uint32_t sent) {
  if (sent == 0 || !locked_) return sent;
  const KeepErrno keep_errno;
  uint32_t channel = ROCI_ABI_NO_HANDLE;
  // The program has closed the descriptor itself: it cannot read the events any more.
  if (cq->channel == nullptr || !FindChannel(session_, cq->channel->fd, &channel) ||
      !IsSameFile(cq->channel->fd)) {
    return AcknowledgedCompletionEvents(cq);
  }
  UnreadEvents<roci_abi_comp_event> unread;
  ReceiveUnread(cq->channel->fd, cq, &unread);
  Return(session_, channel, unread);
  return sent - std::min(sent, unread.removed);
}

void AwaitCqAcknowledgements(ibv_cq* cq, uint32_t comp_events, uint32_t async_events) {
  pthread_mutex_lock(&cq->mutex);
  while (cq->comp_events_completed != comp_events || cq->async_events_completed != async_events) {
    pthread_cond_wait(&cq->cond, &cq->mutex);
  }
  pthread_mutex_unlock(&cq->mutex);
}

void AwaitQpAcknowledgements(ibv_qp* qp, uint32_t async_events) {
  pthread_mutex_lock(&qp->mutex);
  while (qp->events_completed != async_events) pthread_cond_wait(&qp->cond, &qp->mutex);
  pthread_mutex_unlock(&qp->mutex);
}

void AwaitSrqAcknowledgements(ibv_srq* srq, uint32_t async_events) {
  pthread_mutex_lock(&srq->mutex);
  while (srq->events_completed != async_events) pthread_cond_wait(&srq->cond, &srq->mutex);
  pthread_mutex_unlock(&srq->mutex);
}

}  // namespace roci::provider
