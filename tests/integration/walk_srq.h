// One shared receive queue of the random walk, with the memory of its receives.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tests/integration/walk_end.h"

namespace roci::testing {

struct WalkSrq {
  static constexpr uint32_t kSlots = 32;

  WalkSrq() = default;
  ~WalkSrq();
  WalkSrq(const WalkSrq&) = delete;
  WalkSrq& operator=(const WalkSrq&) = delete;

  bool AllocateMemory();
  bool is_xrc() const { return xrcd != nullptr; }
  /// Posts a receive if a slot is free. 0 or an errno.
  int Post(uint64_t wr_id);
  /// Data of a completed receive, whose slot becomes free; null: unknown receive.
  const uint8_t* Take(uint64_t wr_id);

  WalkDevice* device = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;  // XRC
  ibv_xrcd* xrcd = nullptr;
  ibv_srq* srq = nullptr;
  uint32_t number = 0;
  ibv_mr* mr = nullptr;
  uint8_t* memory = nullptr;
  int users = 0;
  std::map<uint64_t, uint32_t> posted;  // slots by wr_id
  std::vector<uint32_t> free_slots;
};

}  // namespace roci::testing
