#include "tests/integration/hostile/rig.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace roci::testing::hostile {
namespace {

void Require(bool condition, const char* what, int error) {
  if (condition) return;
  std::printf("the attacker has no %s: %s\n", what, std::strerror(error));
  std::fflush(nullptr);
  _exit(3);
}

roci_abi_ah_attr AddressOf(uint8_t host) {
  roci_abi_ah_attr attr{};
  const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 99, 0, host};
  std::memcpy(attr.dgid, gid, sizeof(gid));
  attr.is_global = 1;
  attr.port = 1;
  attr.sgid_index = 1;
  attr.hop_limit = 64;
  return attr;
}

// As many as fit.
void PutElements(std::byte* at, const std::vector<roci_abi_sge>& sges, size_t room) {
  const size_t count = std::min(sges.size(), room);
  if (count != 0) std::memcpy(at, sges.data(), count * sizeof(roci_abi_sge));
}

void Store(uint32_t& word, uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

}  // namespace

Mapping::Mapping(int fd, size_t size) : size_(size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

bool MappedCq::Poll(roci_abi_cqe* out) {
  roci_abi_cqe& entry = entries()[next & (capacity - 1)];
  const uint32_t generation = std::atomic_ref(entry.generation).load(std::memory_order_acquire);
  if (generation != next / capacity + 1) return false;
  if (out != nullptr) *out = entry;
  Store(header()->consumer, ++next);
  return true;
}

std::byte* MappedQp::SendSlot(uint32_t index) const {
  const size_t slot = index & (info.send_capacity - 1);
  return memory.data() + info.send_slots_offset + slot * info.send_stride;
}

std::byte* MappedQp::RecvSlot(uint32_t index) const {
  const size_t slot = index & (info.recv_capacity - 1);
  return memory.data() + info.recv_slots_offset + slot * info.recv_stride;
}

Rig::Rig(const char* device, uint32_t cq_entries) {
  roci_abi_hello_request request{};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  std::snprintf(request.device, sizeof(request.device), "%s", device);
  roci_abi_hello_response hello;
  error = Call(ROCI_ABI_HELLO, request, hello);
  Require(error == 0 && fds().size() >= 3, "session", error);
  doorbells_memory = Mapping(fds()[0], hello.doorbell_size);
  wake_fd = Keep(1);
  async_fd = Keep(2);
  pd = AllocPd();
  Require(pd != 0, "protection domain", error);
  cq = MakeCq(cq_entries);
  region = MakeRegion(16 * kPage);
}

int Rig::Keep(size_t i) { return fcntl(fds()[i], F_DUPFD_CLOEXEC, 0); }

MappedCq Rig::MakeCq(uint32_t entries, uint32_t channel) {
  roci_abi_create_cq_request request{};
  request.entries = entries;
  request.channel = channel;
  request.user_handle = 1;
  roci_abi_create_cq_response response;
  error = Call(ROCI_ABI_CREATE_CQ, request, response);
  Require(error == 0, "completion queue", error);
  MappedCq made;
  made.handle = response.handle;
  made.capacity = response.capacity;
  made.memory = Mapping(fds()[0], response.memory_size);
  return made;
}

MappedQp Rig::MakeQp(const QpOptions& options, uint32_t cq_handle) {
  auto request = QpRequest(pd, cq_handle, options.type);
  request.max_send_wr = request.max_recv_wr = options.wr;
  request.max_send_sge = request.max_recv_sge = options.sge;
  request.srq = options.srq;
  if (options.type == IBV_QPT_XRC_RECV) request.pd = options.xrcd;
  MappedQp made;
  made.type = options.type;
  error = CreateQp(request, made.info);
  Require(error == 0, "queue pair", error);
  if (!fds().empty()) made.memory = Mapping(fds()[0], made.info.memory_size);
  return made;
}

MappedSrq Rig::MakeSrq(uint32_t entries, uint32_t type, uint32_t xrcd) {
  roci_abi_create_srq_request request{};
  request.pd = pd;
  request.type = type;
  request.xrcd = xrcd;
  request.cq = cq.handle;
  request.max_wr = entries;
  request.max_sge = 2;
  roci_abi_create_srq_response response;
  error = Call(ROCI_ABI_CREATE_SRQ, request, response);
  Require(error == 0, "shared receive queue", error);
  MappedSrq made;
  made.handle = response.handle;
  made.number = response.srqn;
  made.layout = response.layout;
  made.memory = Mapping(fds()[0], response.layout.memory_size);
  return made;
}

MappedSrq Rig::MakeTagSrq(uint32_t entries, uint32_t tags, uint32_t ops) {
  roci_abi_create_tag_srq_request request{};
  request.pd = pd;
  request.cq = cq.handle;
  request.max_wr = entries;
  request.max_sge = 2;
  request.max_tags = tags;
  request.max_ops = ops;
  roci_abi_create_tag_srq_response response;
  error = Call(ROCI_ABI_CREATE_TAG_SRQ, request, response);
  Require(error == 0 && fds().size() == 2, "tag matching queue", error);
  MappedSrq made;
  made.handle = response.handle;
  made.doorbell = response.doorbell;
  made.layout = response.layout;
  made.tag_layout = response;
  made.memory = Mapping(fds()[0], response.layout.memory_size);
  made.ops = Mapping(fds()[1], response.ops_memory_size);
  return made;
}

int Rig::Register(std::byte* data, size_t size, Region& out, uint32_t access, int fd,
                  uint64_t offset) {
  roci_abi_reg_mr_request request{};
  request.pd = pd;
  request.access = access;
  request.start = request.iova = reinterpret_cast<uint64_t>(data);
  request.length = size;
  request.extent_count = 1;
  request.fd_count = fd >= 0 ? 1 : 0;
  request.extents[0].va = request.start;
  request.extents[0].length = size;
  request.extents[0].file_offset = offset;
  request.extents[0].kind = fd >= 0 ? ROCI_ABI_EXTENT_FD : ROCI_ABI_EXTENT_PROCESS_VM;
  roci_abi_reg_mr_response response;
  const std::vector<int> passed = fd >= 0 ? std::vector{fd} : std::vector<int>{};
  error = Call(ROCI_ABI_REG_MR, request, response, passed);
  if (error == 0) out = {data, size, response.handle, response.lkey};
  return error;
}

Region Rig::MakeRegion(size_t size, uint32_t access) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                  -1, 0);
  Require(at != MAP_FAILED, "memory", errno);
  Region made;
  const int result = Register(static_cast<std::byte*>(at), size, made, access);
  Require(result == 0, "memory region", result);
  return made;
}

