#include "tests/integration/walk_srq.h"

#include <sys/mman.h>

namespace roci::testing {
namespace {

constexpr size_t kBytes = size_t{WalkSrq::kSlots} * WalkEnd::kSlotBytes;

}  // namespace

WalkSrq::~WalkSrq() {
  if (memory != nullptr) munmap(memory, kBytes);
}

bool WalkSrq::AllocateMemory() {
  void* bytes = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return false;
  memory = static_cast<uint8_t*>(bytes);
  for (uint32_t slot = 0; slot < kSlots; ++slot) free_slots.push_back(slot);
  mr = ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  return mr != nullptr;
}

int WalkSrq::Post(uint64_t wr_id) {
  const uint32_t slot = free_slots.back();
  ibv_sge sge = {reinterpret_cast<uintptr_t>(memory) + size_t{slot} * WalkEnd::kSlotBytes,
                 WalkEnd::kSlotBytes, mr->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(srq, &wr, &bad);
  if (error != 0) return error;
  free_slots.pop_back();
  posted.emplace(wr_id, slot);
  return 0;
}

const uint8_t* WalkSrq::Take(uint64_t wr_id) {
  const auto found = posted.find(wr_id);
  if (found == posted.end()) return nullptr;
  const uint32_t slot = found->second;
  posted.erase(found);
  free_slots.insert(free_slots.begin(), slot);
  return memory + size_t{slot} * WalkEnd::kSlotBytes;
}

}  // namespace roci::testing
