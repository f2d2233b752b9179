#include "dataplane/session.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dataplane/async_event.h"
#include "dataplane/device.h"
#include "dataplane/device_lane.h"
#include "dataplane/lcore.h"
#include "dataplane/worker.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

absl::StatusOr<std::unique_ptr<Session>> Session::Create(Device& device, Lcore& lcore,
                                                         SessionConfig config) {
  std::unique_ptr<Session> session(new Session(device, lcore, std::move(config)));
  if (absl::Status status = session->OpenDoorbells(); !status.ok()) return status;
  lcore.AttachSession(*session);
  session->attached_ = true;
  return session;
}

Session::Session(Device& device, Lcore& lcore, SessionConfig config)
    : device_(device),
      lcore_(lcore),
      async_pipe_(std::move(config.async_pipe)),
      keys_(config.app, config.max_keys),
      addresses_(config.max_address_handles),
      max_queue_pairs_(std::min<uint32_t>(config.max_queue_pairs, ROCI_ABI_MAX_QP_HANDLES)) {}

absl::Status Session::OpenDoorbells() {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("roci-doorbells", sizeof(roci_abi_doorbells));
  if (!memory.ok()) return memory.status();
  doorbell_memory_ = *std::move(memory);
  doorbells_ = Doorbells(reinterpret_cast<roci_abi_doorbells*>(doorbell_memory_.data()));
  wake_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return wake_.valid() ? absl::OkStatus() : absl::ErrnoToStatus(errno, "eventfd");
}

Session::~Session() {
  lcore_.Call([&] {
    for (auto& qp : queue_pairs_) lcore_.worker().RemoveQueuePair(*qp);
    for (auto& cq : completion_queues_) lcore_.worker().events().Unregister(*cq);
    handles_.clear();
  });
  for (auto& qp : queue_pairs_) device_.qpns().Free(qp->qpn());
  if (attached_) lcore_.DetachSession(*this);
}

absl::StatusOr<CreatedCompletionQueue> Session::CreateCompletionQueue(uint32_t entries,
                                                                      uint64_t user_handle,
                                                                      int channel) {
  CompletionEvents& events = lcore_.worker().events();
  auto cq = CompletionQueue::Create(*this, events, entries, user_handle, channel);
  if (!cq.ok()) return cq.status();
  lcore_.Call([&] { events.Register(); });
  CompletionQueue* created = cq->get();
  completion_queues_.push_back(*std::move(cq));
  return CreatedCompletionQueue{created, created->TakeFd()};
}

absl::StatusOr<Fd> Session::ResizeCompletionQueue(CompletionQueue& cq, uint32_t entries,
                                                  uint32_t consumer) {
  absl::StatusOr<SharedMemory> ring = CompletionQueue::CreateRing(entries);
  if (!ring.ok()) return ring.status();
  Fd fd = ring->TakeFd();
  const bool swapped =
      lcore_.Call([&] { return cq.SwapRing(*ring, std::bit_ceil(entries), consumer); });
  if (!swapped) return absl::InvalidArgumentError("completion queue: does not fit the new size");
  return fd;
}

absl::StatusOr<EventCounts> Session::DestroyCompletionQueue(CompletionQueue& cq) {
  if (cq.users() != 0) return absl::FailedPreconditionError("completion queue: in use");
  lcore_.Call([&] { lcore_.worker().events().Unregister(cq); });
  const EventCounts counts{cq.comp_events(), cq.async_events()};
  std::erase_if(completion_queues_, [&](const auto& owned) { return owned.get() == &cq; });
  return counts;
}

// Handles go round, so that a doorbell of an app that rings for a destroyed queue pair does not at
// once mean another one.
std::optional<uint32_t> Session::FreeHandle() {
  for (uint32_t step = 0; step < max_queue_pairs_; ++step) {
    const uint32_t handle = next_handle_;
    next_handle_ = next_handle_ + 1 == max_queue_pairs_ ? 0 : next_handle_ + 1;
    if (handle >= by_handle_.size()) by_handle_.resize(handle + 1);
    if (by_handle_[handle] == nullptr) return handle;
  }
  return std::nullopt;
}

