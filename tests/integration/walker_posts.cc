// The walker's requests: SENDs, WRITEs, READs and atomics, posted by ibv_post_send and by the calls
// of extended queue pairs.
#include <cerrno>
#include <cstring>

#include "tests/integration/walker.h"

namespace roci::testing {
namespace {

constexpr uint32_t kQkey = 0x1234;
constexpr uint32_t kUdBytes = 1024;

bool TakesReceive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Room for one more message. Other QPs may use shared receives; the message then waits or is lost.
bool HasReceive(const WalkEnd& end) {
  if (end.srq != nullptr) return end.incoming.size() < WalkEnd::kLastSlot;
  return end.recvs.size() > end.incoming.size();
}

bool Reads(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

ibv_wr_opcode OpcodeFor(ibv_qp_type type, sim::Random& random) {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD};
  const uint64_t count = type == IBV_QPT_UD ? 2 : type == IBV_QPT_UC ? 4 : 6;
  return kOpcodes[random.Below(count)];
}

}  // namespace

void Walker::PostGood() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->peer == nullptr) return;
  const bool is_batch = end->qpx != nullptr && random_.Chance(400);
  if (is_batch) ibv_wr_start(end->qpx);
  batch_ = is_batch ? end : nullptr;
  for (uint64_t left = random_.Between(1, 8); left > 0 && PostOne(end, true); --left) {
  }
  batch_ = nullptr;
  if (is_batch) Expect(ibv_wr_complete(end->qpx) == 0, "ibv_wr_complete of a batch");
}

// If a batch is aborted or one of its requests is invalid, none is posted: a completion would be
// one of a request that was never posted.
void Walker::PostNothing() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->qpx == nullptr || end->peer == nullptr || end->mr == nullptr) return;
  ibv_sge sges[WalkEnd::kMaxSges + 1] = {};
  for (ibv_sge& sge : sges) sge = {end->Address(WalkEnd::Area::kSource, 0), 1, end->mr->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = ++last_wr_id_ << 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sges;
  wr.num_sge = 1;
  wr.wr.ud.ah = end->ah;
  ibv_wr_start(end->qpx);
  end->PutExtended(wr);
  if (random_.Chance(500)) {
    ibv_wr_abort(end->qpx);
    return;
  }
  wr.num_sge = WalkEnd::kMaxSges + 1;
  end->PutExtended(wr);
  wr.num_sge = 0;
  end->PutExtended(wr);
  Expect(ibv_wr_complete(end->qpx) != 0, "ibv_wr_complete with too many elements");
}

// By any call that the queue pair supports.
void Walker::Post(WalkEnd* end, ibv_send_wr& wr) {
  if (batch_ == end) {
    end->PutExtended(wr);
    ++extended_;
  } else if (end->qpx != nullptr && random_.Chance(500)) {
    Expect(end->PostExtended(wr) == 0, "ibv_wr_complete");
    ++extended_;
  } else {
    ibv_send_wr* bad = nullptr;
    Expect(ibv_post_send(end->qp, &wr, &bad) == 0, "ibv_post_send");
  }
}

// One request that cannot succeed.
void Walker::PostBad() {
  WalkEnd* end = Any(ends_);
  if (end == nullptr || end->peer == nullptr) return;
  if (PostOne(end, false)) Disturb(end);
}

bool Walker::PostOne(WalkEnd* end, bool good) {
  WalkEnd* peer = end->peer;
  if (end->mr == nullptr || peer->mr == nullptr || end->sends.size() >= WalkEnd::kLastSlot ||
      end->type == IBV_QPT_XRC_RECV) {
    return false;
  }
  WalkRequest request;
  request.opcode = OpcodeFor(end->type, random_);
  if (TakesReceive(request.opcode) && !HasReceive(*peer)) return false;
  request.wr_id = ++last_wr_id_ << 1;
  request.slot = end->next_slot;
  const bool atomic = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const uint32_t most = end->type == IBV_QPT_UD ? kUdBytes : WalkEnd::kSlotBytes;
  request.length = atomic ? 8 : static_cast<uint32_t>(random_.Below(most + 1));
  if (!good && request.length == 0) request.length = 1;
  request.must_fail = !good;
  request.signaled = !good || random_.Chance(600);

  using Area = WalkEnd::Area;
  const Area local = Reads(request.opcode) ? Area::kRead : Area::kSource;
  if (!Reads(request.opcode)) {
    FillPayload(end->At(local, request.slot), request.length, random_.Next());
  }
  // In two elements.
  const auto first = static_cast<uint32_t>(atomic ? 8 : random_.Below(request.length + 1));
  const uint64_t address = end->Address(local, request.slot);
  ibv_sge sges[2] = {{address, first, end->mr->lkey},
                     {address + first, request.length - first, end->mr->lkey}};
  if (!good) sges[first == 0 ? 1 : 0].lkey ^= 0x55AA00;
  ibv_send_wr wr = {};
  wr.wr_id = request.wr_id;
  wr.sg_list = sges;
  wr.num_sge = atomic ? 1 : 2;
  wr.opcode = request.opcode;
  wr.send_flags = (request.signaled ? unsigned{IBV_SEND_SIGNALED} : 0) |
                  (random_.Chance(100) && end->type == IBV_QPT_RC ? unsigned{IBV_SEND_FENCE} : 0);
  if (good && !Reads(request.opcode) && request.length <= end->max_inline && random_.Chance(500)) {
    wr.send_flags |= IBV_SEND_INLINE;
  }
  wr.imm_data = static_cast<uint32_t>(request.wr_id);
  if (end->type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = peer->srq->number;
  const uint32_t rkey =
      MayUseWindow(*peer) && random_.Chance(500) ? peer->window_key : peer->mr->rkey;
  if (end->type == IBV_QPT_UD) {
    wr.wr.ud.ah = end->ah;
    wr.wr.ud.remote_qpn = peer->qp->qp_num;
    wr.wr.ud.remote_qkey = kQkey;
  } else if (atomic) {
    wr.wr.atomic.remote_addr = peer->Address(Area::kRead, WalkEnd::kLastSlot);
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = 1;
  } else {
    wr.wr.rdma.remote_addr = request.opcode == IBV_WR_RDMA_READ
                                 ? peer->Address(Area::kSource, WalkEnd::kLastSlot)
                                 : peer->Address(Area::kWritten, request.slot);
    wr.wr.rdma.rkey = rkey;
  }
  Post(end, wr);
  end->next_slot = (end->next_slot + 1) % WalkEnd::kLastSlot;
  end->sends.push_back(request);
  // (A message may find a shared queue empty, and is lost on unreliable transports.)
  const bool may_be_lost = peer->srq != nullptr && !peer->is_reliable();
  if (TakesReceive(request.opcode) && !may_be_lost) peer->incoming.push_back(request);
  return true;
}

}  // namespace roci::testing
