// Commands about keys: regions, windows and lists.
#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "dataplane/base/on_shard.h"
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
    const uint32_t list = memory::IndexOfKey(created.key);
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

}  // namespace roci::dataplane
