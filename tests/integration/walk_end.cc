#include "tests/integration/walk_end.h"

#include <sys/mman.h>

#include <cstring>

namespace roci::testing {
namespace {

constexpr size_t kBytes = size_t{4} * WalkEnd::kSlots * WalkEnd::kSlotBytes;

ibv_ah_attr AddressOf(const WalkEnd& from, const WalkEnd& to) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = to.device->gid;
  attr.grh.sgid_index = from.device->gid_index;
  attr.grh.hop_limit = 64;
  return attr;
}

}  // namespace

WalkEnd::~WalkEnd() {
  if (memory != nullptr) munmap(memory, kBytes);
}

bool WalkEnd::AllocateMemory() {
  void* bytes = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return false;
  memory = static_cast<uint8_t*>(bytes);
  FillPayload(At(Area::kSource, kLastSlot), kSlotBytes, reinterpret_cast<uintptr_t>(this));
  mr = ibv_reg_mr(pd, memory, kBytes,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
  return mr != nullptr;
}

int WalkEnd::ToState(ibv_qp_state state) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

int WalkEnd::ToInit() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (type == IBV_QPT_UD) {
    attr.qkey = 0x1234;
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int WalkEnd::ToRtr(const WalkEnd& to) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  int mask = IBV_QP_STATE;
  if (type != IBV_QPT_UD) {
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to.qp->qp_num;
    attr.rq_psn = to.psn;
    attr.ah_attr = AddressOf(*this, to);
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV) {
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int WalkEnd::ToRts() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type == IBV_QPT_XRC_RECV) {
    attr.timeout = 14;
    mask |= IBV_QP_TIMEOUT;
  }
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND) {
    attr.timeout = 14;
    attr.retry_cnt = 7;
    // Forever if receives are shared, since their order over queue pairs is unknown.
    attr.rnr_retry = peer->srq != nullptr ? 7 : 6;
    attr.max_rd_atomic = 4;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

ibv_qp_state WalkEnd::QueryState() const {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 ? attr.qp_state : IBV_QPS_UNKNOWN;
}

int WalkEnd::PostRecv(uint64_t wr_id, uint32_t slot) {
  ibv_sge sge = {Address(Area::kReceived, slot), kSlotBytes, mr->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

void WalkEnd::Forget() {
  sends.clear();
  recvs.clear();
  incoming.clear();
  disturbed = failed = flushing = drained = false;
  atomics = 0;
  next_slot = next_recv = 0;
}

void FillPayload(uint8_t* data, uint32_t length, uint64_t seed) {
  uint64_t x = seed;
  for (uint32_t i = 0; i < length; ++i) {
    if (i < sizeof(seed)) {
      data[i] = static_cast<uint8_t>(seed >> (8 * i));
    } else {
      x = x * 6364136223846793005 + 1442695040888963407;
      data[i] = static_cast<uint8_t>(x >> 56);
    }
  }
}

bool CheckPayload(const uint8_t* data, uint32_t length) {
  uint64_t seed = 0;
  if (length < sizeof(seed)) return true;
  for (uint32_t i = 0; i < sizeof(seed); ++i) seed |= uint64_t{data[i]} << (8 * i);
  std::vector<uint8_t> wanted(length);
  FillPayload(wanted.data(), length, seed);
  return memcmp(wanted.data(), data, length) == 0;
}

}  // namespace roci::testing
