// The walker's queue pairs: connection, disturbance, receives. Requests are in walker_posts.cc.
#include <cerrno>
#include <cstring>

#include "tests/integration/walker.h"

namespace roci::testing {
namespace {

constexpr size_t kMaxEnds = 12;
constexpr uint32_t kRecvs = WalkEnd::kLastSlot;

}  // namespace

WalkEnd* Walker::MakeEnd(WalkDevice& device, ibv_qp_type type) {
  if (ends_.size() >= kMaxEnds) return nullptr;
  Domain* domain = nullptr;
  Queue* queue = nullptr;
  for (const auto& d : domains_) domain = d->device == &device ? d.get() : domain;
  for (const auto& q : queues_) queue = q->device == &device ? q.get() : queue;
  if (domain == nullptr || queue == nullptr) return nullptr;
  auto end = std::make_unique<WalkEnd>();
  end->device = &device;
  end->type = type;
  end->pd = domain->pd;
  end->cq = queue->cq;
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = queue->cq;
  init.qp_type = type;
  init.cap = {WalkEnd::kSlots, WalkEnd::kSlots, WalkEnd::kMaxSges, 1,
              random_.Chance(500) ? 200u : 0u};
  if (type == IBV_QPT_XRC_SEND) init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
  if (type != IBV_QPT_XRC_SEND && random_.Chance(300)) end->srq = AnySrq(device, false);
  if (end->srq != nullptr) {
    init.srq = end->srq->srq;
    ++end->srq->users;
  }
  Expect(end->Create(init, random_.Chance(500)), "ibv_create_qp");
  Expect(end->AllocateMemory(), "memory of a QP");
  domain->users += 2;  // the QP and its region
  ++queue->users;
  ends_.push_back(std::move(end));
  return ends_.back().get();
}

void Walker::DestroyEnd(WalkEnd* end) {
  if (end->peer != nullptr) {
    Disturb(end);
    Disconnect(end);
  }
  Drain(end);
  DropWindow(end);
  Expect(ibv_destroy_qp(end->qp) == 0, "ibv_destroy_qp");
  if (end->srq != nullptr) --end->srq->users;
  Domain* domain = DomainOf(end->pd);
  --domain->users;
  if (end->mr != nullptr) {
    Expect(ibv_dereg_mr(end->mr) == 0, "ibv_dereg_mr of a QP's memory");
    --domain->users;
  }
  --QueueOf(end->cq)->users;
  std::erase_if(ends_, [end](const auto& owned) { return owned.get() == end; });
}

void Walker::Disconnect(WalkEnd* end) {
  for (WalkEnd* side : {end, end->peer}) {
    side->peer = nullptr;
    if (side->ah == nullptr) continue;
    Expect(ibv_destroy_ah(side->ah) == 0, "ibv_destroy_ah of a QP");
    side->ah = nullptr;
    --DomainOf(side->pd)->users;
  }
}

void Walker::Disturb(WalkEnd* end) {
  end->disturbed = true;
  if (end->peer != nullptr) end->peer->disturbed = true;
}

void Walker::BackToReset(WalkEnd* end) {
  if (end->peer != nullptr) {
    Disturb(end);
    Disconnect(end);
  }
  Drain(end);
  DropWindow(end);
  Expect(end->ToState(IBV_QPS_RESET) == 0, "to RESET");
  end->Forget();
}

// Both restart from RESET.
void Walker::Connect(WalkEnd* a, WalkEnd* b) {
  for (WalkEnd* end : {a, b}) {
    BackToReset(end);
    // Far from all other PSNs: an old peer may continue to send to this QP, and its packets must
    // not be accepted.
    end->psn = static_cast<uint32_t>(random_.Below(1u << 24));
    memset(end->At(WalkEnd::Area::kRead, WalkEnd::kLastSlot), 0, sizeof(uint64_t));
  }
  a->peer = b;
  b->peer = a;
  for (WalkEnd* end : {a, b}) Expect(end->ToInit() == 0, "to INIT");
  for (WalkEnd* end : {a, b}) Expect(end->ToRtr(*end->peer) == 0, "to RTR");
  for (WalkEnd* end : {a, b}) {
    Expect(end->ToRts() == 0, "to RTS");
    if (end->type != IBV_QPT_UD) continue;
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = end->peer->device->gid;
    attr.grh.sgid_index = end->device->gid_index;
    attr.grh.hop_limit = 64;
    end->ah = ibv_create_ah(end->pd, &attr);
    Expect(end->ah != nullptr, "ibv_create_ah of a QP");
    ++DomainOf(end->pd)->users;
  }
}

void Walker::MakePair() {
  static constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  const ibv_qp_type type = kTypes[random_.Below(4)];
  WalkEnd* a = MakeEnd(devices_[random_.Below(2)], type);
  if (a == nullptr) return;
  WalkEnd* b = MakeEnd(devices_[random_.Below(2)], type);
  if (b == nullptr) return DestroyEnd(a);
  Connect(a, b);
}

void Walker::ConnectAnyPair() {
  WalkEnd* a = Any(ends_);
  WalkEnd* b = Any(ends_);
  if (a == nullptr || a == b || a->mr == nullptr || b->mr == nullptr) return;
  const bool fit = a->is_xrc() ? b->is_xrc() && a->type != b->type : a->type == b->type;
  if (fit) Connect(a, b);
}

void Walker::DropEnd() {
  WalkEnd* end = Any(ends_);
  if (end != nullptr) DestroyEnd(end);
}

void Walker::FailEnd() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr) return;
  if (end->QueryState() == IBV_QPS_RESET) {
    // A QP that was never set up has nothing to flush.
    Expect(end->ToState(IBV_QPS_ERR) == EINVAL, "from RESET to ERR");
    return;
  }
  Disturb(end);
  Expect(end->ToState(IBV_QPS_ERR) == 0, "to ERR");
  end->flushing = true;
}

void Walker::ResetEnd() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr) return;
  BackToReset(end);
  Expect(end->QueryState() == IBV_QPS_RESET, "in RESET");
  if (end->type == IBV_QPT_XRC_RECV) return;
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  Expect(ibv_post_send(end->qp, &wr, &bad) == EINVAL && bad == &wr, "a post in RESET");
  if (end->qpx == nullptr) return;
  Expect(end->PostExtended(wr) == EINVAL, "ibv_wr_complete in RESET");
}

// The region is deregistered while requests may use it.
void Walker::LoseMemory() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->mr == nullptr) return;
  Disturb(end);
  if (end->window == WalkEnd::Window::kBound) {
    Expect(ibv_dereg_mr(end->mr) == EBUSY, "ibv_dereg_mr under a window");
  }
  DropWindow(end);
  Expect(ibv_dereg_mr(end->mr) == 0, "ibv_dereg_mr in use");
  --DomainOf(end->pd)->users;
  end->mr = nullptr;
}

void Walker::PostRecvs() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->mr == nullptr || end->peer == nullptr) return;
  if (end->is_xrc()) return;
  if (end->srq != nullptr) {
    Expect(end->PostRecv(1, 0) == EINVAL, "a receive for a QP with a shared queue");
    return;
  }
  for (uint64_t left = random_.Between(1, kRecvs); left > 0 && end->recvs.size() < kRecvs; --left) {
    WalkRequest request;
    request.wr_id = ++last_wr_id_ << 1 | 1;
    request.slot = end->next_recv;
    Expect(end->PostRecv(request.wr_id, request.slot) == 0, "ibv_post_recv");
    end->next_recv = (end->next_recv + 1) % WalkEnd::kLastSlot;
    end->recvs.push_back(request);
  }
}

}  // namespace roci::testing
