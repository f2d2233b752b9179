// Tracks which pages are converted for which registrations, and restores them when the last
// registration ends or the process forks. page_migration.cc moves the pages.
#include "verbs_provider/memory/convert.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/memory/maps_reader.h"
#include "verbs_provider/memory/page.h"
#include "verbs_provider/memory/page_migration.h"

namespace roci::provider {
namespace {

// Largest PROT_NONE mapping that counts as the guard below a thread's stack.
constexpr uint64_t kMaxGuardLength = 1U << 20;
// Most calls of the hook in one fork. Further ranges are merged into the last call's range.
constexpr uint32_t kMaxHookCalls = 64;

struct Range {
  uint64_t begin;
  uint64_t end;
};

// A registration with at least one converted page.
struct Registration {
  uint64_t id;
  Range pages;
};

enum class Ability : uint8_t { kUnknown, kYes, kNo };

// Under g_lock. No constructor, no destructor: usable before and after those of other objects.
struct State {
  bool initialized;
  ConvertHook hook;
  int device;  // /dev/userfaultfd; -1: none
  int file;    // MigrationFiles::file; -1: none yet
  uint64_t file_device;
  uint64_t file_inode;
  Ability ability;
  bool restore_failed;  // some memory could not be made private again
  uint64_t last_id;
  uint32_t registration_count;
  Registration registrations[kMaxConversions];
};

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
constinit State g_state = {.initialized = false,
                           .hook = {},
                           .device = -1,
                           .file = -1,
                           .file_device = 0,
                           .file_inode = 0,
                           .ability = Ability::kUnknown,
                           .restore_failed = false,
                           .last_id = 0,
                           .registration_count = 0,
                           .registrations = {}};

Range PagesOf(uint64_t va, uint64_t length) {
  return {va & ~(kPageSize - 1), (va + length + kPageSize - 1) & ~(kPageSize - 1)};
}

Range Intersect(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }
bool Empty(Range range) { return range.begin >= range.end; }
bool Overlap(Range a, Range b) { return !Empty(Intersect(a, b)); }
Range RangeOf(const MapsLine& line) { return {line.begin, line.end}; }

int ProtectionOf(const MapsLine& line) {
  return (line.readable ? PROT_READ : 0) | (line.writable ? PROT_WRITE : 0);
}

MigrationFiles Files() { return {g_state.device, g_state.file}; }

// ---- The memfd

// With a finite RLIMIT_FSIZE, SIGXFSZ would end the program.
bool FileSizeUnlimited() {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

// False if the program has closed the descriptor, as programs do that close all unknown
// descriptors.
bool FileIsOurs() {
  struct stat file;
  return g_state.file >= 0 && fstat(g_state.file, &file) == 0 &&
         file.st_dev == g_state.file_device && file.st_ino == g_state.file_inode;
}

bool MakeFile() {
  const int fd = memfd_create("roci-app-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return false;
  struct stat file;
  if (ftruncate(fd, static_cast<off_t>(kMigrationFileSize)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      fstat(fd, &file) != 0) {
    close(fd);
    return false;
  }
  g_state.file = fd;
  g_state.file_device = file.st_dev;
  g_state.file_inode = file.st_ino;
  return true;
}

bool HaveFile() { return FileSizeUnlimited() && (FileIsOurs() || MakeFile()); }

bool IsOurs(const MapsLine& line) {
  return g_state.file >= 0 && line.shared && line.inode == g_state.file_inode &&
         line.device == g_state.file_device;
}

// The file pages that a mapping of the file shows. A page's offset is the address at which it was
// converted; the program may have moved the mapping with mremap since.
Range FilePagesOf(const MapsLine& line) {
  return {line.offset, line.offset + (line.end - line.begin)};
}

// ---- Whether this process can convert memory

// Migrates scratch pages to the file and back and checks their content after each step.
bool TryOut() {
  constexpr uint64_t kLength = 4 * kPageSize;
  void* memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* bytes = static_cast<volatile char*>(memory);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  const MigrationFiles files = Files();
  bytes[1] = 1;
  bytes[2 * kPageSize] = 2;
  uint64_t done = 0;
  char seen = 0;
  const auto intact = [&] {
    return bytes[1] == 1 && bytes[2 * kPageSize] == 2 && bytes[kPageSize] == 0;
  };
  bool works =
      MigrateToFile(begin, begin + kLength, PROT_READ | PROT_WRITE, files, &done) == 0 &&
      intact() && pread(files.file, &seen, 1, static_cast<off_t>(begin + 2 * kPageSize)) == 1 &&
      seen == 2 &&
      MigrateToPrivate(begin, begin + kLength, begin, PROT_READ | PROT_WRITE, files, &done) == 0 &&
      intact();
  munmap(memory, kLength);
  DropFilePages(begin, begin + kLength, files);
  return works;
}

bool CanConvertLocked() {
  if (!HaveFile()) return false;
  if (g_state.ability == Ability::kUnknown) {
    // Opened even if userfaultfd(2) is permitted: the program may drop privileges later and must
    // still be able to restore converted memory.
    if (g_state.device < 0) g_state.device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    const bool can = sysconf(_SC_PAGESIZE) == static_cast<long>(kPageSize) && TryOut();
    g_state.ability = can ? Ability::kYes : Ability::kNo;
  }
  return g_state.ability == Ability::kYes;
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
bool NeededByThisThread(const MapsLine& line, Range pages) {
  const auto stack = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  const auto thread = static_cast<uint64_t>(pthread_self());
  const auto storage = reinterpret_cast<uint64_t>(&errno);
  const Range local = {std::min(storage, thread) - kPageSize,
                       std::max(storage, thread) + kPageSize};
  return Overlap(RangeOf(line), {stack, stack + 1}) || Overlap(pages, local);
}

bool HoldsOurData(Range pages) {
  const auto begin = reinterpret_cast<uint64_t>(&g_state);
  const auto lock = reinterpret_cast<uint64_t>(&g_lock);
  return Overlap(pages, {begin, begin + sizeof g_state}) ||
         Overlap(pages, {lock, lock + sizeof g_lock});
}

bool IsRegistered(Range pages) {
  return std::any_of(g_state.registrations, g_state.registrations + g_state.registration_count,
                     [&](const Registration& each) { return Overlap(each.pages, pages); });
}

// Whether a registration has file pages in `pages` that are no longer mapped at their original
// address, because the program has moved or unmapped them.
bool AnyRegisteredPageMoved(Range pages) {
  MapsReader reader(pages.begin);
  MapsLine line;
  while (reader.Next(&line) && line.begin < pages.end) {
    const bool in_place = IsOurs(line) && line.offset == line.begin;
    if (!in_place && IsRegistered(Intersect(RangeOf(line), pages))) return true;
  }
  return !reader.ok();
}

// Whether the file pages at `pages` are in use: by a registration whose memory the program has
// moved, or by memory that could not be made private again. All other file pages have been freed.
bool FilePagesInUse(Range pages) {
  if (AnyRegisteredPageMoved(pages)) return true;
  if (!g_state.restore_failed) return false;
  MapsReader reader = MapsReader::OfFiles();
  MapsLine line;
  while (reader.Next(&line)) {
    if (IsOurs(line) && line.offset != line.begin && Overlap(FilePagesOf(line), pages)) return true;
  }
  return !reader.ok();
}

// An address to begin reading at, so that the reader also returns the mapping below `pages`.
uint64_t BelowFirst(Range pages) {
  MapsReader reader(pages.begin);
  MapsLine line;
  return reader.seeks() && reader.Next(&line) ? line.begin - 1 : 0;
}

// Converts the convertible part of `pages`. True if it converted any page.
bool Convert(Range pages) {
  if (FilePagesInUse(pages)) return false;
  const MigrationFiles files = Files();
  bool any = false;
  MapsReader reader(BelowFirst(pages));
  MapsLine line;
  MapsLine below{};
  for (; reader.Next(&line) && line.begin < pages.end; below = line) {
    const Range part = Intersect(RangeOf(line), pages);
    if (Empty(part) || !IsPrivateAnonymous(line) || IsGuardBelow(below, line) ||
        NeededByThisThread(line, part) || HoldsOurData(part) || part.end > kMigrationFileSize) {
      continue;
    }
    uint64_t done = part.begin;
    const int error = MigrateToFile(part.begin, part.end, ProtectionOf(line), files, &done);
    // The program has dropped privileges since TryOut().
    if (error == EPERM) g_state.ability = Ability::kUnknown;
    any = any || done != part.begin;
  }
  return any;
}

// ---- Restoring private memory

// The result of one pass over the mappings.
struct Restored {
  uint64_t length = 0;
  bool ok = true;
};

// Makes the file's `pages` private again in the mappings below address `end` that `reader` returns.
Restored RestoreMappings(MapsReader& reader, Range pages, uint64_t end) {
  const MigrationFiles files = Files();
  Restored out;
  MapsLine line;
  while (reader.Next(&line) && line.begin < end) {
    const Range part = Intersect(FilePagesOf(line), pages);
    if (!IsOurs(line) || Empty(part)) continue;
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

// Makes the converted memory at `pages` private again, and frees the file's pages. Reads all file
// mappings only if the program has moved or unmapped some of the memory.
void Unconvert(Range pages) {
  Restored in_place;
  MapsReader near(pages.begin);
  if (near.seeks()) in_place = RestoreMappings(near, pages, pages.end);
  Restored moved;
  if (in_place.length < pages.end - pages.begin) {
    MapsReader all = MapsReader::OfFiles();
    moved = RestoreMappings(all, pages, UINT64_MAX);
  }
  g_state.restore_failed |= !in_place.ok || !moved.ok;
  if (in_place.ok && moved.ok) DropFilePages(pages.begin, pages.end, Files());
}

// The first range of [from, end) that no registration covers; empty if there is none.
Range NextUncovered(uint64_t from, uint64_t end) {
  for (uint32_t i = 0; i < g_state.registration_count && from < end;) {
    const Range& pages = g_state.registrations[i].pages;
    if (pages.begin <= from && from < pages.end) {
      from = pages.end;
      i = 0;
    } else {
      ++i;
    }
  }
  for (uint32_t i = 0; i < g_state.registration_count; ++i) {
    const Range& pages = g_state.registrations[i].pages;
    if (pages.begin > from) end = std::min(end, pages.begin);
  }
  return {from, end};
}

void UnconvertUncovered(Range pages) {
  for (uint64_t at = pages.begin; at < pages.end;) {
    const Range free = NextUncovered(at, pages.end);
    if (!Empty(free)) Unconvert(free);
    at = free.end > at ? std::max(free.begin, free.end) : pages.end;
  }
}

// ---- Fork

void NotifyDaemons() {
  if (g_state.hook.on_unconverted == nullptr) return;
  Range ranges[kMaxHookCalls];
  uint32_t count = 0;
  MapsReader reader = MapsReader::OfFiles();
  MapsLine line;
  while (reader.Next(&line)) {
    if (!IsOurs(line)) continue;
    const Range pages = FilePagesOf(line);
    Range* last = count == 0 ? nullptr : &ranges[count - 1];
    if (last != nullptr && (last->end == pages.begin || count == kMaxHookCalls)) {
      *last = {std::min(last->begin, pages.begin), std::max(last->end, pages.end)};
    } else {
      ranges[count++] = pages;
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    g_state.hook.on_unconverted(g_state.hook.argument, ranges[i].begin,
                                ranges[i].end - ranges[i].begin);
  }
}

// A child would share converted memory with its parent. So fork restores all converted memory
// first. From then on the daemon reaches the existing regions by process_vm; later registrations
// convert memory again.
void BeforeFork() {
  const NoCancellation no_cancellation;
  pthread_mutex_lock(&g_lock);
  const KeepErrno keep;
  if (g_state.registration_count == 0) return;
  NotifyDaemons();
  Unconvert({0, kMigrationFileSize});
  g_state.registration_count = 0;
}

void AfterForkInParent() { pthread_mutex_unlock(&g_lock); }

void AfterForkInChild() {
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  // The file belongs to the parent. The child creates its own when it registers memory.
  if (FileIsOurs()) close(g_state.file);
  g_state.file = -1;
  pthread_mutex_unlock(&g_lock);
}

// ---- Registrations

bool HasConverted(const MemoryExtents& extents) {
  return std::any_of(extents.items, extents.items + extents.count,
                     [](const MemoryExtent& e) { return e.kind == ExtentKind::kConverted; });
}

void UseProcessVm(MemoryExtents* extents, uint64_t va, uint64_t length) {
  CloseExtents(extents);
  extents->count = 1;
  extents->items[0] = MemoryExtent{};
  extents->items[0].va = va;
  extents->items[0].length = length;
  extents->items[0].fd = -1;
}

uint64_t AddRegistration(Range pages) {
  const uint64_t id = ++g_state.last_id;
  g_state.registrations[g_state.registration_count++] = Registration{id, pages};
  return id;
}

int Describe(uint64_t va, uint64_t length, bool writable, MemoryExtents* extents) {
  const KnownFile known = {g_state.file_device, g_state.file_inode, g_state.file};
  return DescribeMemory(va, length, writable, false, FileIsOurs() ? &known : nullptr, extents);
}

}  // namespace

RegistrationLock::RegistrationLock() { pthread_mutex_lock(&g_lock); }
RegistrationLock::~RegistrationLock() { pthread_mutex_unlock(&g_lock); }

int InitConvert(const ConvertHook& hook) {
  const RegistrationLock lock;
  g_state.hook = hook;
  if (g_state.initialized) return 0;
  const int error = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  g_state.initialized = error == 0;
  return error;
}

void SetUserfaultfdDevice(int fd) {
  const KeepErrno keep;
  const RegistrationLock lock;
  if (g_state.device >= 0) {
    close(fd);
    return;
  }
  g_state.device = fd;
  if (g_state.ability == Ability::kNo) g_state.ability = Ability::kUnknown;
}

bool CanConvert() {
  const KeepErrno keep;
  const RegistrationLock lock;
  return CanConvertLocked();
}

int AcquireMemory(const RegistrationLock& lock, uint64_t va, uint64_t length, bool writable,
                  bool on_demand, ConvertPolicy policy, MemoryExtents* extents,
                  ConvertedRanges* held) {
  static_cast<void>(lock);
  const KeepErrno keep;
  held->id = 0;
  if (on_demand) return DescribeMemory(va, length, writable, true, nullptr, extents);
  // Before the conversion, so that nothing is converted for an invalid range.
  int error = Describe(va, length, writable, extents);
  if (error != 0) return error;
  const bool room = g_state.initialized && g_state.registration_count < kMaxConversions;
  if (policy == ConvertPolicy::kProcessVm || (HasConverted(*extents) && !room)) {
    UseProcessVm(extents, va, length);
    return 0;
  }
  const Range pages = PagesOf(va, length);
  if (policy == ConvertPolicy::kConvert && room && CanConvertLocked() && Convert(pages)) {
    CloseExtents(extents);
    error = Describe(va, length, writable, extents);
    if (error != 0) {
      UnconvertUncovered(pages);
      return error;
    }
  }
  if (HasConverted(*extents)) held->id = AddRegistration(pages);
  return 0;
}

void ReleaseMemory(const RegistrationLock& lock, ConvertedRanges* held) {
  static_cast<void>(lock);
  const KeepErrno keep;
  Registration* const end = g_state.registrations + g_state.registration_count;
  Registration* const found = std::find_if(
      g_state.registrations, end, [&](const Registration& each) { return each.id == held->id; });
  // Not found: nothing was converted, or a fork has restored it already.
  if (held->id != 0 && found != end) {
    const Range pages = found->pages;
    *found = *(end - 1);
    --g_state.registration_count;
    if (FileIsOurs()) UnconvertUncovered(pages);
  }
  held->id = 0;
}

uint32_t ConversionCount() {
  const RegistrationLock lock;
  return g_state.registration_count;
}

}  // namespace roci::provider
