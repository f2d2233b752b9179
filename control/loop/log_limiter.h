// Rate-limits log lines, so that a program or a peer that provokes a line repeatedly cannot fill a
// disk. Time is an argument.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "roce/work.h"

namespace roci::control {

// Admits kBurst lines of each kind per kPeriod and counts the others.
class LogLimiter {
 public:
  static constexpr uint32_t kBurst = 10;
  static constexpr roce::TimeNs kPeriod = 10'000'000'000;

  // Kinds are told apart by the address of their format, a string literal.
  struct Kind {
    const char* format;
    uint32_t type;   // passed through
    uint32_t level;  // passed through
  };
  struct Suppressed {
    Kind kind;
    uint64_t count;
  };

  // Whether a line of `kind` may be logged now.
  bool Admit(const Kind& kind, roce::TimeNs now) {
    Entry& entry = Find(kind, now);
    if (entry.admitted < kBurst) {
      ++entry.admitted;
      return true;
    }
    ++entry.suppressed;
    return false;
  }
  // The suppressed lines of one kind whose period is over. Call until it returns nothing, and
  // before Admit, which starts a new period.
  std::optional<Suppressed> TakeSuppressed(roce::TimeNs now) {
    for (Entry& entry : entries_) {
      if (entry.suppressed == 0 || now < entry.end) continue;
      const Suppressed out{entry.kind, entry.suppressed};
      entry = Entry();
      return out;
    }
    return std::nullopt;
  }
  // The time at which TakeSuppressed will return something; kNever: nothing is suppressed.
  roce::TimeNs Next() const {
    roce::TimeNs next = roce::kNever;
    for (const Entry& entry : entries_) {
      if (entry.suppressed != 0 && entry.end < next) next = entry.end;
    }
    return next;
  }

 private:
  struct Entry {
    Kind kind{};
    roce::TimeNs end = 0;
    uint32_t admitted = 0;
    uint64_t suppressed = 0;
  };

  // A new kind replaces the oldest, whose suppressed count is lost. There are more entries than
  // formats that programs and peers can provoke.
  Entry& Find(const Kind& kind, roce::TimeNs now) {
    Entry* oldest = &entries_[0];
    for (Entry& entry : entries_) {
      if (entry.kind.format == kind.format) {
        if (now >= entry.end) entry = {.kind = kind, .end = now + kPeriod};
        return entry;
      }
      if (entry.end < oldest->end) oldest = &entry;
    }
    *oldest = {.kind = kind, .end = now + kPeriod};
    return *oldest;
  }

  std::array<Entry, 64> entries_;
};

}  // namespace roci::control
