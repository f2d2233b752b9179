// Deferred release of what a running copy of a program's memory still uses when its region or its
// context is gone: mappings, keys, the copies themselves. The control thread frees these when the
// copy has ended, so that an lcore frees nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "memory/key_table.h"

namespace roci::dataplane {

class AppCopies;

// Control thread only.
class PendingReleases {
 public:
  // Objects that one call of Release frees.
  static constexpr size_t kMostInCall = 256;

  PendingReleases();
  // The lcores have stopped. What threads in copies still use stays in memory.
  ~PendingReleases();
  PendingReleases(const PendingReleases&) = delete;
  PendingReleases& operator=(const PendingReleases&) = delete;

  // Makes room for an Add by each of the clients, and for one by any. Throws std::bad_alloc.
  void MakeRoom();
  void AddClient();  // as MakeRoom()
  void RemoveClient() { --clients_; }

  // Do not allocate.
  // `mappings` are in use until copies->settled() has reached `settled`.
  void Add(const std::shared_ptr<AppCopies>& copies, uint64_t settled,
           memory::ReleasedMappings mappings);
  // No context has `copies` and `keys` any more.
  void Add(std::shared_ptr<AppCopies> copies, std::shared_ptr<memory::KeyTable> keys);

  // Frees what no copy uses any more, at most kMostInCall objects. Call it from time to time until
  // empty().
  void Release();
  bool empty() const { return pending_.empty(); }

 private:
  struct Pending {
    // Of the mappings.
    std::weak_ptr<AppCopies> user;
    uint64_t settled = 0;
    memory::ReleasedMappings mappings;
    // Or of a context.
    std::shared_ptr<AppCopies> copies;
    std::shared_ptr<memory::KeyTable> keys;
  };
  static bool IsUsed(const Pending& pending);
  static bool Release(Pending& pending, size_t& budget);
  Pending& Next();

  size_t clients_ = 0;
  std::list<Pending> spare_;
  std::list<Pending> pending_;
};

}  // namespace roci::dataplane
