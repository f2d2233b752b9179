// Waits on libibverbs' counts of acknowledged events, which ibv_ack_* increments and signals.
#include "verbs_provider/verbs/events.h"

namespace roci::provider {

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
