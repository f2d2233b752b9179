#include "tests/unit/dataplane/ring_app.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/lcore.h"

namespace roci::testing {
namespace {

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "ring_app: %s\n", what);
  std::abort();
}

template <class T>
T Take(absl::StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  Check(value.ok(), "an object could not be made");
  return *std::move(value);
}

template <class T>
void Store(std::byte* to, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
}

constexpr uint32_t kLocalAndRemote = 0xF;  // local write, remote write, read, atomic

}  // namespace

Mapping::Mapping(int fd, size_t size) : size_(size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Check(data != MAP_FAILED, "mmap");
  data_ = static_cast<std::byte*>(data);
}
Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

AppCq::AppCq(dataplane::ShardClient& client, uint32_t entries, int channel, uint64_t user_handle) {
  std::shared_ptr<dataplane::EventSocket> socket;
  if (channel >= 0) {
    socket = std::make_shared<dataplane::EventSocket>(dataplane::Fd(dup(channel)), nullptr);
  }
  auto created = Take(client.Do(dataplane::CreateCompletionQueue{entries, user_handle, socket}));
  cq_ = created.completion_queue;
  capacity_ = cq_->capacity();
  shift_ = static_cast<uint32_t>(std::countr_zero(capacity_));
  memory_ = Mapping(created.memory.get(), cq_->memory_size());
}

absl::Status AppCq::Resize(dataplane::ShardClient& client, uint32_t entries, uint32_t consumer) {
  auto move = client.Do(dataplane::ResizeCompletionQueue{*cq_, entries, consumer});
  if (!move.ok()) return move.status();
  absl::StatusOr<bool> has_more = true;
  while (has_more.ok() && *has_more) has_more = client.Do(dataplane::ContinueMove{*cq_, *move});
  if (!has_more.ok()) return has_more.status();
  Switch(std::move(move->fd));
  return absl::OkStatus();
}

void AppCq::Switch(dataplane::Fd fd) {
  capacity_ = cq_->capacity();
  shift_ = static_cast<uint32_t>(std::countr_zero(capacity_));
  memory_ = Mapping(fd.get(), cq_->memory_size());
  consumer_ = 0;
}

bool AppCq::Poll(roci_abi_cqe* out) {
  auto* entries =
      reinterpret_cast<roci_abi_cqe*>(memory_.data() + dataplane::CompletionQueue::kEntriesOffset);
  roci_abi_cqe& entry = entries[consumer_ & (capacity_ - 1)];
  const uint32_t generation = std::atomic_ref(entry.generation).load(std::memory_order_acquire);
  if (generation != (consumer_ >> shift_) + 1) return false;
  *out = entry;
  ++consumer_;
  std::atomic_ref(header()->consumer).store(consumer_, std::memory_order_release);
  return true;
}

bool AppCq::Wait(roci_abi_cqe* out, int timeout_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!Poll(out)) {
    if (std::chrono::steady_clock::now() > end) return false;
    sched_yield();
  }
  return true;
}

void AppCq::Arm(roci_abi_cq_arm arm) {
  std::atomic_ref(header()->arm).store(arm, std::memory_order_seq_cst);
}

namespace {

// Handles are reused as late as possible, as the control thread does it.
uint32_t FreeHandle(dataplane::ShardClient& client) {
  dataplane::Lcore& lcore = dataplane::ShardAccess::LcoreOf(client);
  return lcore.Call([&](const dataplane::OnShard& shard) {
    const dataplane::VerbsContext& context = dataplane::ShardAccess::ContextOf(shard, client);
    uint32_t handle = context.handle_end();
    if (handle < client.queue_pair_handles()) return handle;
    for (handle = 0; context.FindQueuePair(shard, handle) != nullptr;) ++handle;
    return handle;
  });
}

}  // namespace

AppQp::AppQp(dataplane::ShardClient& client, const dataplane::QueuePairConfig& config)
    : client_(client) {
  auto created = Take(client.Do(dataplane::CreateQueuePair{config, FreeHandle(client)}));
  qp_ = created.queue_pair;
  layout_ = dataplane::LayOutQueues(config);
  memory_ = Mapping(created.memory.get(), layout_.memory_size);
  doorbells_ = Mapping(client.doorbell_fd(), client.doorbell_bytes());
}

roci_abi_queue* AppQp::send_queue() const {
  return reinterpret_cast<roci_abi_queue*>(memory_.data() + layout_.send_queue_offset);
}
roci_abi_queue* AppQp::recv_queue() const {
  return reinterpret_cast<roci_abi_queue*>(memory_.data() + layout_.recv_queue_offset);
}
std::byte* AppQp::SendSlot(uint32_t index) const {
  return memory_.data() + layout_.send_slots_offset +
         size_t{index & (layout_.send_capacity - 1)} * layout_.send_stride;
}

