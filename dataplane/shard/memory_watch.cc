#include "dataplane/shard/memory_watch.h"

#include <algorithm>

namespace roci::dataplane {

void MemoryWatch::Add(const void* owner, std::shared_ptr<CopyUse> use) {
  if (use->is_trusted) return;
  const std::lock_guard guard(mutex_);
  blockers_.reserve(blockers_.size() + users_.size() + 1);
  users_.emplace_back(owner, std::move(use));
  count_.store(users_.size(), std::memory_order_relaxed);
}

void MemoryWatch::Remove(const void* owner) {
  const std::lock_guard guard(mutex_);
  std::erase_if(users_, [owner](const auto& user) { return user.first == owner; });
  count_.store(users_.size(), std::memory_order_relaxed);
}

std::optional<uint32_t> MemoryWatch::TakeBlocker() {
  const std::lock_guard guard(mutex_);
  if (blockers_.empty()) return std::nullopt;
  const uint32_t account = blockers_.back();
  blockers_.pop_back();
  return account;
}

// `in_use` may be gone since.
void MemoryWatch::NoteBlocked(const CopyUse* in_use) {
  const std::lock_guard guard(mutex_);
  const auto found = std::find_if(users_.begin(), users_.end(), [in_use](const auto& user) {
    return user.second.get() == in_use;
  });
  if (found == users_.end() || found->second->has_blocked()) return;
  found->second->SetBlocked();
  blockers_.push_back(found->second->account);
  blocked_.fetch_add(1, std::memory_order_release);
}

}  // namespace roci::dataplane
