// A limit of a resource, and shares taken from it. Not thread-safe: control thread only.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace roci::control {

class Quota {
 public:
  // `whole`: a quota of which this is a part, or null; outlives this. Amounts taken here are taken
  // there as well. The parts of a quota may add up to more than its limit.
  explicit Quota(uint64_t limit, Quota* whole = nullptr) : limit_(limit), whole_(whole) {}
  Quota(const Quota&) = delete;
  Quota& operator=(const Quota&) = delete;
  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_; }
  // The amount that can be taken now.
  uint64_t left() const {
    const uint64_t own = limit_ - std::min(limit_, used_);
    return whole_ == nullptr ? own : std::min(own, whole_->left());
  }

  // False, with nothing taken: fewer than `amount` are left.
  bool Take(uint64_t amount = 1) {
    if (used_ > limit_ || amount > limit_ - used_) return false;
    if (whole_ != nullptr && !whole_->Take(amount)) return false;
    used_ += amount;
    return true;
  }
  // Takes `amount` even beyond the limit, for resources that exist already.
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

// An amount taken from a quota. The destructor gives it back.
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
  uint64_t amount() const { return ok() ? amount_ : 0; }
  void Reset() {
    if (quota_ != nullptr) quota_->Give(amount_);
    quota_ = nullptr;
  }

 private:
  Quota* quota_ = nullptr;
  uint64_t amount_ = 0;
};

// The refusal where a quota of `objects` has nothing left. `key`: the limit's key in the
// configuration; empty: the limit is fixed, and the configuration changes the user's share only.
inline absl::Status LimitReached(absl::string_view objects, absl::string_view key = {}) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "limit of ", objects, " reached (", key, key.empty() ? "" : ", ", "limits.user_percent)"));
}

// Shares of two quotas that are taken and released together.
class PairShare {
 public:
  PairShare() = default;
  PairShare(QuotaShare first, QuotaShare second)
      : first_(std::move(first)), second_(std::move(second)) {}
  bool ok() const { return first_.ok() && second_.ok(); }
  const QuotaShare& first() const { return first_; }
  const QuotaShare& second() const { return second_; }

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

// Mappings of program memory, and their virtual addresses (bytes).
using AppShare = PairShare;

}  // namespace roci::control
