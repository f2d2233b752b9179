#include "dataplane/shard/shard_client.h"

#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "dataplane/base/clock.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shard_services.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/context_removal.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/pending_releases.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"
#include "dataplane/shard/xrc_targets.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

namespace {

// The most that queue pairs which are destroyed may take to send what was posted to them: this
// time, or this number of visits where an lcore without a processor has made fewer in it.
constexpr uint64_t kSendPostedNs = kNsPerMs;
constexpr uint32_t kSendPostedVisits = 16;

// Sleep between checks for the end of a copy, which takes some tens of microseconds.
constexpr timespec kCopyCheckPeriod{0, 20'000};

}  // namespace

bool ShardClient::IsStalled() const { return context_->copies().IsStalled(); }

bool ShardClient::HasUnfinishedCopies() const {
  return context_->copies().settled() < settled_at_end_;
}

uint32_t ShardClient::lcore_index() const { return lcore_->index(); }

void ShardClient::AwaitCopies(memory::ReleasedMappings mappings) {
  std::shared_ptr<AppCopies> user;
  uint64_t settled = 0;
  CallBetweenCopies([&](const OnShard& shard) {
    if (context_->copies().IsIdle(shard)) return;
    user = context_->shared_copies(shard);
    settled = user->settled();
  });
  if (user != nullptr && !mappings.empty()) {
    releases_.Add(user, settled + 1, std::move(mappings));
  }
}

// As Lcore::Call, but f runs when no copy of the context is pending, or when one takes long; see
// HasUnfinishedCopies().
template <class F>
auto ShardClient::CallBetweenCopies(F&& f) -> std::invoke_result_t<F&, const OnShard&> {
  using Result = std::invoke_result_t<F&, const OnShard&>;
  if constexpr (std::is_void_v<Result>) {
    const auto try_once = [&](const OnShard& shard) {
      const AppCopies& copies = context_->copies();
      if (!copies.IsIdle(shard) && !copies.IsStalled()) return false;
      if (!copies.IsIdle(shard)) settled_at_end_ = copies.settled() + 1;
      f(shard);
      return true;
    };
    if (lcore_->Call(try_once)) return;
    while (!lcore_->CallInRound(try_once)) nanosleep(&kCopyCheckPeriod, nullptr);
  } else {
    std::optional<Result> result;
    CallBetweenCopies([&](const OnShard& shard) { result = f(shard); });
    return *std::move(result);
  }
}

// Lets the queue pairs with handles in [first, end) send what was posted to them, in rounds of the
// lcore, so that other queue pairs are served in between.
void ShardClient::SendPosted(uint32_t first, uint32_t end) {
  const uint64_t deadline_ns = Clock::Monotonic() + kSendPostedNs;
  uint32_t visits = 0;
  const auto in_time = [&] {
    return Clock::Monotonic() < deadline_ns || visits < kSendPostedVisits;
  };
  uint32_t handle = first;
  const auto find = [&](const OnShard& shard) {
    return lcore_->worker(shard).FindPosted(shard, *context_, handle, end);
  };
  const auto send = [&](const OnShard& shard) {
    ++visits;
    return lcore_->worker(shard).SendPosted(shard, *context_, handle);
  };
  end = std::min(end, context_->handle_end());
  while ((handle = lcore_->Call(find)) < end && in_time()) {
    while (lcore_->CallInRound(send) && in_time()) {
    }
    ++handle;
  }
}

absl::StatusOr<std::unique_ptr<ShardClient>> ShardClient::Create(ShardedDevice& device,
                                                                 Lcore& lcore,
                                                                 ShardClientConfig config) {
  std::unique_ptr<ShardClient> client(new ShardClient(device, lcore, std::move(config)));
  if (absl::Status status = client->OpenDoorbells(); !status.ok()) return status;
  if (!lcore.StartToWatch()) {
    return absl::ResourceExhaustedError("no thread that watches the lcore can be started");
  }
  lcore.AttachContext(*client->context_, lcore.PrepareContext(*client->context_, 0));
  client->attached_ = true;
  return client;
}

ShardClient::ShardClient(ShardedDevice& device, Lcore& lcore, ShardClientConfig config)
    : device_(device),
      lcore_(&lcore),
      releases_(lcore.releases()),
      app_(std::move(config.app)),
      max_queue_pairs_(std::min<uint32_t>(config.max_queue_pairs, ROCI_ABI_MAX_QP_HANDLES)) {
  auto keys = std::make_shared<memory::KeyTable>(app_.get(), config.max_keys, config.key_seed);
  const std::shared_ptr<const void> user = config.copy_use;
  auto copies =
      std::make_shared<AppCopies>(lcore.services().collecting, std::move(config.copy_use));
  copies->Share(app_);
  copies->Keep(keys);
  context_ = std::make_unique<VerbsContext>(std::move(config.async_socket), std::move(keys),
                                            std::move(copies), config.max_address_handles,
                                            std::move(config.retired_rings));
  context_->SetUser(user);
  context_->UseEvents(*lcore.services().events);
  removal_ = std::make_unique<ContextRemoval>(*context_);
  releases_.AddClient();
}

absl::Status ShardClient::OpenDoorbells() {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("roci-doorbells", sizeof(roci_abi_doorbells));
  if (!memory.ok()) return memory.status();
  doorbell_memory_ = *std::move(memory);
  wake_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  context_->UseDoorbells(reinterpret_cast<roci_abi_doorbells*>(doorbell_memory_.data()),
                         wake_.get());
  return absl::OkStatus();
}

void ShardClient::ShowPaths(uint32_t paths) {
  auto* page = reinterpret_cast<roci_abi_doorbells*>(doorbell_memory_.data());
  std::atomic_ref(page->paths).store(paths, std::memory_order_release);
}

ShardClient::~ShardClient() {
  while (RemoveSome()) {
  }
  if (attached_) lcore_->DetachContext(*context_);
  // An lcore or a copier thread may still run a copy; it must not be the one that frees all this.
  if (removal_->was_last() && context_->copies_in_use()) {
    releases_.Add(context_->TakeCopies(), context_->TakeKeys());
  }
  releases_.RemoveClient();
}

// A loop iteration lies between two calls on the lcore.
bool ShardClient::RemoveSome() {
  const auto remove = [&](const OnShard& shard) { return removal_->RemoveSome(shard, *lcore_); };
  bool has_more = true;
  switch (stage_) {
    case Stage::kServing:
      if (context_->has_queue_pairs()) SendPosted(0, context_->handle_end());
      has_more = lcore_->Call(remove);
      break;
    case Stage::kRemoving:
      has_more = lcore_->CallInRound(remove);
      break;
    case Stage::kFreeing:
      if (context_->FreeSome(ContextRemoval::kMostInRow)) return true;
      return removal_->was_last() && !context_->copies_in_use() &&
             context_->FreeSomeKeys(PendingReleases::kMostInCall);
  }
  stage_ = has_more ? Stage::kRemoving : Stage::kFreeing;
  FreeRetired();
  return true;
}

void ShardClient::FreeRetired() {
  for (const auto& qp : context_->retired_queue_pairs()) device_.FreeQpn(qp->qpn());
  context_->FreeRetired();
  if (stage_ != Stage::kFreeing) return;
  for (const auto& srq : context_->shared_queues()) {
    if (srq->domain() != nullptr) device_.srqns().Free(roce::Qpn(srq->number()));
  }
}

// Runs f(shard, queue) for each completion queue, some in each loop iteration.
template <class F>
void ShardClient::ForEachCompletionQueue(F&& f) {
  const OwnedSet<CompletionQueue>& queues = context_->completion_queues();
  size_t next = 0;
  lcore_->CallInParts([&](const OnShard& shard) {
    const size_t end = std::min(queues.size(), next + ContextRemoval::kMostInRow);
    for (; next < end; ++next) f(shard, *queues[next]);
    return next < queues.size();
  });
}

bool ShardClient::MoveTo(Lcore& lcore) {
  if (context_->has_queue_pairs() || !context_->shared_queues().empty() ||
      context_->copies().IsShared() || !lcore.StartToWatch()) {
    return false;
  }
  TurnShare& share = lcore.PrepareContext(*context_, context_->completion_queues().size());
  // Nothing throws from here on.
  ForEachCompletionQueue([&](const OnShard& shard, CompletionQueue& cq) {
    lcore_->worker(shard).events().Unregister(shard, cq);
  });
  lcore_->DetachContext(*context_);
  lcore_ = &lcore;
  context_->copies().MoveTo(lcore.services().collecting);
  context_->UseEvents(*lcore.services().events);
  lcore_->AttachContext(*context_, share);
  ForEachCompletionQueue([&](const OnShard& shard, CompletionQueue& cq) {
    lcore_->worker(shard).events().Adopt(shard, cq);
  });
  return true;
}

void ShardClient::ShareKeysOf(ShardClient& other) {
  const bool moved = lcore_ == other.lcore_ || MoveTo(*other.lcore_);
  assert(moved);
  static_cast<void>(moved);
  context_->ShareKeysOf(*other.context_);
  context_->copies().Share(app_);
}

absl::StatusOr<CreatedCompletionQueue> ShardClient::Do(const CreateCompletionQueue& command) {
  CompletionEvents& events = *lcore_->services().events;
  context_->completion_queues().MakeRoom();
  auto cq = CompletionQueue::Create(*context_, events, command.entries, command.user_handle,
                                    command.channel);
  if (!cq.ok()) return cq.status();
  if (command.ignores_overrun) (*cq)->IgnoreOverrun();
  lcore_->Call([&](const OnShard& shard) { events.Register(shard); });
  CompletionQueue& created = context_->completion_queues().Add(*std::move(cq));
  return CreatedCompletionQueue{&created, created.TakeFd()};
}

absl::StatusOr<CompletionQueueMove> ShardClient::Do(const ResizeCompletionQueue& command) {
  absl::StatusOr<SharedMemory> ring =
      CompletionQueue::CreateRing(command.entries, context_->retired_rings());
  if (!ring.ok()) return ring.status();
  Fd fd = ring->TakeFd();
  // Entries posted before the request count, so the lcore runs a whole round first.
  const uint32_t capacity = CompletionCapacity(command.entries);
  if (capacity < command.completion_queue.capacity()) lcore_->FinishRound();
  return CompletionQueueMove{.ring = *std::move(ring),
                             .fd = std::move(fd),
                             .capacity = capacity,
                             .consumer = command.consumer,
                             .copied = 0,
                             .visible = 0};
}

// The last part comes: no more entries than the old ring has can come meanwhile.
absl::StatusOr<bool> ShardClient::Do(const ContinueMove& command) {
  CompletionQueue& cq = command.completion_queue;
  CompletionQueueMove& move = command.move;
  if (move.copied < move.visible) {
    cq.CopyEntries(move, ContinueMove::kMostInPart);
    return true;
  }
  switch (CallBetweenCopies([&](const OnShard& shard) { return cq.SwapRing(shard, move); })) {
    case CompletionQueue::MoveResult::kMoved:
      return false;
    case CompletionQueue::MoveResult::kCopyFirst:
      return true;
    case CompletionQueue::MoveResult::kDoesNotFit:
      break;
  }
  return absl::InvalidArgumentError("completion queue: does not fit the new size");
}

CompletionQueueInfo ShardClient::Do(const InspectCompletionQueue& command) {
  const CompletionQueue& cq = command.completion_queue;
  return {.capacity = cq.capacity(),
          .entries_offset = CompletionQueue::kEntriesOffset,
          .memory_size = cq.memory_size(),
          .users = cq.users(),
          .comp_events = cq.comp_events(),
          .async_events = cq.async_events(),
          .overflowed = cq.overflowed()};
}

void ShardClient::Do(const ModerateCompletionQueue& command) {
  lcore_->Call([&](const OnShard& shard) {
    lcore_->worker(shard).events().Moderate(shard, command.completion_queue, command.moderation,
                                            Clock::Monotonic());
  });
}

absl::StatusOr<EventCounts> ShardClient::Do(const DestroyCompletionQueue& command) {
  CompletionQueue& cq = command.completion_queue;
  if (cq.users() != 0) return absl::FailedPreconditionError("completion queue: in use");
  CallBetweenCopies(
      [&](const OnShard& shard) { lcore_->worker(shard).events().Unregister(shard, cq); });
  const EventCounts counts{cq.comp_events(), cq.async_events()};
  context_->completion_queues().Take(cq);
  return counts;
}

// Makes all allocations before changes that would have to be undone.
absl::StatusOr<CreatedQueuePair> ShardClient::Do(const CreateQueuePair& command) {
  assert(command.handle < max_queue_pairs_);
  const std::optional<roce::Qpn> qpn = device_.qpns().Allocate(lcore_->index());
  if (!qpn.has_value()) return absl::ResourceExhaustedError("queue pair: no number left");
  absl::Cleanup free_qpn = [&] { device_.qpns().Free(*qpn); };
  auto created =
      QueuePair::Create(lcore_->services(), context_.get(), device_.lane(lcore_->index()),
                        command.config, *qpn, command.handle);
  if (!created.ok()) return created.status();
  QueuePair* qp = created->get();
  lcore_->Call([&](const OnShard& shard) {
    context_->MakeRoomFor(shard, command.handle);
    lcore_->worker(shard).AddQueuePair(*qp);
    context_->AddQueuePair(shard, *std::move(created));
  });
  std::move(free_qpn).Cancel();
  if (qp->send_cq() != nullptr) qp->send_cq()->AddUser();
  if (qp->recv_cq() != nullptr) qp->recv_cq()->AddUser();
  if (qp->srq() != nullptr) qp->srq()->AddUser();
  return CreatedQueuePair{qp, qp->qpn(), qp->TakeFd()};
}

EventCounts ShardClient::Do(const DestroyQueuePair& command) {
  QueuePair& qp = command.qp;
  SendPosted(qp.handle(), qp.handle() + 1);
  // Freed by this thread, not by the lcore.
  const uint32_t qpn = qp.qpn().value();
  uint32_t windows = DestroyQueuePair::kWindowsInRow;
  bool are_windows_released = false;
  const std::unique_ptr<QueuePair> owned = CallBetweenCopies([&](const OnShard& shard) {
    qp.GiveBackReceive(shard);
    lcore_->worker(shard).RemoveQueuePair(qp);
    are_windows_released = context_->keys(shard).ReleaseWindowsOf(qpn, &windows);
    return context_->RemoveQueuePair(shard, qp.handle());
  });
  uint32_t slot = memory::KeyTable::kFirstSlot;
  if (!are_windows_released) {
    lcore_->CallInParts([&](const OnShard& shard) {
      slot = context_->keys(shard).ReleaseWindowsIn(qpn, slot, DestroyQueuePair::kWindowsInRow);
      return slot != 0;
    });
  }
  const EventCounts counts{0, qp.async_events()};
  if (qp.send_cq() != nullptr) qp.send_cq()->RemoveUser();
  if (qp.recv_cq() != nullptr) qp.recv_cq()->RemoveUser();
  if (qp.srq() != nullptr) qp.srq()->RemoveUser();
  device_.FreeQpn(qp.qpn());
  return counts;
}

absl::StatusOr<CreatedList> ShardClient::Do(const CreateList& command) {
  const ListRoom& room = command.room;
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory = ListMemory::Create(room);
  if (!memory.ok()) return memory.status();
  CreatedList created{0, (*memory)->TakeFd()};
  const memory::MemoryStatus status = lcore_->Call([&](const OnShard& shard) {
    memory::KeyTable& keys = context_->keys(shard);
    const memory::MemoryStatus allocated =
        room.has_signature ? keys.AllocateIntegrity(command.pd, room.max_runs,
                                                    room.max_protection_runs, &created.key)
                           : keys.AllocateList(command.pd, room.max_runs, &created.key);
    if (allocated != memory::MemoryStatus::kOk) return allocated;
    const uint32_t list = ListMemory::NumberOf(created.key);
    absl::Cleanup free_list = [&] { keys.FreeList(list); };
    context_->lists(shard).Add(shard, list, *std::move(memory), room);
    std::move(free_list).Cancel();
    return allocated;
  });
  if (status != memory::MemoryStatus::kOk) return absl::ResourceExhaustedError("list region: key");
  return created;
}

void ShardClient::Do(const DestroyList& command) {
  // Unmapped by this thread, not by the lcore.
  const std::unique_ptr<SharedMemory> memory = lcore_->Call([&](const OnShard& shard) {
    context_->keys(shard).FreeList(command.number);
    return context_->lists(shard).Remove(shard, command.number);
  });
  AwaitCopies({});
}

absl::StatusOr<CreatedSharedReceiveQueue> ShardClient::Do(const CreateSharedReceiveQueue& command) {
  const SharedReceiveQueueConfig& config = command.config;
  // Doorbells of tag queues use the handles from the upper end.
  if (config.tags.max_tags != 0 && command.handle > last_srq_handle()) {
    return absl::ResourceExhaustedError("shared receive queue: no doorbell left");
  }
  roce::Qpn number;
  if (config.domain != nullptr) {
    const std::optional<roce::Qpn> free = device_.srqns().Allocate(0);
    if (!free.has_value()) return absl::ResourceExhaustedError("shared receive queue: no number");
    number = *free;
  }
  absl::Cleanup free_number = [&] {
    if (config.domain != nullptr) device_.srqns().Free(number);
  };
  context_->shared_queues().MakeRoom();
  auto created = SharedReceiveQueue::Create(*context_, config, command.handle, number.value());
  if (!created.ok()) return created.status();
  SharedReceiveQueue* srq = created->get();
  if (srq->tags() != nullptr) {
    lcore_->Call([&](const OnShard& shard) {
      context_->AddTagQueue(shard, TagDoorbell(command.handle), *srq);
    });
  }
  if (config.domain != nullptr)
    lcore_->Call([&](const OnShard& shard) { config.domain->AddQueue(shard, *srq); });
  std::move(free_number).Cancel();
  context_->shared_queues().Add(*std::move(created));
  if (srq->cq() != nullptr) srq->cq()->AddUser();
  CreatedSharedReceiveQueue answer{srq, srq->number(), srq->layout(), srq->TakeFd(), {}, {}};
  if (TagQueue* tags = srq->tags(); tags != nullptr) {
    answer.tag_layout = tags->layout();
    answer.tag_memory = tags->TakeFd();
  }
  return answer;
}

absl::StatusOr<SharedReceiveQueueGrowth> ShardClient::Do(const GrowSharedReceiveQueue& command) {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("roci-srq", command.layout.memory_size, context_->retired_rings());
  if (!memory.ok()) return memory.status();
  Fd fd = memory->TakeFd();
  return SharedReceiveQueueGrowth{
      .memory = *std::move(memory), .fd = std::move(fd), .layout = command.layout, .copied = 0};
}

absl::StatusOr<bool> ShardClient::Do(const ContinueGrowth& command) {
  SharedReceiveQueue& srq = command.srq;
  if (srq.CopySlots(command.growth, ContinueGrowth::kMostInPart)) return true;
  if (lcore_->Call([&](const OnShard& shard) { return srq.Grow(shard, command.growth); })) {
    return false;
  }
  return absl::InvalidArgumentError("shared receive queue: broken");
}

absl::StatusOr<EventCounts> ShardClient::Do(const DestroySharedReceiveQueue& command) {
  SharedReceiveQueue& srq = command.srq;
  if (srq.users() != 0) return absl::FailedPreconditionError("shared receive queue: in use");
  if (srq.domain() != nullptr) {
    size_t next = 0;
    const auto remove_some = [&](const OnShard& shard) {
      return srq.domain()->RemoveQueue(shard, srq, next);
    };
    while (CallBetweenCopies(remove_some)) lcore_->FinishRound();
    device_.srqns().Free(roce::Qpn(srq.number()));
  }
  if (srq.tags() != nullptr) {
    CallBetweenCopies(
        [&](const OnShard& shard) { context_->RemoveTagQueue(shard, TagDoorbell(srq.handle())); });
  }
  if (srq.cq() != nullptr) srq.cq()->RemoveUser();
  const EventCounts counts{0, srq.async_events()};
  context_->shared_queues().Take(srq);
  return counts;
}

ModifiedQueuePair ShardClient::Do(const ModifyQueuePair& command) {
  QueuePair& qp = command.qp;
  const auto modify = [&](const OnShard& shard) {
    Worker& worker = lcore_->worker(shard);
    const roce::ModifyResult result =
        qp.Modify(shard, worker.RefreshTime(), command.attributes, command.mask, command.path);
    const bool has_effects =
        result == roce::ModifyResult::kOk || result == roce::ModifyResult::kMustFlush;
    if (has_effects) worker.ScheduleVisit(qp);
    return ModifiedQueuePair{result, qp.core(shard).state()};
  };
  ModifiedQueuePair modified = CallBetweenCopies(modify);
  while (modified.result == roce::ModifyResult::kMustFlush) {
    lcore_->FinishRound();
    modified = CallBetweenCopies(modify);
  }
  return modified;
}

void ShardClient::Do(const SetPath& command) {
  lcore_->Call([&](const OnShard& shard) { command.qp.SetPath(shard, command.path); });
}

roce::QpAttributes ShardClient::Do(const QueryQueuePair& command) {
  return lcore_->Call([&](const OnShard& shard) { return command.qp.Query(shard); });
}

absl::StatusOr<uint32_t> ShardClient::Do(const CreateAddressHandle& command) {
  uint32_t handle = 0;
  const bool added = lcore_->Call([&](const OnShard& shard) {
    return context_->addresses(shard).Add(command.pd, command.path, &handle);
  });
  if (!added) return absl::ResourceExhaustedError("address handle: none left");
  return handle;
}

absl::Status ShardClient::Do(const DestroyAddressHandle& command) {
  const bool removed = lcore_->Call(
      [&](const OnShard& shard) { return context_->addresses(shard).Remove(command.handle); });
  return removed ? absl::OkStatus() : absl::NotFoundError("address handle");
}

uint32_t ShardClient::Do(const WithdrawAsyncEvents& command) {
  return lcore_->Call([&](const OnShard& shard) {
    return context_->async_events(shard).Withdraw(shard, command.element);
  });
}

void ShardClient::Do(const ReturnAsyncEvents& command) {
  lcore_->Call([&](const OnShard& shard) {
    AsyncEvents& async = context_->async_events(shard);
    CompletionEvents& events = lcore_->worker(shard).events();
    events.lost.Add(async.Return(shard, command.events, command.hold));
    if (async.waiting()) events.AwaitRoom(shard, async);
  });
}

void ShardClient::Do(const ReturnCompletionEvents& command) {
  lcore_->Call([&](const OnShard& shard) {
    for (CompletionQueue* cq : command.queues) lcore_->worker(shard).events().Return(shard, *cq);
  });
}

}  // namespace roci::dataplane
