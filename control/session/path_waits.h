// The paths for which a session waits while it handles other requests
// (ROCI_ABI_FEATURE_PATH_WAITS), by the numbers that its program asks with. Control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "roce/work.h"

namespace roci::control {

// The user's quota of waits limits those under way (Device::FindPath). A result waits for a program
// that may never ask.
class PathWaits {
 public:
  // Results that are kept, the last ones. A program that asks about an older one gets a new wait.
  static constexpr size_t kMostResults = 16'384;

  struct Result {
    absl::Status status;      // OK: the path is known
    roce::TimeNs called = 0;  // as given to Begin()
  };

  // Returns a new number, not 0. `called`: the time of the program's first request. The caller sets
  // `*path` to the number of Device::FindPath.
  uint32_t Begin(roce::TimeNs called, uint64_t** path) {
    do {
      ++last_number_;
    } while (last_number_ == 0 || under_way_.contains(last_number_));
    Wait& wait = under_way_[last_number_];
    wait.called = called;
    *path = &wait.path;
    return last_number_;
  }
  bool IsUnderWay(uint32_t number) const { return under_way_.contains(number); }
  // Forgets a wait that has not begun.
  void Drop(uint32_t number) { under_way_.erase(number); }
  // The wait is over. No effect on an unknown number. Throws std::bad_alloc, without the result.
  void End(uint32_t number, const absl::Status& status) {
    const auto it = under_way_.find(number);
    if (it == under_way_.end()) return;
    const roce::TimeNs called = it->second.called;
    under_way_.erase(it);
    if (results_.size() == kMostResults) results_.erase(results_.begin());
    results_.insert({number, {status, called}});
  }
  // Returns a result once. Nothing: `number` is unknown.
  std::optional<Result> Take(uint32_t number) {
    const auto it = results_.find(number);
    if (it == results_.end()) return std::nullopt;
    Result result = std::move(it->second);
    results_.erase(it);
    return result;
  }
  // Ends any wait. Returns its path, for Device::CancelPath; 0: none is under way.
  uint64_t TakeAny() {
    if (under_way_.empty()) return 0;
    const uint64_t path = under_way_.begin()->second.path;
    under_way_.erase(under_way_.begin());
    return path;
  }
  size_t results() const { return results_.size(); }

 private:
  struct Wait {
    uint64_t path = 0;
    roce::TimeNs called = 0;
  };
  uint32_t last_number_ = 0;
  std::map<uint32_t, Wait> under_way_;
  std::map<uint32_t, Result> results_;
};

}  // namespace roci::control
