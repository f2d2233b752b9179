// Gate 2 for the lists that programs write when they register list regions. work_queue.h checks the
// requests that name the lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/types/list_room.h"
#include "memory/key_table.h"
#include "roce/work.h"
#include "verbs_provider/abi/list_mr.h"

namespace roci::dataplane {

// The list regions of one verbs context, by the index in their keys.
class ListMemory {
 public:
  // ---- Control thread
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(const ListRoom& room);
  // When the lcore uses none any more: frees at most `most` lists. False: none is left.
  bool FreeSome(size_t most) {
    for (; most != 0 && !lists_.empty(); --most) lists_.erase(lists_.begin());
    return !lists_.empty();
  }

  // ---- On the shard
  void Add(const OnShard&, uint32_t number, std::unique_ptr<SharedMemory> memory,
           const ListRoom& room);
  // Passes the memory to the caller, which frees it off the lcore.
  std::unique_ptr<SharedMemory> Remove(const OnShard&, uint32_t number);
  // Executes WorkOpcode::kRegisterList: copies the list, then registers the copy. kBadKey: no such
  // list; kInvalidArgument: the list is too long, or the signature's kind is unknown; otherwise as
  // KeyTable::RegisterList.
  memory::MemoryStatus Register(const OnShard&, memory::KeyTable& keys, const roce::SendWqe& wqe,
                                const memory::AccessContext& context);

 private:
  struct List {
    std::unique_ptr<SharedMemory> memory;
    ListRoom room;
  };
  void CopyRuns(const std::byte* from, size_t count, size_t to);

  std::unordered_map<uint32_t, List> lists_;
  std::vector<memory::ListRun> copy_;  // of the list being registered; as long as the longest list
};

}  // namespace roci::dataplane