uint32_t Rig::MakeAh(uint8_t host) {
  roci_abi_create_ah_request request{};
  request.pd = pd;
  request.attr = AddressOf(host);
  roci_abi_handle_response response;
  error = Call(ROCI_ABI_CREATE_AH, request, response);
  return error == 0 ? response.handle : kNone;
}

int Rig::Connect(const MappedQp& qp, uint32_t peer_qpn, uint8_t host) {
  const bool is_datagram = qp.type == IBV_QPT_UD;
  const bool is_reliable = !is_datagram && qp.type != IBV_QPT_UC;
  const bool sends = qp.type != IBV_QPT_XRC_RECV;
  const bool receives = qp.type != IBV_QPT_XRC_SEND;
  roci_abi_qp_attr attr{};
  attr.port = 1;
  attr.qkey = 0x1234;
  attr.access_flags = kAllAccess;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qpn = peer_qpn;
  attr.ah = AddressOf(host);
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.timeout = 8;
  attr.retry_count = 1;
  attr.state = IBV_QPS_INIT;
  int result = Modify(qp.info.handle,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                          static_cast<uint32_t>(is_datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
                      attr);
  if (result != 0) return result;
  uint32_t mask = IBV_QP_STATE;
  if (!is_datagram) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (is_reliable && receives) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr.state = IBV_QPS_RTR;
  result = Modify(qp.info.handle, mask, attr);
  if (result != 0) return result;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (is_reliable) mask |= IBV_QP_TIMEOUT;
  if (is_reliable && sends) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  attr.state = IBV_QPS_RTS;
  return Modify(qp.info.handle, mask, attr);
}

int Rig::ToReset(MappedQp& qp) {
  roci_abi_qp_attr attr{};
  attr.state = IBV_QPS_RESET;
  qp.sent = qp.received = 0;
  return Modify(qp.info.handle, IBV_QP_STATE, attr);
}

void Rig::Ring(uint32_t handle) {
  const auto set = [](uint64_t& word, uint32_t bit) {
    std::atomic_ref(word).fetch_or(uint64_t{1} << bit, std::memory_order_seq_cst);
  };
  handle &= ROCI_ABI_MAX_QP_HANDLES - 1;
  set(doorbells()->level0[handle >> 6], handle & 63);
  set(doorbells()->level1[handle >> 12], (handle >> 6) & 63);
  set(doorbells()->level2, handle >> 12);
  if (std::atomic_ref(doorbells()->sleeping).load(std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  // If the eventfd is full, the daemon is awake.
  [[maybe_unused]] const ssize_t written = write(wake_fd, &one, sizeof(one));
}

void Rig::Post(MappedQp& qp, const roci_abi_send_wqe& wqe, const std::vector<roci_abi_sge>& sges) {
  std::byte* slot = qp.SendSlot(qp.sent);
  std::memcpy(slot, &wqe, sizeof(wqe));
  const size_t room = (qp.info.send_stride - sizeof(wqe)) / sizeof(roci_abi_sge);
  PutElements(slot + sizeof(wqe), sges, room);
  PublishSends(qp, ++qp.sent);
}

void Rig::PostReceive(MappedQp& qp, const std::vector<roci_abi_sge>& sges, uint32_t num_sge) {
  std::byte* slot = qp.RecvSlot(qp.received);
  const roci_abi_recv_wqe wqe{qp.received,
                              num_sge != kNone ? num_sge : static_cast<uint32_t>(sges.size()), 0};
  std::memcpy(slot, &wqe, sizeof(wqe));
  const size_t room = (qp.info.recv_stride - sizeof(wqe)) / sizeof(roci_abi_sge);
  PutElements(slot + sizeof(wqe), sges, room);
  PublishReceives(qp, ++qp.received);
}

void Rig::PublishSends(MappedQp& qp, uint32_t producer) {
  Store(qp.send_queue()->producer, producer);
  Ring(qp.info.handle);
}

void Rig::PublishReceives(MappedQp& qp, uint32_t producer) {
  Store(qp.recv_queue()->producer, producer);
  Ring(qp.info.handle);
}

RigPair::RigPair(const QpOptions& options, const QpOptions& far_options)
    : near("roci0"),
      far("roci1"),
      near_qp(near.MakeQp(options)),
      far_qp(far.MakeQp(far_options.type != options.type ? options : far_options)) {
  if (options.type == IBV_QPT_UD) ah = near.MakeAh(2);
  Reconnect();
}

void RigPair::Reconnect() {
  near.ToReset(near_qp);
  far.ToReset(far_qp);
  EXPECT_EQ(near.Connect(near_qp, far_qp.info.qpn, 2), 0);
  EXPECT_EQ(far.Connect(far_qp, near_qp.info.qpn, 1), 0);
  while (near.cq.Poll() || far.cq.Poll()) {
  }
  if (far_qp.memory.data() == nullptr || far_qp.info.recv_capacity == 0) return;
  for (uint32_t i = 0; i < far_qp.info.max_recv_wr; ++i) {
    far.PostReceive(far_qp, {far.region.Sge(4096)});
  }
}

roci_abi_send_wqe RigPair::ValidWqe(uint8_t opcode) const {
  roci_abi_send_wqe wqe{};
  wqe.opcode = opcode;
  wqe.flags = ROCI_ABI_SEND_SIGNALED;
  wqe.num_sge = 1;
  wqe.rkey = far.region.key;
  wqe.remote_va = far.region.va();
  if (near_qp.type == IBV_QPT_UD) {
    wqe.u.ud.address_handle = ah;
    wqe.u.ud.remote_qpn = far_qp.info.qpn;
    wqe.u.ud.remote_qkey = 0x1234;
  }
  return wqe;
}

}  // namespace roci::testing::hostile
