#include "tests/interop/memory_device.h"

#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>

#include "tests/interop/memory_region.h"

namespace interop {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::chrono::seconds kCompletionLimit{20};
constexpr uint32_t kTrafficTransfer = kPage;

ibv_context* Open(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  if (list != nullptr) ibv_free_device_list(list);
  return context;
}

}  // namespace

MemoryDevice::MemoryDevice(const DeviceName& name)
    : context(Open(name.name)), gid_index(static_cast<uint8_t>(name.gid_index)) {
  if (context == nullptr) return;
  pd = ibv_alloc_pd(context);
  ibv_port_attr port = {};
  if (pd == nullptr || ibv_query_port(context, 1, &port) != 0 ||
      ibv_query_gid(context, 1, gid_index, &gid) != 0) {
    context = nullptr;
    return;
  }
  mtu = port.active_mtu;
}

ibv_mr* MemoryDevice::Register(void* at, size_t length, bool writable) const {
  const int access = writable ? kAccess : IBV_ACCESS_REMOTE_READ;
  // NOLINTNEXTLINE: ibv_reg_mr is a macro that looks at its flags when compiled
  return ibv_reg_mr(pd, at, length, access);
}

Loop::Loop(const MemoryDevice& device)
    : device_(device),
      buffer_(static_cast<uint8_t*>(
          mmap(nullptr, kMaxTransfer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
      buffer_mr_(device.Register(buffer_, kMaxTransfer, true)),
      cq_(ibv_create_cq(device.context, 4, nullptr, nullptr, 0)) {}

bool Loop::Connect() {
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.cap = {4, 4, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  qp_ = ibv_create_qp(device_.pd, &attributes);
  if (qp_ == nullptr) return false;
  ibv_qp_attr to = {};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = kAccess;
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (ibv_modify_qp(qp_, &to, kInit) != 0) return false;
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = device_.mtu;
  to.dest_qp_num = qp_->qp_num;
  to.max_dest_rd_atomic = 1;
  to.min_rnr_timer = 12;  // 0.64 ms
  to.ah_attr.is_global = 1;
  to.ah_attr.grh.dgid = device_.gid;
  to.ah_attr.grh.sgid_index = device_.gid_index;
  to.ah_attr.grh.hop_limit = 64;
  to.ah_attr.port_num = 1;
  constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (ibv_modify_qp(qp_, &to, kRtr) != 0) return false;
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 18;  // 4.096 us << 18 = 1.1 s
  to.retry_cnt = 7;
  to.rnr_retry = 7;
  to.max_rd_atomic = 1;
  constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(qp_, &to, kRts) == 0;
}

std::string Loop::Write(const Remote& region, uint32_t length) {
  return Run(IBV_WR_RDMA_WRITE, OwnBuffer(), region, length);
}

std::string Loop::Read(const Remote& region, uint32_t length) {
  return Run(IBV_WR_RDMA_READ, OwnBuffer(), region, length);
}

std::string Loop::WriteFromBuffer(const Remote& region, uint32_t length) {
  return Run(IBV_WR_RDMA_READ, region, OwnBuffer(), length);
}

std::string Loop::ReadIntoBuffer(const Remote& region, uint32_t length) {
  return Run(IBV_WR_RDMA_WRITE, region, OwnBuffer(), length);
}

std::string Loop::Run(ibv_wr_opcode opcode, const Remote& local, const Remote& remote,
                      uint32_t length) {
  if (qp_ == nullptr && !Connect()) return "no queue pair";
  ibv_sge sge = {local.address, length, local.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote.address;
  request.wr.rdma.rkey = remote.mr->rkey;
  ibv_send_wr* bad = nullptr;
  std::string error = ibv_post_send(qp_, &request, &bad) == 0 ? Await() : "not posted";
  if (!error.empty()) {
    ibv_destroy_qp(qp_);
    qp_ = nullptr;
  }
  return error;
}

std::string Loop::Await() {
  const auto deadline = std::chrono::steady_clock::now() + kCompletionLimit;
  ibv_wc entry = {};
  while (ibv_poll_cq(cq_, 1, &entry) == 0) {
    if (std::chrono::steady_clock::now() > deadline) return "no completion";
    sched_yield();
  }
  return entry.status == IBV_WC_SUCCESS ? "" : ibv_wc_status_str(entry.status);
}

Traffic::Traffic(const MemoryDevice& device, const Remote& region, bool writable)
    : loop_(device), region_(region), writable_(writable), thread_([this] { Run(); }) {
  while (rounds_ == 0) sched_yield();
}

std::string Traffic::Stop() {
  const int before = rounds_;
  while (rounds_ < before + 2 && rounds_ >= 0) sched_yield();
  stops_ = true;
  thread_.join();
  return error_;
}

void Traffic::Run() {
  for (uint32_t number = 0; !stops_; ++number) {
    error_ = Round(number);
    if (!error_.empty()) {
      rounds_ = -1;
      return;
    }
    ++rounds_;
  }
}

std::string Traffic::Round(uint32_t number) {
  // The completion of the READ also shows that the WRITE before it has arrived.
  const size_t offset = writable_ ? size_t{number} * 8 : 0;
  const Pattern pattern = writable_ ? Pattern::kDevice : Pattern::kFirst;
  if (writable_) {
    Fill(pattern, loop_.buffer(), offset, kTrafficTransfer);
    if (std::string error = loop_.Write(region_, kTrafficTransfer); !error.empty()) return error;
  }
  memset(loop_.buffer(), 0, kTrafficTransfer);
  if (std::string error = loop_.Read(region_, kTrafficTransfer); !error.empty()) return error;
  return Holds(pattern, loop_.buffer(), offset, kTrafficTransfer) ? "" : "wrong bytes";
}

}  // namespace interop
