// The walker's shared receive queues, basic and of XRC domains, and the "last WQE reached" events.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "tests/integration/walker.h"

namespace roci::testing {
namespace {

constexpr size_t kMaxSrqs = 6;
constexpr std::chrono::seconds kPatience{60};

}  // namespace

// The queue of an XRC domain that a completion comes from; its QP may be gone.
WalkSrq* Walker::SharedOf(const Queue& queue, const ibv_wc& wc) {
  if ((wc.wr_id & 1) == 0) return nullptr;
  for (const auto& srq : srqs_) {
    if (srq->cq == queue.cq && srq->posted.count(wc.wr_id) != 0) return srq.get();
  }
  return nullptr;
}

WalkSrq* Walker::AnySrq(const WalkDevice& device, bool is_xrc) {
  WalkSrq* found = nullptr;
  for (const auto& srq : srqs_) {
    if (srq->device == &device && srq->is_xrc() == is_xrc) found = srq.get();
  }
  return found;
}

void Walker::MakeSrq() {
  Domain* domain = Any(domains_);
  if (domain == nullptr || srqs_.size() >= kMaxSrqs) return;
  auto srq = std::make_unique<WalkSrq>();
  srq->device = domain->device;
  srq->pd = domain->pd;
  if (random_.Chance(400)) {
    MakeXrcSrq(srq.get());
    if (srq->cq == nullptr) return;
  } else {
    ibv_srq_init_attr init = {};
    init.attr.max_wr = WalkSrq::kSlots;
    init.attr.max_sge = 1;
    srq->srq = ibv_create_srq(domain->pd, &init);
  }
  Expect(srq->srq != nullptr, "ibv_create_srq");
  Expect(srq->AllocateMemory(), "memory of a shared receive queue");
  domain->users += 2;  // the queue and its region
  srqs_.push_back(std::move(srq));
}

void Walker::MakeXrcSrq(WalkSrq* srq) {
  Queue* queue = nullptr;
  for (const auto& q : queues_) queue = q->device == srq->device ? q.get() : queue;
  if (queue == nullptr) return;
  ibv_xrcd_init_attr domain = {};
  domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  domain.fd = -1;
  domain.oflags = O_CREAT;
  srq->xrcd = ibv_open_xrcd(srq->device->context, &domain);
  Expect(srq->xrcd != nullptr, "ibv_open_xrcd");
  ibv_srq_init_attr_ex init = {};
  init.attr.max_wr = WalkSrq::kSlots;
  init.attr.max_sge = 1;
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
  init.srq_type = IBV_SRQT_XRC;
  init.xrcd = srq->xrcd;
  init.cq = queue->cq;
  init.pd = srq->pd;
  srq->srq = ibv_create_srq_ex(srq->device->context, &init);
  Expect(srq->srq != nullptr, "ibv_create_srq_ex");
  Expect(ibv_get_srq_num(srq->srq, &srq->number) == 0, "ibv_get_srq_num");
  srq->cq = queue->cq;
  ++queue->users;
}

void Walker::DropSrq() {
  WalkSrq* srq = Any(srqs_);
  if (srq == nullptr) return;
  if (srq->is_xrc()) {
    Expect(ibv_close_xrcd(srq->xrcd) == EBUSY, "ibv_close_xrcd in use");
  }
  // (An XRC receiving QP uses the domain and names no queue: messages would be refused.)
  if (srq->is_xrc() && srq->users > 0) return;
  const int result = ibv_destroy_srq(srq->srq);
  Expect(result == (srq->users > 0 ? EBUSY : 0), "ibv_destroy_srq");
  if (result != 0) return;
  Expect(ibv_dereg_mr(srq->mr) == 0, "ibv_dereg_mr of a shared receive queue's memory");
  if (srq->is_xrc()) {
    Expect(ibv_close_xrcd(srq->xrcd) == 0, "ibv_close_xrcd");
    --QueueOf(srq->cq)->users;
  }
  DomainOf(srq->pd)->users -= 2;
  std::erase_if(srqs_, [srq](const auto& owned) { return owned.get() == srq; });
}

// Each operation may happen at any time.
void Walker::ChangeSrq() {
  WalkSrq* srq = Any(srqs_);
  if (srq == nullptr) return;
  ibv_srq_attr attr = {};
  Expect(ibv_query_srq(srq->srq, &attr) == 0, "ibv_query_srq");
  Expect(attr.max_wr >= WalkSrq::kSlots, "the size of a shared receive queue");
  const uint32_t most = 4 * WalkSrq::kSlots;
  attr.srq_limit = static_cast<uint32_t>(random_.Below(WalkSrq::kSlots));
  Expect(ibv_modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT) == 0, "the limit of ibv_modify_srq");
  if (attr.max_wr >= most) return;
  attr.max_wr += static_cast<uint32_t>(random_.Below(16));
  Expect(ibv_modify_srq(srq->srq, &attr, IBV_SRQ_MAX_WR) == 0, "the size of ibv_modify_srq");
}

