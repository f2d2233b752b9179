#include "dataplane/shard/commands.h"

#include <algorithm>
#include <cassert>

#include "dataplane/base/on_shard.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/pending_releases.h"
#include "dataplane/shard/shard_client.h"

namespace roci::dataplane {

using memory::MemoryStatus;

Registered ShardClient::Do(RegisterRegion command) {
  return lcore_->Call([&](const OnShard& shard) {
    Registered answer;
    answer.status = context_->keys(shard).Register(command.pd, command.access,
                                                   std::move(command.translation), &answer.key);
    return answer;
  });
}

Registered ShardClient::Do(const RegisterNull& command) {
  return lcore_->Call([&](const OnShard& shard) {
    Registered answer;
    answer.status = context_->keys(shard).RegisterNull(command.pd, &answer.key);
    return answer;
  });
}

Registered ShardClient::Do(const AllocateWindow& command) {
  return lcore_->Call([&](const OnShard& shard) {
    Registered answer;
    answer.status = context_->keys(shard).AllocateWindow(command.pd, command.type, &answer.key);
    return answer;
  });
}

MemoryStatus ShardClient::Do(const DeallocateWindow& command) {
  const MemoryStatus status = lcore_->Call(
      [&](const OnShard& shard) { return context_->keys(shard).DeallocateWindow(command.window); });
  if (status == MemoryStatus::kOk) AwaitCopies({});
  return status;
}

MemoryStatus ShardClient::Do(ChangeRegion command) {
  releases_.MakeRoom();
  memory::ReleasedMappings released;
  const MemoryStatus status = lcore_->Call([&](const OnShard& shard) {
    return context_->keys(shard).Reregister(command.key, std::move(command.change), &released);
  });
  if (status == MemoryStatus::kOk) AwaitCopies(std::move(released));
  return status;
}

MemoryStatus ShardClient::Do(const DeregisterRegion& command) {
  releases_.MakeRoom();
  memory::ReleasedMappings released;
  const MemoryStatus status = lcore_->Call([&](const OnShard& shard) {
    return context_->keys(shard).Deregister(command.key, &released);
  });
  if (status == MemoryStatus::kOk) AwaitCopies(std::move(released));
  return status;
}

void ShardClient::Do(const UnshareRange& command) {
  uint32_t slot = memory::KeyTable::kFirstSlot;
  while (slot != 0) {
    releases_.MakeRoom();
    memory::ReleasedMappings released;
    released.reserve(size_t{UnshareRange::kMostInRow} * ROCI_ABI_MAX_EXTENTS);
    const auto part = [&](const OnShard& shard) {
      slot = context_->keys(shard).UseProcessVm(command.va, command.length, &released, command.app,
                                                slot, UnshareRange::kMostInRow);
      return slot != 0;
    };
    if (slot == memory::KeyTable::kFirstSlot) {
      lcore_->Call(part);
    } else {
      lcore_->CallInRound(part);
    }
    if (!released.empty() || slot == 0) AwaitCopies(std::move(released));
  }
}

IntegrityAnswer ShardClient::Do(const TakeIntegrityError& command) {
  return lcore_->Call([&](const OnShard& shard) {
    IntegrityAnswer answer;
    answer.status = context_->keys(shard).TakeIntegrityError(command.number, &answer.error);
    return answer;
  });
}

void ShardClient::Do(const DropKeys& command) {
  assert(command.keys.size() <= DropKeys::kMost);
  releases_.MakeRoom();
  memory::ReleasedMappings released;
  size_t next = 0;
  lcore_->CallInParts([&](const OnShard& shard) {
    memory::KeyTable& keys = context_->keys(shard);
    uint32_t windows = DropKeys::kWindowsInRow;
    for (; next < command.keys.size(); ++next) {
      const uint32_t key = command.keys[next];
      switch (command.kind) {
        case DropKeys::Kind::kWindows:
          keys.DeallocateWindow(key);
          break;
        case DropKeys::Kind::kLists:
          keys.FreeList(key);
          break;
        case DropKeys::Kind::kRegions:
          if (keys.Drop(key, &released, &windows) == MemoryStatus::kInUse) return true;
          break;
      }
    }
    return false;
  });
  AwaitCopies(std::move(released));
}

std::vector<memory::RegionInfo> ShardClient::Do(const ListRegions&) {
  std::vector<memory::RegionInfo> regions;
  // The lcore does not allocate. Only this thread adds keys.
  regions.reserve(lcore_->Call([&](const OnShard& shard) { return context_->keys(shard).size(); }));
  uint32_t slot = memory::KeyTable::kFirstSlot;
  lcore_->CallInParts([&](const OnShard& shard) {
    const memory::KeyTable& keys = context_->keys(shard);
    slot = keys.ForEach([&](const memory::RegionInfo& info) { regions.push_back(info); }, slot,
                        ListRegions::kMostInRow);
    return slot != 0;
  });
  return regions;
}

void ShardClient::Do(const SetReceiveLimit& command) {
  lcore_->Call([&](const OnShard& shard) { command.srq.SetLimit(shard, command.limit); });
}

uint32_t ShardClient::Do(const QueryReceiveLimit& command) {
  return lcore_->Call([&](const OnShard& shard) { return command.srq.limit(shard); });
}

ReceiveQueueState ShardClient::Do(const InspectReceiveQueue& command) {
  SharedReceiveQueue& srq = command.srq;
  return lcore_->Call([&](const OnShard& shard) {
    return ReceiveQueueState{.posted = srq.posted(shard),
                             .taken = srq.taken(shard),
                             .limit = srq.limit(shard),
                             .broken = srq.broken(),
                             .tags = srq.tags() != nullptr ? srq.tags()->buffers(shard) : 0,
                             .users = srq.users(),
                             .async_events = srq.async_events()};
  });
}

std::vector<QueuePairInfo> ShardClient::Do(const InspectQueuePairs& command) {
  std::vector<QueuePairInfo> infos;
  infos.reserve(command.queue_pairs.size());
  const auto queue_pairs = command.queue_pairs;
  lcore_->CallInParts([&](const OnShard& shard) {
    const size_t end = std::min(queue_pairs.size(), infos.size() + InspectQueuePairs::kMostInRow);
    while (infos.size() < end) infos.push_back(queue_pairs[infos.size()]->Inspect(shard));
    return end < queue_pairs.size();
  });
  return infos;
}

bool ShardClient::Do(const RaiseEvent& command) {
  return lcore_->Call([&](const OnShard& shard) {
    return context_->SendAsyncEvent(shard, command.element, command.type);
  });
}

uint32_t ShardClient::Do(const RaiseQueuePairEvent& command) {
  return lcore_->Call([&](const OnShard& shard) {
    return command.qp.events(shard).SendNumber(shard, command.type);
  });
}

bool ShardClient::Do(const RaiseReceiveQueueEvent& command) {
  return lcore_->Call(
      [&](const OnShard& shard) { return command.srq.RaiseEvent(shard, command.type); });
}

bool ShardClient::Do(const BreakCompletionQueue& command) {
  return lcore_->Call([&](const OnShard& shard) {
    if (command.cq.overflowed()) return false;
    command.cq.Overflow(shard);
    return true;
  });
}

bool ShardClient::Do(const BreakReceiveQueue& command) {
  return lcore_->Call([&](const OnShard& shard) {
    if (command.srq.broken()) return false;
    command.srq.Fail(shard);
    return true;
  });
}

}  // namespace roci::dataplane
