#include "dataplane/shard/pending_releases.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <iterator>
#include <utility>

#include "dataplane/qp/app_copies.h"

namespace roci::dataplane {

PendingReleases::PendingReleases() = default;

PendingReleases::~PendingReleases() {
  static std::list<Pending>& leaked = *new std::list<Pending>;  // leak checkers find it here
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto next = std::next(it);
    if (IsUsed(*it)) leaked.splice(leaked.end(), pending_, it);
    it = next;
  }
}

void PendingReleases::MakeRoom() {
  while (spare_.size() <= clients_) spare_.emplace_back();
}

void PendingReleases::AddClient() {
  ++clients_;
  try {
    MakeRoom();
  } catch (...) {
    --clients_;
    throw;
  }
}

PendingReleases::Pending& PendingReleases::Next() {
  assert(!spare_.empty());
  pending_.splice(pending_.end(), spare_, spare_.begin());
  return pending_.back();
}

void PendingReleases::Add(const std::shared_ptr<AppCopies>& copies, uint64_t settled,
                          memory::ReleasedMappings mappings) {
  Pending& pending = Next();
  pending.user = copies;
  pending.settled = settled;
  pending.mappings = std::move(mappings);
}

void PendingReleases::Add(std::shared_ptr<AppCopies> copies,
                          std::shared_ptr<memory::KeyTable> keys) {
  Pending& pending = Next();
  pending.copies = std::move(copies);
  pending.keys = std::move(keys);
}

bool PendingReleases::IsUsed(const Pending& pending) {
  if (pending.copies != nullptr) {
    if (pending.copies.use_count() > 1) return true;
    std::atomic_thread_fence(std::memory_order_acquire);  // behind what the last user did
    return false;
  }
  const std::shared_ptr<AppCopies> copies = pending.user.lock();
  return copies != nullptr && copies->settled() < pending.settled;
}

// True: all of it is free.
bool PendingReleases::Release(Pending& pending, size_t& budget) {
  const size_t mappings = std::min(budget, pending.mappings.size());
  budget -= mappings;
  pending.mappings.resize(pending.mappings.size() - mappings);
  if (!pending.mappings.empty()) return false;
  if (pending.keys == nullptr) return true;
  const bool has_more = pending.keys->FreeSome(static_cast<uint32_t>(budget));
  budget = 0;
  return !has_more;
}

void PendingReleases::Release() {
  size_t budget = kMostInCall;
  for (auto it = pending_.begin(); it != pending_.end() && budget != 0;) {
    const bool is_free = !IsUsed(*it) && Release(*it, budget);
    it = is_free ? pending_.erase(it) : std::next(it);
  }
}

}  // namespace roci::dataplane
