// Finds users whose mapped memory makes an lcore sleep. A page fault of an lcore waits as long as a
// program removes pages of the file (fallocate(2), FALLOC_FL_PUNCH_HOLE), or until a page is read
// from swap.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/types/copy_use.h"
#include "roce/work.h"

namespace roci::dataplane {

// One per lcore.
class MemoryWatch {
 public:
  // Time between two calls of Look. The lcore is blocked if it made no progress since the last call
  // and its thread sleeps.
  static constexpr int kPeriodMs = 5;
  static constexpr int kIdlePeriodMs = 100;  // after a period without a round

  // ---- Control thread
  // `owner`: any object of the user, for Remove. Ignores users that may block lcores.
  void Add(const void* owner, std::shared_ptr<CopyUse> use);
  void Remove(const void* owner);
  // Returns the account of one user that has blocked the lcore, each user once. None: no more.
  std::optional<uint32_t> TakeBlocker();

  // ---- Watch thread
  bool has_users() const { return count_.load(std::memory_order_relaxed) != 0; }
  // `in_use`: the user whose memory the lcore accesses now, only compared with those of Add; null:
  // none. `round`: number of the lcore's round. `sleeps`: whether the thread that accesses the
  // memory sleeps in the kernel; called if the lcore has not gone on since the last call. A call
  // that comes too early does nothing.
  template <class Sleeps>
  void Look(uint64_t now_ns, const CopyUse* in_use, uint64_t round, Sleeps&& sleeps) {
    if (now_ns < last_look_ns_ + kPeriodMs * roce::kNsPerMs) return;
    last_look_ns_ = now_ns;
    const bool is_same = in_use == last_in_use_ && round == last_round_;
    last_in_use_ = in_use;
    last_round_ = round;
    if (in_use != nullptr && is_same && sleeps()) NoteBlocked(in_use);
  }

  // ---- Any thread
  // How many users have blocked the lcore.
  uint64_t blocked() const { return blocked_.load(std::memory_order_acquire); }

 private:
  void NoteBlocked(const CopyUse* in_use);

  std::mutex mutex_;  // for the next two
  std::vector<std::pair<const void*, std::shared_ptr<CopyUse>>> users_;
  std::vector<uint32_t> blockers_;  // accounts; has room for `users_`
  std::atomic<size_t> count_{0};
  uint64_t last_look_ns_ = 0;
  uint64_t last_round_ = ~uint64_t{0};
  const CopyUse* last_in_use_ = nullptr;
  std::atomic<uint64_t> blocked_{0};
};

}  // namespace roci::dataplane