absl::StatusOr<CreatedQueuePair> Session::CreateQueuePair(const QueuePairConfig& config) {
  const std::optional<uint32_t> handle = FreeHandle();
  if (!handle.has_value()) return absl::ResourceExhaustedError("queue pair: no handle left");
  const std::optional<roce::Qpn> qpn = device_.qpns().Allocate(lcore_.index());
  if (!qpn.has_value()) return absl::ResourceExhaustedError("queue pair: no number left");
  auto created = QueuePair::Create(*this, device_.lane(lcore_.index()), config, *qpn, *handle);
  if (!created.ok()) {
    device_.qpns().Free(*qpn);
    return created.status();
  }
  QueuePair* qp = created->get();
  qp->send_cq()->AddUser();
  qp->recv_cq()->AddUser();
  by_handle_[*handle] = qp;
  queue_pairs_.push_back(*std::move(created));
  qp->owner_index = static_cast<uint32_t>(queue_pairs_.size()) - 1;
  lcore_.Call([&] {
    if (handles_.size() <= *handle) handles_.resize(*handle + 1);
    handles_[*handle] = qp;
    lcore_.worker().AddQueuePair(*qp);
  });
  return CreatedQueuePair{qp, qp->TakeFd()};
}

EventCounts Session::DestroyQueuePair(QueuePair& qp) {
  const uint32_t handle = qp.handle();
  lcore_.Call([&] {
    handles_[handle] = nullptr;
    lcore_.worker().RemoveQueuePair(qp);
  });
  const EventCounts counts{0, qp.async_events()};
  qp.send_cq()->RemoveUser();
  qp.recv_cq()->RemoveUser();
  device_.qpns().Free(qp.qpn());
  by_handle_[handle] = nullptr;
  const uint32_t index = qp.owner_index;
  std::swap(queue_pairs_[index], queue_pairs_.back());
  queue_pairs_[index]->owner_index = index;
  queue_pairs_.pop_back();
  return counts;
}

roce::ModifyResult Session::ModifyQueuePair(QueuePair& qp, const roce::QpAttributes& attributes,
                                            uint32_t mask, const roce::Path* path,
                                            const roce::QpAttributeLimits& limits) {
  const roce::ModifyResult values = roce::CheckAttributeValues(attributes, mask, limits);
  if (values != roce::ModifyResult::kOk) return values;
  return lcore_.Call([&] {
    Worker& worker = lcore_.worker();
    const roce::ModifyResult result = qp.Modify(worker.RefreshTime(), attributes, mask, path);
    if (result == roce::ModifyResult::kOk) worker.Poke(qp);
    return result;
  });
}

void Session::SetPath(QueuePair& qp, const roce::Path& path) {
  lcore_.Call([&] { qp.SetPath(path); });
}

void Session::QueryQueuePair(QueuePair& qp, roce::QpAttributes& out) {
  lcore_.Call([&] { qp.core.Query(out); });
}

QueuePairInfo Session::InspectQueuePair(QueuePair& qp) {
  return lcore_.Call([&] { return qp.Inspect(); });
}

QueuePair* Session::queue_pair(uint32_t handle) {
  return handle < by_handle_.size() ? by_handle_[handle] : nullptr;
}

absl::StatusOr<uint32_t> Session::CreateAddressHandle(uint32_t pd, const roce::Path& path) {
  uint32_t handle = 0;
  const bool added = lcore_.Call([&] { return addresses_.Add(pd, path, &handle); });
  if (!added) return absl::ResourceExhaustedError("address handle: none left");
  return handle;
}

absl::Status Session::DestroyAddressHandle(uint32_t handle) {
  const bool removed = lcore_.Call([&] { return addresses_.Remove(handle); });
  return removed ? absl::OkStatus() : absl::NotFoundError("address handle");
}

bool Session::SendAsyncEvent(uint64_t element, uint32_t type) {
  // Programs with thousands of queue pairs that never look must still be told of faults: this one
  // event, which every queue pair may raise, leaves half of the pipe to the others.
  if (type == kEventCommunicationEstablished) {
    int waiting = 0;
    const int capacity = fcntl(async_pipe_.get(), F_GETPIPE_SZ);
    if (ioctl(async_pipe_.get(), FIONREAD, &waiting) == 0 && waiting > capacity / 2) return false;
  }
  const roci_abi_async_event event{element, type, 0};
  return write(async_pipe_.get(), &event, sizeof(event)) == sizeof(event);
}

}  // namespace roci::dataplane