void Walker::PostShared() {
  WalkSrq* srq = Any(srqs_);
  if (srq != nullptr) Refill(srq, random_.Between(1, WalkSrq::kSlots));
}

// Posts up to this number. The device must have a slot for each completed receive.
void Walker::Refill(WalkSrq* srq, size_t count) {
  while (srq->posted.size() < count && !srq->free_slots.empty()) {
    Expect(srq->Post(++last_wr_id_ << 1 | 1) == 0, "ibv_post_srq_recv");
  }
}

void Walker::MakeXrcPair() {
  WalkSrq* srq = AnySrq(devices_[random_.Below(2)], true);
  if (srq == nullptr) return;
  WalkEnd* initiator = MakeEnd(devices_[random_.Below(2)], IBV_QPT_XRC_SEND);
  if (initiator == nullptr) return;
  auto target = std::make_unique<WalkEnd>();
  target->device = srq->device;
  target->type = IBV_QPT_XRC_RECV;
  target->pd = srq->pd;
  target->cq = srq->cq;
  target->srq = srq;
  ibv_qp_init_attr_ex init = {};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = srq->xrcd;
  target->qp = ibv_create_qp_ex(srq->device->context, &init);
  Expect(target->qp != nullptr, "ibv_create_qp_ex of XRC");
  Expect(target->AllocateMemory(), "memory of an XRC QP");
  ++srq->users;
  DomainOf(srq->pd)->users += 2;  // counted like others; the SRQ keeps the domain busy as well
  ++QueueOf(srq->cq)->users;
  WalkEnd* added = target.get();
  ends_.push_back(std::move(target));
  Connect(initiator, added);
}

void Walker::ReadEvents() {
  for (const WalkDevice& device : devices_) ReadEventsOf(device);
}

// The event names an existing object.
void Walker::CheckEvent(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      Fail("event: %s", ibv_event_type_str(event.event_type));
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      Expect(std::any_of(srqs_.begin(), srqs_.end(),
                         [&](const auto& srq) { return srq->srq == event.element.srq; }),
             "an event of a shared receive queue that is gone");
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      const auto end = std::find_if(ends_.begin(), ends_.end(), [&](const auto& owned) {
        return owned->qp == event.element.qp;
      });
      if (end == ends_.end()) Fail("%s of a QP that is gone", ibv_event_type_str(event.event_type));
      (*end)->drained |= event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
      break;
    }
    default:
      break;
  }
}

void Walker::ReadEventsOf(const WalkDevice& device) {
  pollfd fd = {device.context->async_fd, POLLIN, 0};
  while (::poll(&fd, 1, 0) == 1) {
    ibv_async_event event = {};
    Expect(ibv_get_async_event(device.context, &event) == 0, "ibv_get_async_event");
    CheckEvent(event);
    ibv_ack_async_event(&event);
  }
}

// As programs must do before they destroy such a QP (IBTA vol 1, 11.6.3.2 and 10.3.1): move it to
// ERR, wait for "last WQE reached", and poll its completions.
void Walker::Drain(WalkEnd* end) {
  if (end->srq == nullptr) return;
  const ibv_qp_state state = end->QueryState();
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT) return;
  Expect(end->ToState(IBV_QPS_ERR) == 0, "to ERR");
  end->disturbed = true;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!end->drained) {
    ReadEventsOf(*end->device);
    if (std::chrono::steady_clock::now() > deadline) {
      Fail("QP %u (type %d) never reaches its last receive", end->qp->qp_num, end->type);
    }
  }
  while (Poll(*QueueOf(end->cq), 16) > 0) {
  }
}

}  // namespace roci::testing
