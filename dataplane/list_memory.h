// The lists that programs write for the registration of their list regions: gate 2 for them, as
// work_queue.h is for the requests that name them.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/shared_memory.h"
#include "memory/key_table.h"
#include "roce/work.h"

namespace roci::dataplane {

// The list regions of one session, by the number in their keys.
class ListMemory {
 public:
  // ---- Control thread
  // Memory for `max_runs` runs.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(uint32_t max_runs);

  // ---- On the lcore
  void Add(uint32_t number, std::unique_ptr<SharedMemory> memory, uint32_t max_runs);
  // The memory goes to the caller, who frees it elsewhere.
  std::unique_ptr<SharedMemory> Remove(uint32_t number);
  // A request to register (WorkOpcode::kRegisterList): copies the list, then registers it. kBadKey:
  // no such list; kInvalidArgument: longer than it can be; otherwise as KeyTable::RegisterList.
  memory::MemoryStatus Register(memory::KeyTable& keys, const roce::SendWqe& wqe,
                                const memory::AccessContext& context);

 private:
  struct List {
    std::unique_ptr<SharedMemory> memory;
    uint32_t max_runs;
  };
  std::unordered_map<uint32_t, List> lists_;
  std::vector<memory::ListRun> copy_;  // of the list under way; as long as the longest
};

}  // namespace roci::dataplane
