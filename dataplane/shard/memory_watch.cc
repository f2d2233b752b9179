#include "dataplane/shard/memory_watch.h"

#include <algorithm>

namespace roci::dataplane {

void MemoryWatch::Add(const void* owner, std::shared_ptr<CopyUse> use) {
  if (use->is_trusted) return;
  const std::lock_guard guard(mutex_);
  users_.emplace_back(owner, std::move(use));
  count_.store(users_.size(), std::memory_order_relaxed);
}

void MemoryWatch::Remove(const void* owner) {
  const std::lock_guard guard(mutex_);
  std::erase_if(users_, [owner](const auto& user) { return user.first == owner; });
  count_.store(users_.size(), std::memory_order_relaxed);
}

// `in_use` may be gone since.
void MemoryWatch::NoteBlocked(const CopyUse* in_use) {
  const std::lock_guard guard(mutex_);
  const auto found = std::find_if(users_.begin(), users_.end(), [in_use](const auto& user) {
    return user.second.get() == in_use;
  });
  if (found == users_.end() || found->second->has_blocked()) return;
  found->second->SetBlocked();
  last_account_.store(found->second->account, std::memory_order_relaxed);
  blocked_.fetch_add(1, std::memory_order_release);
}

}  // namespace roci::dataplane
