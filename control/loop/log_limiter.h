// Decides which lines of a log are said, so that an app or a peer that provokes one over and over
// cannot fill a disk. Time is an argument.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "roce/work.h"

namespace roci::control {

// Of each kind of line so many per period; the rest is counted.
class LogLimiter {
 public:
  static constexpr uint32_t kBurst = 10;
  static constexpr roce::TimeNs kPeriod = 10'000'000'000;

  // A kind of line is what it is printed with: a string that lives for ever, by its address.
  struct Kind {
    const char* format;
    uint32_t type;   // not looked at
    uint32_t level;  // not looked at
  };
  struct Suppressed {
    Kind kind;
    uint64_t count;
  };

  // Whether a line of `kind` may be said now.
  bool Admit(const Kind& kind, roce::TimeNs now) {
    Entry& entry = Find(kind, now);
    if (entry.said < kBurst) {
      ++entry.said;
      return true;
    }
    ++entry.suppressed;
    return false;
  }
  // What has been held back in a period that is over: to be asked for until there is nothing, and
  // before Admit, which begins a new period.
  std::optional<Suppressed> TakeSuppressed(roce::TimeNs now) {
    for (Entry& entry : entries_) {
      if (entry.suppressed == 0 || now < entry.end) continue;
      const Suppressed out{entry.kind, entry.suppressed};
      entry = Entry();
      return out;
    }
    return std::nullopt;
  }
  // When TakeSuppressed will have something; kNever.
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
    uint32_t said = 0;
    uint64_t suppressed = 0;
  };

  // The oldest kind makes room for a new one, and what was suppressed of it is forgotten: there are
  // more entries than formats that anybody can provoke.
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
