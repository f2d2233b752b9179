// The walker's memory windows: bound to one end's memory, used by the peer, invalidated by either.
#include <cerrno>

#include "tests/integration/walker.h"

namespace roci::testing {
namespace {

constexpr unsigned kRights =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

bool Walker::MayUseWindow(const WalkEnd& end) const {
  return end.window == WalkEnd::Window::kBound;
}

// Binds all of the end's memory. The state follows when the request completes.
void Walker::BindWindow() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->type != IBV_QPT_RC || end->peer == nullptr || end->disturbed ||
      end->mr == nullptr || end->window != WalkEnd::Window::kNone ||
      end->sends.size() >= WalkEnd::kLastSlot) {
    return;
  }
  if (end->mw == nullptr) {
    end->mw = ibv_alloc_mw(end->pd, random_.Chance(500) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
    Expect(end->mw != nullptr, "ibv_alloc_mw");
    ++DomainOf(end->pd)->users;
  }
  end->window = WalkEnd::Window::kBinding;
  const ibv_mw_bind_info info = {end->mr, end->Address(WalkEnd::Area::kSource, 0), end->mr->length,
                                 kRights};
  if (end->mw->type == IBV_MW_TYPE_2) {
    return PostWindowWork(end, IBV_WR_BIND_MW, ibv_inc_rkey(end->mw->rkey));
  }
  WalkRequest request;
  request.wr_id = ++last_wr_id_ << 1;
  request.opcode = IBV_WR_BIND_MW;
  ibv_mw_bind bind = {};
  bind.wr_id = request.wr_id;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = info;
  Expect(ibv_bind_mw(end->qp, end->mw, &bind) == 0, "ibv_bind_mw");
  request.key = end->window_key = end->mw->rkey;
  end->sends.push_back(request);
}

// Invalidates the window: by the owner when the peer is done, or by the peer with a message.
void Walker::EndWindow() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->window != WalkEnd::Window::kBound || end->peer == nullptr ||
      end->disturbed) {
    return;
  }
  WalkEnd* peer = end->peer;
  const bool is_type2 = end->mw->type == IBV_MW_TYPE_2;
  if (is_type2 && random_.Chance(500) && end->srq == nullptr &&
      end->recvs.size() > end->incoming.size() && peer->sends.size() < WalkEnd::kLastSlot) {
    end->window = WalkEnd::Window::kEnding;
    PostWindowWork(peer, IBV_WR_SEND_WITH_INV, end->window_key);
    end->incoming.push_back(peer->sends.back());
  } else if (peer->sends.empty() && end->sends.size() < WalkEnd::kLastSlot) {
    end->window = WalkEnd::Window::kEnding;
    if (is_type2) return PostWindowWork(end, IBV_WR_LOCAL_INV, end->window_key);
    EndType1(end);
  }
}

void Walker::EndType1(WalkEnd* end) {
  WalkRequest request;
  request.wr_id = ++last_wr_id_ << 1;
  request.opcode = IBV_WR_LOCAL_INV;
  request.key = end->window_key;
  ibv_mw_bind bind = {};
  bind.wr_id = request.wr_id;
  bind.send_flags = IBV_SEND_SIGNALED;
  Expect(ibv_bind_mw(end->qp, end->mw, &bind) == 0, "ibv_bind_mw without length");
  end->sends.push_back(request);
}

void Walker::PostWindowWork(WalkEnd* end, ibv_wr_opcode opcode, uint32_t key) {
  WalkRequest request;
  request.wr_id = ++last_wr_id_ << 1;
  request.opcode = opcode;
  request.key = key;
  ibv_send_wr wr = {};
  wr.wr_id = request.wr_id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (opcode == IBV_WR_BIND_MW) {
    wr.bind_mw.mw = end->mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = {end->mr, end->Address(WalkEnd::Area::kSource, 0), end->mr->length,
                            kRights};
    end->window_key = key;
  } else {
    wr.invalidate_rkey = key;
    // A READ before it may be read late.
    wr.send_flags |= opcode == IBV_WR_SEND_WITH_INV ? unsigned{IBV_SEND_FENCE} : 0;
  }
  Post(end, wr);
  end->sends.push_back(request);
}

// Handles a successful request.
void Walker::CompleteWindowWork(WalkEnd& end, const WalkRequest& request) {
  using Window = WalkEnd::Window;
  const bool is_peers = request.opcode == IBV_WR_SEND_WITH_INV;
  WalkEnd* owner = is_peers ? end.peer : &end;
  if (owner == nullptr || owner->mw == nullptr || owner->window_key != request.key) return;
  ++windows_;
  if (request.opcode == IBV_WR_BIND_MW && owner->window == Window::kBinding) {
    owner->window = Window::kBound;
  } else if ((is_peers || request.opcode == IBV_WR_LOCAL_INV) && owner->window == Window::kEnding) {
    owner->window = Window::kNone;
    owner->old_key = request.key;
  }
}

// A peer that uses an invalidated window is refused.
void Walker::PostStale() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->peer == nullptr || end->mr == nullptr || end->type != IBV_QPT_RC ||
      end->peer->old_key == 0 || end->peer->window != WalkEnd::Window::kNone ||
      end->sends.size() >= WalkEnd::kLastSlot) {
    return;
  }
  WalkRequest request;
  request.wr_id = ++last_wr_id_ << 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.must_fail = true;
  ibv_sge sge = {end->Address(WalkEnd::Area::kSource, end->next_slot), 8, end->mr->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = request.wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = end->peer->Address(WalkEnd::Area::kWritten, end->next_slot);
  wr.wr.rdma.rkey = end->peer->old_key;
  Post(end, wr);
  end->sends.push_back(request);
  Disturb(end);
}

void Walker::DropWindow(WalkEnd* end) {
  end->window = WalkEnd::Window::kNone;
  end->window_key = end->old_key = 0;
  if (end->mw == nullptr) return;
  Expect(ibv_dealloc_mw(end->mw) == 0, "ibv_dealloc_mw");
  end->mw = nullptr;
  --DomainOf(end->pd)->users;
}

}  // namespace roci::testing
