// Storage for the work in flight of an lcore's queue pairs. Every queue pair adds a run to the
// pool, and borrows one while it has work in flight; idle queue pairs hold none. The run that was
// returned last is lent next, because it is still in the cache.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/record_arena.h"
#include "roce/requester.h"

namespace roci::dataplane {

// One thread. Of each class there are as many runs, in the pool or lent, as queue pairs, so Borrow
// always finds one.
class RecordPool {
 public:
  // Adds a queue pair's run. Not on the hot path: storage of the pool grows.
  void Add(RecordStorage storage);
  // Removes any run of the class, for a queue pair that is destroyed and has returned its own.
  RecordStorage Remove(uint32_t size_class);

  roce::SendRecord* Borrow(uint32_t size_class) {
    Runs& runs = runs_[size_class];
    std::vector<roce::SendRecord*>& from = runs.used.empty() ? runs.fresh : runs.used;
    roce::SendRecord* records = from.back();
    from.pop_back();
    return records;
  }
  void Return(uint32_t size_class, roce::SendRecord* records) {
    runs_[size_class].used.push_back(records);
  }

  // Frees the memory of up to `budget` unused runs, by one system call each. True: there are more.
  bool Trim(uint32_t budget);
  // Runs whose pages have been touched.
  uint32_t used() const;

 private:
  static constexpr size_t kKept = 64;  // runs of a class that Trim does not free
  struct Runs {
    std::vector<roce::SendRecord*> used;
    std::vector<roce::SendRecord*> fresh;  // without memory
    uint32_t queue_pairs = 0;
  };
  std::array<Runs, RecordStorage::kClasses> runs_;
};

}  // namespace roci::dataplane
