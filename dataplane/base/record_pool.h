// Storage for the work in flight of an lcore's queue pairs. Each brings its own and borrows while
// it has work in flight: what was given back last is lent next, still in the cache, and queue pairs
// that are idle hold none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/record_arena.h"
#include "roce/requester.h"

namespace roci::dataplane {

// One thread. As many runs of a class are in the pool or lent as queue pairs of that class brought,
// so that Borrow always has one.
class RecordPool {
 public:
  // Not on the hot path: storage of the pool grows.
  void Add(RecordStorage storage);
  // For a queue pair that goes and has given back what it borrowed: any one of the class.
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

  // Lets the kernel have the memory of up to `budget` runs that a burst of activity left behind. A
  // system call each. True if there are more.
  bool Trim(uint32_t budget);
  // Runs whose pages have been touched.
  uint32_t used() const;

 private:
  static constexpr size_t kKept = 64;  // runs of a class that Trim leaves alone
  struct Runs {
    std::vector<roce::SendRecord*> used;
    std::vector<roce::SendRecord*> fresh;  // no memory behind them
    uint32_t queue_pairs = 0;
  };
  std::array<Runs, RecordStorage::kClasses> runs_;
};

}  // namespace roci::dataplane
