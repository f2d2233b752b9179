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
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/context_removal.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/pending_releases.h"
#include "dataplane/shard/shard_access.h"
#include "dataplane/shard/shard_client_inl.h"
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

absl::StatusOr<std::unique_ptr<ShardClient>> ShardClient::Create(DeviceClient& device,
                                                                 uint32_t lcore_index,
                                                                 ShardClientConfig config) {
  Lcore& lcore = ShardAccess::DeviceOf(device).LcoreOf(lcore_index);
  std::unique_ptr<ShardClient> client(new ShardClient(device, lcore, std::move(config)));
  if (absl::Status status = client->OpenDoorbells(); !status.ok()) return status;
  if (!lcore.StartToWatch()) {
    return absl::ResourceExhaustedError("no thread that watches the lcore can be started");
  }
  lcore.AttachContext(*client->context_, lcore.PrepareContext(*client->context_, 0));
  client->attached_ = true;
  return client;
}

ShardClient::ShardClient(DeviceClient& device, Lcore& lcore, ShardClientConfig config)
    : device_(device),
      sharded_device_(ShardAccess::DeviceOf(device)),
      lcore_(&lcore),
      releases_(lcore.releases()),
      app_(std::move(config.app)),
      max_queue_pairs_(std::min<uint32_t>(config.max_queue_pairs, ROCI_ABI_MAX_QP_HANDLES)) {
  auto keys = std::make_shared<memory::KeyTable>(app_.get(), config.max_keys, config.key_seed);
  const std::shared_ptr<const void> user = config.copy_use;
  auto copies = std::make_shared<AppCopies>(std::move(config.copy_use));
  copies->Share(app_);
  copies->Keep(keys);
  context_ = std::make_unique<VerbsContext>(std::move(config.async_socket), std::move(keys),
                                            std::move(copies), config.max_address_handles,
                                            std::move(config.retired_rings));
  context_->SetUser(user);
  context_->SetProgram(config.program);
  context_->UseEvents(*lcore.view().events);
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
  for (const auto& qp : context_->retired_queue_pairs()) device_.FreeQpn(*qp);
  context_->FreeRetired();
  if (stage_ != Stage::kFreeing) return;
  for (const auto& srq : context_->shared_queues()) {
    if (srq->domain() != nullptr) sharded_device_.srqns().Free(roce::Qpn(srq->number()));
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

bool ShardClient::MoveTo(uint32_t lcore_index) {
  Lcore& lcore = sharded_device_.LcoreOf(lcore_index);
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
  context_->UseEvents(*lcore.view().events);
  lcore_->AttachContext(*context_, share);
  ForEachCompletionQueue([&](const OnShard& shard, CompletionQueue& cq) {
    lcore_->worker(shard).events().Adopt(shard, cq);
  });
  return true;
}

void ShardClient::ShareKeysOf(ShardClient& other) {
  const bool moved = lcore_ == other.lcore_ || MoveTo(other.lcore_index());
  assert(moved);
  static_cast<void>(moved);
  context_->ShareKeysOf(*other.context_);
  context_->copies().Share(app_);
}

}  // namespace roci::dataplane
