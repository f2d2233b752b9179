#include "dataplane/base/record_pool.h"

#include <algorithm>
#include <cassert>

namespace roci::dataplane {

void RecordPool::Add(RecordStorage storage) {
  Runs& runs = runs_[storage.size_class()];
  const size_t queue_pairs = runs.queue_pairs + 1;
  if (queue_pairs > std::min(runs.used.capacity(), runs.fresh.capacity())) {
    runs.used.reserve(2 * queue_pairs);
    runs.fresh.reserve(2 * queue_pairs);
  }
  ++runs.queue_pairs;
  runs.fresh.push_back(storage.Release());
}

RecordStorage RecordPool::Remove(uint32_t size_class) {
  Runs& runs = runs_[size_class];
  assert(runs.queue_pairs != 0);
  --runs.queue_pairs;
  std::vector<roce::SendRecord*>& from = runs.fresh.empty() ? runs.used : runs.fresh;
  assert(!from.empty());
  roce::SendRecord* records = from.back();
  from.pop_back();
  return RecordStorage(records, size_class);
}

// The lcore is idle, so any kKept runs may stay.
bool RecordPool::Trim(uint32_t budget) {
  for (uint32_t size_class = 0; size_class < runs_.size(); ++size_class) {
    Runs& runs = runs_[size_class];
    for (; runs.used.size() > kKept; --budget) {
      if (budget == 0) return true;
      roce::SendRecord* records = runs.used.back();
      runs.used.pop_back();
      RecordStorage::Forget(records, size_class);
      runs.fresh.push_back(records);
    }
  }
  return false;
}

uint32_t RecordPool::used() const {
  uint32_t count = 0;
  for (const Runs& runs : runs_) count += static_cast<uint32_t>(runs.used.size());
  return count;
}

}  // namespace roci::dataplane
