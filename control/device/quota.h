// A bound on how many of something there may be. Not thread-safe: control thread only.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"

namespace roci::control {

class Quota {
 public:
  // `whole`, if any, outlives this and is what this is a part of: what is taken here is taken there
  // too. Parts of one whole may add up to more than it has.
  explicit Quota(uint64_t limit, Quota* whole = nullptr) : limit_(limit), whole_(whole) {}
  Quota(const Quota&) = delete;
  Quota& operator=(const Quota&) = delete;
  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_; }
  // How many could be taken now.
  uint64_t left() const {
    const uint64_t own = limit_ - std::min(limit_, used_);
    return whole_ == nullptr ? own : std::min(own, whole_->left());
  }

  // False, with nothing taken, if fewer than `amount` are left.
  bool Take(uint64_t amount = 1) {
    if (used_ > limit_ || amount > limit_ - used_) return false;
    if (whole_ != nullptr && !whole_->Take(amount)) return false;
    used_ += amount;
    return true;
  }
  // Also beyond the limit: what is there already, and is not to be refused any more.
  void Force(uint64_t amount) {
    if (whole_ != nullptr) whole_->Force(amount);
    used_ += amount;
  }
  void Give(uint64_t amount = 1) {
    assert(amount <= used_);
    used_ -= amount;
    if (whole_ != nullptr) whole_->Give(amount);
  }

 private:
  const uint64_t limit_;
  Quota* const whole_;
  uint64_t used_ = 0;
};

// What was taken from a quota; given back when this goes.
class QuotaShare {
 public:
  QuotaShare() = default;
  // Check ok() afterwards.
  QuotaShare(Quota& quota, uint64_t amount)
      : quota_(quota.Take(amount) ? &quota : nullptr), amount_(amount) {}
  QuotaShare(QuotaShare&& other) noexcept : quota_(other.quota_), amount_(other.amount_) {
    other.quota_ = nullptr;
  }
  QuotaShare& operator=(QuotaShare&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    quota_ = other.quota_;
    amount_ = other.amount_;
    other.quota_ = nullptr;
    return *this;
  }
  ~QuotaShare() { Reset(); }

  // Quota::Force.
  static QuotaShare Forced(Quota& quota, uint64_t amount) {
    quota.Force(amount);
    QuotaShare share;
    share.quota_ = &quota;
    share.amount_ = amount;
    return share;
  }

  bool ok() const { return quota_ != nullptr; }
  void Reset() {
    if (quota_ != nullptr) quota_->Give(amount_);
    quota_ = nullptr;
  }

 private:
  Quota* quota_ = nullptr;
  uint64_t amount_ = 0;
};

// Shares of two quotas that are taken and released together.
class PairShare {
 public:
  PairShare() = default;
  PairShare(QuotaShare first, QuotaShare second)
      : first_(std::move(first)), second_(std::move(second)) {}
  bool ok() const { return first_.ok() && second_.ok(); }

 private:
  QuotaShare first_;
  QuotaShare second_;
};

// Ring memory (bytes), and VMAs of the daemon.
class RingShare : public PairShare {
 public:
  using PairShare::PairShare;
  static absl::Status Refusal() {
    return absl::ResourceExhaustedError(
        "ring memory (limits.ring_memory_mib) or mappings (vm.max_map_count)");
  }
};

// Mappings of app memory, and their virtual addresses (bytes).
using AppShare = PairShare;

}  // namespace roci::control
