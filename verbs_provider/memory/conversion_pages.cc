#include "verbs_provider/memory/conversion_pages.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs_provider/memory/conversion_file.h"

namespace roci::provider {
namespace {

// Largest PROT_NONE mapping that counts as the guard below a thread's stack.
constexpr uint64_t kMaxGuardLength = 1U << 20;

PageRange RangeOf(const MapsLine& line) { return {line.begin, line.end}; }

int ProtectionOf(const MapsLine& line) {
  return (line.readable ? PROT_READ : 0) | (line.writable ? PROT_WRITE : 0);
}

// ---- Conversion

bool IsPrivateAnonymous(const MapsLine& line) {
  const bool has_usual_name = line.path[0] == '\0' || std::strcmp(line.path, "[heap]") == 0 ||
                              std::strncmp(line.path, "[anon:", 6) == 0;
  return !line.shared && line.inode == 0 && line.readable && !line.executable && has_usual_name;
}

// Whether `line` is a thread's stack, which begins above the PROT_NONE mapping `guard`. Stacks stay
// private, because pthread_join waits on a futex in them.
bool IsGuardBelow(const MapsLine& guard, const MapsLine& line) {
  return guard.end == line.begin && !guard.readable && !guard.writable && guard.inode == 0 &&
         guard.end - guard.begin <= kMaxGuardLength;
}

// Whether `pages` hold this thread's stack or its thread-local storage from errno to the thread
// descriptor. The thread uses these pages during a migration.
bool NeededByThisThread(const MapsLine& line, PageRange pages) {
  const auto stack = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  const auto thread = static_cast<uint64_t>(pthread_self());
  const auto storage = reinterpret_cast<uint64_t>(&errno);
  const PageRange local = {std::min(storage, thread) - kPageSize,
                           std::max(storage, thread) + kPageSize};
  return Overlap(RangeOf(line), {stack, stack + 1}) || Overlap(pages, local);
}

bool HoldsOurData(PageRange pages) {
  const auto begin = reinterpret_cast<uint64_t>(&g_conversion);
  const auto lock = reinterpret_cast<uint64_t>(&g_conversion_lock);
  return Overlap(pages, {begin, begin + sizeof g_conversion}) ||
         Overlap(pages, {lock, lock + sizeof g_conversion_lock});
}

bool IsRegistered(PageRange pages) {
  return std::any_of(g_conversion.registrations,
                     g_conversion.registrations + g_conversion.registration_count,
                     [&](const ConvertedRegistration& each) { return Overlap(each.pages, pages); });
}

// Whether a registration has file pages in `pages` that are no longer mapped at their original
// address, because the program has moved or unmapped them.
bool AnyRegisteredPageMoved(PageRange pages) {
  MapsReader reader(pages.begin);
  MapsLine line;
  while (reader.Next(&line) && line.begin < pages.end) {
    const bool in_place = IsConverted(line) && line.offset == line.begin;
    if (!in_place && IsRegistered(Intersect(RangeOf(line), pages))) return true;
  }
  return !reader.ok();
}

// Whether the file pages at `pages` are in use: by a registration whose memory the program has
// moved, or by memory that could not be made private again. All other file pages have been freed.
bool FilePagesInUse(PageRange pages) {
  if (AnyRegisteredPageMoved(pages)) return true;
  if (!g_conversion.restore_failed) return false;
  MapsReader reader = MapsReader::OfFiles();
  MapsLine line;
  while (reader.Next(&line)) {
    if (IsConverted(line) && line.offset != line.begin && Overlap(FilePagesOf(line), pages))
      return true;
  }
  return !reader.ok();
}

// An address to begin reading at, so that the reader also returns the mapping below `pages`.
uint64_t BelowFirst(PageRange pages) {
  MapsReader reader(pages.begin);
  MapsLine line;
  return reader.seeks() && reader.Next(&line) ? line.begin - 1 : 0;
}

// ---- Restoring private memory

// The result of one pass over the mappings.
struct Restored {
  uint64_t length = 0;
  bool ok = true;
};

// Makes the file's `pages` private again in the mappings below address `end` that `reader` returns.
Restored RestoreMappings(MapsReader& reader, PageRange pages, uint64_t end) {
  const MigrationFiles files = ConversionFiles();
  Restored out;
  MapsLine line;
  while (reader.Next(&line) && line.begin < end) {
    const PageRange part = Intersect(FilePagesOf(line), pages);
    if (!IsConverted(line) || IsEmpty(part)) continue;
    const uint64_t begin = line.begin + (part.begin - line.offset);
    const uint64_t length = part.end - part.begin;
    uint64_t done = begin;
    out.length += length;
    out.ok &=
        MigrateToPrivate(begin, begin + length, part.begin, ProtectionOf(line), files, &done) == 0;
  }
  out.ok &= reader.ok();
  return out;
}

// The first range of [from, end) that no registration covers; empty if there is none.
PageRange NextUncovered(uint64_t from, uint64_t end) {
  for (uint32_t i = 0; i < g_conversion.registration_count && from < end;) {
    const PageRange& pages = g_conversion.registrations[i].pages;
    if (pages.begin <= from && from < pages.end) {
      from = pages.end;
      i = 0;
    } else {
      ++i;
    }
  }
  for (uint32_t i = 0; i < g_conversion.registration_count; ++i) {
    const PageRange& pages = g_conversion.registrations[i].pages;
    if (pages.begin > from) end = std::min(end, pages.begin);
  }
  return {from, end};
}

}  // namespace

bool ConvertPages(PageRange pages) {
  if (FilePagesInUse(pages)) return false;
  const MigrationFiles files = ConversionFiles();
  bool any = false;
  MapsReader reader(BelowFirst(pages));
  MapsLine line;
  MapsLine below{};
  for (; reader.Next(&line) && line.begin < pages.end; below = line) {
    const PageRange part = Intersect(RangeOf(line), pages);
    if (IsEmpty(part) || !IsPrivateAnonymous(line) || IsGuardBelow(below, line) ||
        NeededByThisThread(line, part) || HoldsOurData(part) || part.end > kMigrationFileSize) {
      continue;
    }
    uint64_t done = part.begin;
    const int error = MigrateToFile(part.begin, part.end, ProtectionOf(line), files, &done);
    // The program has dropped privileges since CanConvertLocked() tried.
    if (error == EPERM) g_conversion.ability = ConvertAbility::kUnknown;
    any = any || done != part.begin;
  }
  return any;
}

// Reads all file mappings only if the program has moved or unmapped some of the memory.
void RestorePages(PageRange pages) {
  Restored in_place;
  MapsReader near(pages.begin);
  if (near.seeks()) in_place = RestoreMappings(near, pages, pages.end);
  Restored moved;
  if (in_place.length < pages.end - pages.begin) {
    MapsReader all = MapsReader::OfFiles();
    moved = RestoreMappings(all, pages, UINT64_MAX);
  }
  g_conversion.restore_failed |= !in_place.ok || !moved.ok;
  if (in_place.ok && moved.ok) DropFilePages(pages.begin, pages.end, ConversionFiles());
}

void RestoreUncoveredPages(PageRange pages) {
  for (uint64_t at = pages.begin; at < pages.end;) {
    const PageRange free = NextUncovered(at, pages.end);
    if (!IsEmpty(free)) RestorePages(free);
    at = free.end > at ? std::max(free.begin, free.end) : pages.end;
  }
}

}  // namespace roci::provider
