// Work queues, their indirection tables, and the RSS queue pairs that distribute frames over them
// (ibv_create_wq(3), ibv_create_rwq_ind_table(3)).
#include <cstring>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/queue_pair_parts.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

// For the daemon and for poll, a work queue is a queue pair that only receives.
struct VerbsWorkQueue {
  ibv_wq wq;  // first
  Qp qp;
};

struct QueueTable {
  ibv_rwq_ind_table table;  // first
};

VerbsWorkQueue* ToWorkQueue(ibv_wq* wq) { return reinterpret_cast<VerbsWorkQueue*>(wq); }

int PostToQueue(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return PostRecv(&ToWorkQueue(wq)->qp.vqp.qp, wr, bad);
}

int Check(const ibv_wq_init_attr& attr) {
  if ((attr.comp_mask & ~uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0) return EINVAL;
  if ((attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 && attr.create_flags != 0) return EOPNOTSUPP;
  const bool complete = attr.pd != nullptr && attr.cq != nullptr;
  return complete && attr.wq_type == IBV_WQT_RQ ? 0 : EINVAL;
}

void InitBase(VerbsWorkQueue* queue, ibv_context* context, const ibv_wq_init_attr& attr) {
  ibv_wq& wq = queue->wq;
  wq.context = context;
  wq.wq_context = attr.wq_context;
  wq.pd = attr.pd;
  wq.cq = attr.cq;
  wq.wq_num = queue->qp.vqp.qp.qp_num;
  wq.handle = queue->qp.vqp.qp.handle;
  wq.state = IBV_WQS_RESET;
  wq.wq_type = attr.wq_type;
  wq.post_recv = PostToQueue;
  pthread_mutex_init(&wq.mutex, nullptr);
  pthread_cond_init(&wq.cond, nullptr);
  // The members that queue_pair_parts.h and ModifyQp read.
  ibv_qp& base = queue->qp.vqp.qp;
  base.context = context;
  base.pd = attr.pd;
  base.send_cq = attr.cq;
  base.recv_cq = attr.cq;
  base.qp_type = IBV_QPT_RAW_PACKET;
}

int Move(Qp* qp, ibv_qp_state state, int more) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  attr.port_num = 1;
  return ModifyQp(&qp->vqp.qp, &attr, IBV_QP_STATE | more);
}

// Work queue state RDY is queue pair state RTR.
int MoveTo(VerbsWorkQueue* queue, ibv_wq_state state) {
  switch (state) {
    case IBV_WQS_RESET:
      return Move(&queue->qp, IBV_QPS_RESET, 0);
    case IBV_WQS_ERR:
      return Move(&queue->qp, IBV_QPS_ERR, 0);
    case IBV_WQS_RDY: {
      if (queue->wq.state == IBV_WQS_RDY) return 0;
      const int error = Move(&queue->qp, IBV_QPS_INIT, IBV_QP_PORT);
      return error != 0 ? error : Move(&queue->qp, IBV_QPS_RTR, 0);
    }
    default:
      return EINVAL;
  }
}

// RESET and RDY to RDY, any state to RESET or ERR.
bool IsLegal(ibv_wq_state from, ibv_wq_state to) {
  if (to == IBV_WQS_RDY) return from == IBV_WQS_RESET || from == IBV_WQS_RDY;
  return to == IBV_WQS_RESET || to == IBV_WQS_ERR;
}

void AwaitAcknowledgements(ibv_wq* wq, uint32_t async_events) {
  pthread_mutex_lock(&wq->mutex);
  while (wq->events_completed != async_events) pthread_cond_wait(&wq->cond, &wq->mutex);
  pthread_mutex_unlock(&wq->mutex);
}

}  // namespace

ibv_wq* CreateWq(ibv_context* context, ibv_wq_init_attr* attr) {
  int error = Check(*attr);
  if (error != 0) return Fail(error);
  auto* queue = Allocate<VerbsWorkQueue>();
  if (queue == nullptr) return nullptr;
  queue->qp.session = SessionOf(context);
  roci_abi_create_qp_request request = {};
  request.user_handle = reinterpret_cast<uintptr_t>(&queue->wq);
  request.pd = attr->pd->handle;
  request.send_cq = request.recv_cq = attr->cq->handle;
  request.srq = ~uint32_t{0};
  request.qp_type = IBV_QPT_RAW_PACKET;
  request.max_recv_wr = attr->max_wr;
  request.max_recv_sge = attr->max_sge;
  request.flags = ROCI_ABI_QP_WORK_QUEUE;
  error = CreateParts(&queue->qp, ROCI_ABI_CREATE_QP, IBV_QPT_RAW_PACKET, &request);
  if (error != 0) {
    Free(queue);
    return Fail(error);
  }
  InitBase(queue, context, *attr);
  AddToTable(&queue->qp);
  AcquireDomain(attr->pd);
  attr->max_wr = queue->qp.cap.max_recv_wr;
  attr->max_sge = queue->qp.cap.max_recv_sge;
  return &queue->wq;
}