void AppQp::Post(const SendRequest& request) {
  roci_abi_send_wqe head = request.head;
  std::byte* slot = SendSlot(send_producer_++);
  if ((head.flags & ROCI_ABI_SEND_INLINE) != 0) {
    head.inline_length = static_cast<uint32_t>(request.inline_data.size());
    Store(slot + sizeof(head), request.inline_data);
  } else {
    head.num_sge = static_cast<uint8_t>(request.sges.size());
    Store(slot + sizeof(head), request.sges);
  }
  std::memcpy(slot, &head, sizeof(head));
}

void AppQp::PostRecv(uint64_t wr_id, const std::vector<roci_abi_sge>& sges) {
  std::byte* slot = memory_.data() + layout_.recv_slots_offset +
                    size_t{recv_producer_++ & (layout_.recv_capacity - 1)} * layout_.recv_stride;
  const roci_abi_recv_wqe head{wr_id, static_cast<uint32_t>(sges.size()), 0};
  std::memcpy(slot, &head, sizeof(head));
  Store(slot + sizeof(head), sges);
}

void AppQp::Publish(roci_abi_queue* queue, uint32_t producer) {
  std::atomic_ref(queue->producer).exchange(producer, std::memory_order_seq_cst);
  if (std::atomic_ref(queue->armed).load(std::memory_order_relaxed) != 0) RingDoorbell();
}

void AppQp::RingDoorbell() {
  auto* page = reinterpret_cast<roci_abi_doorbells*>(doorbells_.data());
  const uint32_t handle = qp_->handle();
  const auto set = [](uint64_t& word, uint32_t bit) {
    std::atomic_ref(word).fetch_or(uint64_t{1} << bit, std::memory_order_seq_cst);
  };
  set(page->level0[handle >> 6], handle & 63);
  set(page->level1[handle >> 12], (handle >> 6) & 63);
  set(page->level2, handle >> 12);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (std::atomic_ref(page->sleeping).load(std::memory_order_relaxed) != 0) {
    const uint64_t one = 1;
    Check(write(client_.wake_fd(), &one, sizeof(one)) == sizeof(one), "wake");
  }
}

void AppQp::Ring() {
  if (recv_producer_ != recv_queue()->producer) Publish(recv_queue(), recv_producer_);
  if (send_producer_ != send_queue()->producer) Publish(send_queue(), send_producer_);
}

Node::Node(dataplane::Dataplane& dataplane, dataplane::Wire* wire, const Config& config) {
  int error = 0;
  app_ = memory::AppMemory::Open(getpid(), -1, memory::Reach::kProcess, &error);
  Check(app_ != nullptr, "own process");
  if (config.device_of == nullptr) {
    OpenDevice(dataplane, wire, config);
  } else {
    used_device_ = config.device_of->used_device_;
    gid_ = config.device_of->gid_;
  }
  int pipe_ends[2];
  Check(pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC) == 0, "pipe");
  async_read_ = dataplane::Fd(pipe_ends[0]);
  dataplane::ShardClientConfig session;
  session.app = app_;
  if (config.user != nullptr) session.copy_use = config.user;
  session.max_queue_pairs = 32768;  // leaves doorbells for shared receive queues
  session.async_socket =
      std::make_shared<dataplane::EventSocket>(dataplane::Fd(pipe_ends[1]), nullptr);
  client_ = Take(dataplane::ShardClient::Create(*used_device_, config.lcore, std::move(session)));
  RegisterMemory(config);
}

void Node::OpenDevice(dataplane::Dataplane& dataplane, dataplane::Wire* wire,
                      const Config& config) {
  const auto number = static_cast<uint8_t>(config.number);
  dataplane::DeviceClientConfig device;
  device.name = "test" + std::to_string(config.number);
  device.wire = config.devargs.empty() ? wire : nullptr;
  device.devargs = config.devargs;
  if (config.devargs.empty()) device.mac = roce::Mac{{0x02, 0, 0, 0, 0, number}};
  device_ = Take(dataplane::DeviceClient::Create(dataplane, device));
  used_device_ = device_.get();
  gid_ = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, number}});
}

void Node::RegisterMemory(const Config& config) {
  memory_bytes_ = config.memory_bytes;
  auto shared = Take(dataplane::SharedMemory::Create("test-memory", memory_bytes_));
  dataplane::Fd fd = shared.TakeFd();
  void* data = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  Check(data != MAP_FAILED, "memory");
  memory_ = static_cast<std::byte*>(data);
  memory::Translation translation;
  translation.va = translation.iova = va();
  translation.length = memory_bytes_;
  if (!config.process_vm) {
    int error = 0;
    auto mapping = memory::MappedFile::Map(fd.get(), 0, memory_bytes_, true, &error);
    Check(mapping != nullptr, "mapping");
    mapped_ = mapping->At(0);
    translation.extents.push_back({va(), memory_bytes_, mapping, 0});
  }
  const auto rights = static_cast<memory::Access>(kLocalAndRemote);
  const auto registered =
      client_->Do(dataplane::RegisterRegion{kPd, rights, std::move(translation)});
  key_ = registered.key;
  Check(registered.status == memory::MemoryStatus::kOk, "registration");
}

