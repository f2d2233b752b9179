// The registrations with converted memory, and fork, which ends their conversions.
#include "verbs_provider/memory/convert.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/memory/conversion_file.h"
#include "verbs_provider/memory/conversion_pages.h"
#include "verbs_provider/memory/conversion_state.h"
#include "verbs_provider/memory/maps_reader.h"
#include "verbs_provider/memory/page_migration.h"

namespace roci::provider {
namespace {

// Most calls of the hook in one fork. Further ranges are merged into the last call's range.
constexpr uint32_t kMaxHookCalls = 64;

// ---- Fork

void NotifyDaemons() {
  if (g_conversion.hook.on_unconverted == nullptr) return;
  PageRange ranges[kMaxHookCalls];
  uint32_t count = 0;
  MapsReader reader = MapsReader::OfFiles();
  MapsLine line;
  while (reader.Next(&line)) {
    if (!IsConverted(line)) continue;
    const PageRange pages = FilePagesOf(line);
    PageRange* last = count == 0 ? nullptr : &ranges[count - 1];
    if (last != nullptr && (last->end == pages.begin || count == kMaxHookCalls)) {
      *last = {std::min(last->begin, pages.begin), std::max(last->end, pages.end)};
    } else {
      ranges[count++] = pages;
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    g_conversion.hook.on_unconverted(g_conversion.hook.argument, ranges[i].begin,
                                     ranges[i].end - ranges[i].begin);
  }
}

// A child would share converted memory with its parent. So fork restores all converted memory
// first. From then on the daemon reaches the existing regions by process_vm; later registrations
// convert memory again.
void BeforeFork() {
  const NoCancellation no_cancellation;
  pthread_mutex_lock(&g_conversion_lock);
  const KeepErrno keep;
  if (g_conversion.registration_count == 0) return;
  NotifyDaemons();
  RestorePages({0, kMigrationFileSize});
  g_conversion.registration_count = 0;
}

void AfterForkInParent() { pthread_mutex_unlock(&g_conversion_lock); }

void AfterForkInChild() {
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  // The file belongs to the parent. The child creates its own when it registers memory.
  if (ConversionFileIsOurs()) close(g_conversion.file);
  g_conversion.file = -1;
  pthread_mutex_unlock(&g_conversion_lock);
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

uint64_t AddRegistration(PageRange pages) {
  const uint64_t id = ++g_conversion.last_id;
  g_conversion.registrations[g_conversion.registration_count++] = ConvertedRegistration{id, pages};
  return id;
}

int Describe(uint64_t va, uint64_t length, bool writable, MemoryExtents* extents) {
  const KnownFile known = {g_conversion.file_device, g_conversion.file_inode, g_conversion.file};
  return DescribeMemory(va, length, writable, false, ConversionFileIsOurs() ? &known : nullptr,
                        extents);
}

}  // namespace

RegistrationLock::RegistrationLock() { pthread_mutex_lock(&g_conversion_lock); }
RegistrationLock::~RegistrationLock() { pthread_mutex_unlock(&g_conversion_lock); }

int InitConvert(const ConvertHook& hook) {
  const RegistrationLock lock;
  g_conversion.hook = hook;
  if (g_conversion.initialized) return 0;
  const int error = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  g_conversion.initialized = error == 0;
  return error;
}

void SetUserfaultfdDevice(int fd) {
  const KeepErrno keep;
  const RegistrationLock lock;
  if (g_conversion.device >= 0) {
    close(fd);
    return;
  }
  g_conversion.device = fd;
  if (g_conversion.ability == ConvertAbility::kNo) g_conversion.ability = ConvertAbility::kUnknown;
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
  const bool room = g_conversion.initialized && g_conversion.registration_count < kMaxConversions;
  if (policy == ConvertPolicy::kProcessVm || (HasConverted(*extents) && !room)) {
    UseProcessVm(extents, va, length);
    return 0;
  }
  const PageRange pages = PagesOf(va, length);
  if (policy == ConvertPolicy::kConvert && room && CanConvertLocked() && ConvertPages(pages)) {
    CloseExtents(extents);
    error = Describe(va, length, writable, extents);
    if (error != 0) {
      RestoreUncoveredPages(pages);
      return error;
    }
  }
  if (HasConverted(*extents)) held->id = AddRegistration(pages);
  return 0;
}

void ReleaseMemory(const RegistrationLock& lock, ConvertedRanges* held) {
  static_cast<void>(lock);
  const KeepErrno keep;
  ConvertedRegistration* const end = g_conversion.registrations + g_conversion.registration_count;
  ConvertedRegistration* const found =
      std::find_if(g_conversion.registrations, end,
                   [&](const ConvertedRegistration& each) { return each.id == held->id; });
  // Not found: nothing was converted, or a fork has restored it already.
  if (held->id != 0 && found != end) {
    const PageRange pages = found->pages;
    *found = *(end - 1);
    --g_conversion.registration_count;
    if (ConversionFileIsOurs()) RestoreUncoveredPages(pages);
  }
  held->id = 0;
}

uint32_t ConversionCount() {
  const RegistrationLock lock;
  return g_conversion.registration_count;
}

}  // namespace roci::provider
