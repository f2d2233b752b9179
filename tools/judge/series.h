// Statistics of bounded size: a histogram of times, and bytes over time. Small while they are
// empty.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace roci::tools::judge {

// Four classes for each power of two: quantiles are right within 25%.
class TimeHistogram {
 public:
  void Add(int64_t ns) {
    const auto value = static_cast<uint64_t>(std::max<int64_t>(ns, 0));
    if (classes_.empty()) classes_.resize(kClasses);
    ++classes_[ClassOf(value)];
    least_ = count_ == 0 ? value : std::min(least_, value);
    most_ = std::max(most_, value);
    sum_ += value;
    ++count_;
  }
  uint64_t count() const { return count_; }
  uint64_t least_ns() const { return least_; }
  uint64_t most_ns() const { return most_; }
  uint64_t mean_ns() const { return count_ == 0 ? 0 : sum_ / count_; }
  // The upper end of the class that has the quantile.
  uint64_t QuantileNs(double share) const;

 private:
  static constexpr size_t kClasses = 256;
  static constexpr uint32_t kExact = 4;  // smaller values have classes of their own
  static uint32_t ClassOf(uint64_t value) {
    if (value < kExact) return static_cast<uint32_t>(value);
    const auto power = static_cast<uint32_t>(std::bit_width(value)) - 1;
    return power * 4 + static_cast<uint32_t>((value >> (power - 2)) & 3);
  }
  std::vector<uint32_t> classes_;
  uint64_t count_ = 0, sum_ = 0, least_ = 0, most_ = 0;
};

inline uint64_t TimeHistogram::QuantileNs(double share) const {
  const auto rank = static_cast<uint64_t>(share * static_cast<double>(count_));
  uint64_t seen = 0;
  for (uint32_t i = 0; i < classes_.size(); ++i) {
    seen += classes_[i];
    if (seen <= rank) continue;
    if (i < kExact) return i;
    const uint32_t power = i / 4;
    return std::min(most_, ((uint64_t{5} + i % 4) << (power - 2)) - 1);
  }
  return most_;
}

// Bytes in kBins equal intervals from the first time on. The interval doubles when the time is up.
class ByteSeries {
 public:
  static constexpr size_t kBins = 64;

  void Add(int64_t time_ns, uint64_t bytes) {
    if (bins_.empty()) {
      bins_.resize(kBins);
      start_ns_ = time_ns;
    }
    const auto after = static_cast<uint64_t>(std::max<int64_t>(time_ns - start_ns_, 0));
    while (after >> shift_ >= kBins) Widen();
    bins_[after >> shift_] += bytes;
    last_ = std::max(last_, static_cast<size_t>(after >> shift_));
  }
  int64_t start_ns() const { return start_ns_; }
  uint64_t interval_ns() const { return uint64_t{1} << shift_; }
  // Up to the last that something was added to.
  std::span<const uint64_t> bins() const {
    return std::span(bins_).first(bins_.empty() ? 0 : last_ + 1);
  }
  uint64_t total() const { return std::accumulate(bins_.begin(), bins_.end(), uint64_t{0}); }
  // Of the fullest interval.
  uint64_t most() const {
    return bins_.empty() ? 0 : *std::max_element(bins_.begin(), bins_.end());
  }

 private:
  void Widen() {
    for (size_t i = 0; i < kBins / 2; ++i) bins_[i] = bins_[2 * i] + bins_[2 * i + 1];
    std::fill(bins_.begin() + kBins / 2, bins_.end(), 0u);
    last_ /= 2;
    ++shift_;
  }
  uint32_t shift_ = 10;
  int64_t start_ns_ = 0;
  size_t last_ = 0;
  std::vector<uint64_t> bins_;
};

}  // namespace roci::tools::judge