Node::~Node() {
  client_.reset();
  device_.reset();
  munmap(memory_, memory_bytes_);
}

roce::Path PathTo(Node& node, Node& peer, uint32_t flow) {
  roce::Path path;
  path.src_mac = node.device().mac();
  path.dst_mac = peer.device().mac();
  path.src_gid = node.gid();
  path.dst_gid = peer.gid();
  path.udp_src_port = static_cast<uint16_t>(0xC000 | (flow & 0x3FFF));
  return path;
}

namespace {

roce::ModifyResult Modify(Node& node, dataplane::QueuePair& qp,
                          const roce::QpAttributes& attributes, uint32_t mask,
                          const roce::Path* path = nullptr) {
  return node.client().Do(dataplane::ModifyQueuePair{qp, attributes, mask, path}).result;
}

// The attributes that a state requires, by QP type: of both ends, of responders, of requesters.
uint32_t MaskFor(roce::QpType type, roce::QpState state) {
  const bool answers = type == roce::QpType::kRc || type == roce::QpType::kXrcRecv;
  const bool asks = type == roce::QpType::kRc || type == roce::QpType::kXrcSend;
  if (state == roce::QpState::kInit) {
    return roce::kAttrPkeyIndex | roce::kAttrPort | roce::kAttrAccessFlags;
  }
  if (state == roce::QpState::kRtr) {
    return roce::kAttrAddressVector | roce::kAttrPathMtu | roce::kAttrDestQpn | roce::kAttrRqPsn |
           (answers ? roce::kAttrMaxDestRdAtomic | roce::kAttrMinRnrTimer : 0);
  }
  return roce::kAttrSqPsn | (answers || asks ? uint32_t{roce::kAttrTimeout} : 0) |
         (asks ? roce::kAttrRetryCount | roce::kAttrRnrRetry | roce::kAttrMaxRdAtomic : 0);
}

}  // namespace

roce::ModifyResult Connect(Node& node, AppQp& qp, Node& peer, roce::Qpn peer_qpn,
                           const ConnectOptions& options) {
  return Connect(node, qp.qp(), peer, peer_qpn, options);
}

roce::ModifyResult Connect(Node& node, dataplane::QueuePair& qp, Node& peer, roce::Qpn peer_qpn,
                           const ConnectOptions& options) {
  roce::QpAttributes attributes;
  attributes.port = 1;
  attributes.access_flags = kLocalAndRemote;
  attributes.path_mtu = options.mtu;
  attributes.rq_psn = roce::Psn(options.first_psn);
  attributes.sq_psn = roce::Psn(options.first_psn);
  attributes.dest_qpn = peer_qpn;
  attributes.timeout = options.timeout;
  attributes.retry_count = options.retry_count;
  attributes.rnr_retry = options.rnr_retry;
  attributes.min_rnr_timer = 1;
  attributes.max_rd_atomic = options.max_rd_atomic;
  attributes.max_dest_rd_atomic = options.max_rd_atomic;
  const roce::Path path = PathTo(node, peer, peer_qpn.value());
  auto result = roce::ModifyResult::kOk;
  for (const auto state : {roce::QpState::kInit, roce::QpState::kRtr, roce::QpState::kRts}) {
    attributes.state = state;
    result = Modify(node, qp, attributes, roce::kAttrState | MaskFor(qp.type(), state),
                    state == roce::QpState::kRtr ? &path : nullptr);
    if (result != roce::ModifyResult::kOk) break;
  }
  return result;
}

roce::ModifyResult ConnectUd(Node& node, AppQp& qp) {
  roce::QpAttributes attributes;
  attributes.port = 1;
  attributes.qkey = 0x1234;
  attributes.state = roce::QpState::kInit;
  auto result = Modify(node, qp.qp(), attributes,
                       roce::kAttrState | roce::kAttrPkeyIndex | roce::kAttrPort | roce::kAttrQkey);
  if (result != roce::ModifyResult::kOk) return result;
  attributes.state = roce::QpState::kRtr;
  result = Modify(node, qp.qp(), attributes, roce::kAttrState);
  if (result != roce::ModifyResult::kOk) return result;
  attributes.state = roce::QpState::kRts;
  return Modify(node, qp.qp(), attributes, roce::kAttrState | roce::kAttrSqPsn);
}

roce::ModifyResult MoveTo(Node& node, AppQp& qp, roce::QpState state) {
  roce::QpAttributes attributes;
  attributes.state = state;
  return Modify(node, qp.qp(), attributes, roce::kAttrState);
}

}  // namespace roci::testing