int ModifyWq(ibv_wq* wq, ibv_wq_attr* attr) {
  constexpr uint32_t kServed = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  if ((attr->attr_mask & ~kServed) != 0) return EINVAL;
  if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0 && attr->flags_mask != 0) return EOPNOTSUPP;
  const bool has_current = (attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0;
  if (has_current && attr->curr_wq_state != wq->state) return EINVAL;
  if ((attr->attr_mask & IBV_WQ_ATTR_STATE) == 0) return 0;
  if (!IsLegal(wq->state, attr->wq_state)) return EINVAL;
  const int error = MoveTo(ToWorkQueue(wq), attr->wq_state);
  if (error == 0) wq->state = attr->wq_state;
  return error;
}

int DestroyWq(ibv_wq* wq) {
  VerbsWorkQueue* queue = ToWorkQueue(wq);
  uint32_t async_events = 0;
  const int error = DestroyParts(&queue->qp, wq, &async_events);
  if (!IsGone(queue->qp.session, error)) return error;
  if (error == 0) AwaitAcknowledgements(wq, async_events);
  pthread_cond_destroy(&wq->cond);
  pthread_mutex_destroy(&wq->mutex);
  ReleaseDomain(wq->pd);
  Free(queue);
  return 0;
}

ibv_rwq_ind_table* CreateQueueTable(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  if (attr->comp_mask != 0) return Fail(EOPNOTSUPP);
  if (attr->log_ind_tbl_size > ROCI_ABI_MAX_QUEUE_TABLE_LOG) return Fail(EINVAL);
  auto* table = Allocate<QueueTable>();
  if (table == nullptr) return nullptr;
  roci_abi_create_queue_table_request request = {};
  roci_abi_handle_response response = {};
  request.log_size = attr->log_ind_tbl_size;
  for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; ++i) {
    request.queues[i] = attr->ind_tbl[i]->handle;
  }
  const int error =
      SessionOf(context)->client.Call(ROCI_ABI_CREATE_QUEUE_TABLE, &request, &response);
  if (error != 0) {
    Free(table);
    return Fail(error);
  }
  table->table.context = context;
  table->table.ind_tbl_handle = static_cast<int>(response.handle);
  table->table.ind_tbl_num = static_cast<int>(response.handle);
  return &table->table;
}

int DestroyQueueTable(ibv_rwq_ind_table* table) {
  VerbsSession* session = PresentSessionOf(table->context);
  const int error = CallWithHandle(session->client, ROCI_ABI_DESTROY_QUEUE_TABLE,
                                   static_cast<uint32_t>(table->ind_tbl_handle));
  if (!IsGone(session, error)) return error;
  Free(reinterpret_cast<QueueTable*>(table));
  return 0;
}

ibv_qp* CreateRssQp(ibv_pd* pd, ibv_qp_init_attr_ex* attr) {
  const ibv_rx_hash_conf& hash = attr->rx_hash_conf;
  if (attr->qp_type != IBV_QPT_RAW_PACKET || pd == nullptr || attr->rwq_ind_tbl == nullptr) {
    return Fail(EINVAL);
  }
  // An RSS queue pair neither sends nor has a receive queue.
  if (attr->cap.max_send_wr != 0 || attr->cap.max_recv_wr != 0 || attr->srq != nullptr) {
    return Fail(EINVAL);
  }
  if (hash.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ) return Fail(EOPNOTSUPP);
  if (hash.rx_hash_key_len != ROCI_ABI_RSS_KEY_BYTES || hash.rx_hash_key == nullptr) {
    return Fail(EINVAL);
  }
  if (hash.rx_hash_fields_mask > UINT32_MAX) return Fail(EOPNOTSUPP);
  auto* qp = AllocateIn<Qp>(pd, DomainMemory::kQueuePair);
  if (qp == nullptr) return nullptr;
  qp->session = SessionOf(pd->context);
  roci_abi_create_rss_qp_request request = {};
  request.user_handle = reinterpret_cast<uintptr_t>(&qp->vqp.qp);
  request.pd = pd->handle;
  request.table = static_cast<uint32_t>(attr->rwq_ind_tbl->ind_tbl_handle);
  request.fields = static_cast<uint32_t>(hash.rx_hash_fields_mask);
  memcpy(request.key, hash.rx_hash_key, sizeof(request.key));
  const int error = CreateParts(qp, ROCI_ABI_CREATE_RSS_QP, IBV_QPT_RAW_PACKET, &request);
  if (error != 0) {
    FreeIn(qp, DomainMemory::kQueuePair);
    return Fail(error);
  }
  FinishQp(qp, pd, *attr);
  return &qp->vqp.qp;
}

}  // namespace roci::provider
