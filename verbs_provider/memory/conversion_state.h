// State of this process's conversions (convert.h): which pages are converted for which
// registrations, and the descriptors.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>

#include "verbs_provider/memory/convert.h"
#include "verbs_provider/memory/page.h"

namespace roci::provider {

struct PageRange {
  uint64_t begin;
  uint64_t end;
};

inline PageRange Intersect(PageRange a, PageRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
inline bool IsEmpty(PageRange range) { return range.begin >= range.end; }
inline bool Overlap(PageRange a, PageRange b) { return !IsEmpty(Intersect(a, b)); }
inline PageRange PagesOf(uint64_t va, uint64_t length) {
  return {va & ~(kPageSize - 1), (va + length + kPageSize - 1) & ~(kPageSize - 1)};
}

/// A registration with at least one converted page.
struct ConvertedRegistration {
  uint64_t id;
  PageRange pages;
};

enum class ConvertAbility : uint8_t { kUnknown, kYes, kNo };

/// Under g_conversion_lock. No constructor, no destructor: usable before and after those of other
/// objects. These two are all the data that a conversion uses while it moves pages.
struct ConversionState {
  bool initialized;
  ConvertHook hook;
  int device;  // /dev/userfaultfd; -1: none
  int file;    // MigrationFiles::file; -1: none yet
  uint64_t file_device;
  uint64_t file_inode;
  ConvertAbility ability;
  bool restore_failed;  // some memory could not be made private again
  uint64_t last_id;
  uint32_t registration_count;
  ConvertedRegistration registrations[kMaxConversions];
};

extern pthread_mutex_t g_conversion_lock;
extern constinit ConversionState g_conversion;

}  // namespace roci::provider
