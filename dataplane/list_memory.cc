#include "dataplane/list_memory.h"

#include <algorithm>

#include "dataplane/receive_entry.h"

namespace roci::dataplane {

absl::StatusOr<std::unique_ptr<SharedMemory>> ListMemory::Create(uint32_t max_runs) {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("roci-list", size_t{max_runs} * sizeof(roci_abi_sge));
  if (!memory.ok()) return memory.status();
  return std::make_unique<SharedMemory>(*std::move(memory));
}

void ListMemory::Add(uint32_t number, std::unique_ptr<SharedMemory> memory, uint32_t max_runs) {
  lists_[number] = {std::move(memory), max_runs};
  copy_.resize(std::max<size_t>(copy_.size(), max_runs));
}

std::unique_ptr<SharedMemory> ListMemory::Remove(uint32_t number) {
  const auto found = lists_.find(number);
  if (found == lists_.end()) return nullptr;
  std::unique_ptr<SharedMemory> memory = std::move(found->second.memory);
  lists_.erase(found);
  return memory;
}

memory::MemoryStatus ListMemory::Register(memory::KeyTable& keys, const roce::SendWqe& wqe,
                                          const memory::AccessContext& context) {
  const uint32_t number = wqe.address_handle;
  const auto found = lists_.find(number);
  if (found == lists_.end() || wqe.immediate >> 8 != number) return memory::MemoryStatus::kBadKey;
  const List& list = found->second;
  if (wqe.compare_add > list.max_runs) return memory::MemoryStatus::kInvalidArgument;
  const auto count = static_cast<size_t>(wqe.compare_add);
  for (size_t i = 0; i < count; ++i) {
    roci_abi_sge run;
    CopyOnce(run, list.memory->data() + i * sizeof(run));
    copy_[i] = {run.va, run.length, run.lkey};
  }
  return keys.RegisterList({.new_key = wqe.immediate,
                            .access = static_cast<memory::Access>(wqe.remote_qkey),
                            .iova = wqe.remote_va,
                            .runs = {copy_.data(), count}},
                           context);
}

}  // namespace roci::dataplane
