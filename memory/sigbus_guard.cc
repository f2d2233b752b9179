// The SIGBUS handler and its table. The handler accesses only lock-free atomics in static storage.
#include "memory/sigbus_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <mutex>

#include "memory/page.h"

namespace roci::memory {
namespace {

constinit SigbusGuard::Range g_ranges[SigbusGuard::kCapacity];
constinit std::atomic<uint32_t> g_range_limit{0};  // slots from here on were never used
constinit std::atomic<uint64_t> g_faults{0};
constinit std::mutex g_mutex;  // writers only
bool g_installed = false;      // under g_mutex
uint32_t g_first_free = 0;     // under g_mutex: no slot before it is free
struct sigaction g_previous;   // written once, before the handler can run

static_assert(std::atomic<uintptr_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

SigbusGuard::Range* FindRange(uintptr_t address) {
  const uint32_t limit = g_range_limit.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < limit; ++i) {
    SigbusGuard::Range& range = g_ranges[i];
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < range.end.load(std::memory_order_relaxed)) {
      return &range;
    }
  }
  return nullptr;
}

// Reserved VMAs that Survive() unmaps when the process has reached vm.max_map_count. Alternating
// protections keep the kernel from merging them.
constexpr uint32_t kSpares = 32;
constexpr size_t kSparePage = kPageBytes;
constinit std::byte* g_spares = nullptr;  // written once, before the handler can run
constinit std::atomic<uint32_t> g_spares_used{0};

void MakeSparesLocked() {
  constexpr size_t kBytes = (2 * kSpares + 1) * kSparePage;
  void* const at =
      mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  auto* const spares = static_cast<std::byte*>(at);
  for (uint32_t i = 0; i < kSpares; ++i) {
    mprotect(spares + (2 * i + 1) * kSparePage, kSparePage, PROT_READ);
  }
  g_spares = spares;
}

bool GiveUpASpare() {
  if (g_spares == nullptr) return false;
  const uint32_t i = g_spares_used.fetch_add(1, std::memory_order_relaxed);
  return i < kSpares && munmap(g_spares + (2 * i + 1) * kSparePage, kSparePage) == 0;
}

bool PutZeros(uintptr_t begin, size_t length) {
  return mmap(reinterpret_cast<void*>(begin), length, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

// Maps a page of zeros in place of the missing page, so that the interrupted copy can continue; its
// caller checks `broken` afterwards. This splits the VMA into three. At vm.max_map_count it
// replaces the whole VMA instead, since a broken mapping is not used again; one VMA above the limit
// (mmap allows that) it first unmaps a reserved VMA.
bool Survive(uintptr_t address) {
  SigbusGuard::Range* range = FindRange(address);
  if (range == nullptr) return false;
  range->broken.store(true, std::memory_order_relaxed);
  const size_t page_size = range->page_size.load(std::memory_order_relaxed);
  const uintptr_t begin = range->begin.load(std::memory_order_relaxed);
  const uintptr_t end = range->end.load(std::memory_order_relaxed);
  if (!PutZeros(address & ~(page_size - 1), page_size) && !PutZeros(begin, end - begin) &&
      !(GiveUpASpare() && PutZeros(begin, end - begin))) {
    return false;
  }
  g_faults.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// A SIGBUS outside of guarded mappings: calls the previous action.
void PassOn(int signal_number, siginfo_t* info, void* context) {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal_number, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal_number);
  } else {
    // After the return the access is repeated and ends the process. A SIGBUS that a process sent
    // has no access to repeat, so it is sent again.
    signal(SIGBUS, SIG_DFL);
    if (info->si_code <= 0) raise(SIGBUS);
  }
}

void OnSigbus(int signal_number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // Codes above 0 come from the kernel and carry an address.
  if (info->si_code <= 0 || !Survive(reinterpret_cast<uintptr_t>(info->si_addr))) {
    PassOn(signal_number, info, context);
  }
  errno = saved_errno;
}

bool InstallLocked() {
  if (g_installed) return true;
  MakeSparesLocked();
  struct sigaction action = {};
  action.sa_sigaction = OnSigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, nullptr, &g_previous) != 0 || sigaction(SIGBUS, &action, nullptr) != 0) {
    return false;
  }
  g_installed = true;
  return true;
}

SigbusGuard::Range* TakeSlotLocked() {
  const uint32_t limit = g_range_limit.load(std::memory_order_relaxed);
  while (g_first_free < limit &&
         g_ranges[g_first_free].begin.load(std::memory_order_relaxed) != 0) {
    ++g_first_free;
  }
  if (g_first_free == SigbusGuard::kCapacity) return nullptr;
  if (g_first_free == limit) g_range_limit.store(limit + 1, std::memory_order_release);
  return &g_ranges[g_first_free++];
}

}  // namespace

SigbusGuard::Range* SigbusGuard::Add(void* begin, size_t length, size_t page_size) {
  const std::lock_guard lock(g_mutex);
  Range* range = InstallLocked() ? TakeSlotLocked() : nullptr;
  if (range == nullptr) return nullptr;
  const uintptr_t address = reinterpret_cast<uintptr_t>(begin);
  range->end.store(address + length, std::memory_order_relaxed);
  range->page_size.store(page_size, std::memory_order_relaxed);
  range->broken.store(false, std::memory_order_relaxed);
  range->begin.store(address, std::memory_order_release);
  return range;
}

void SigbusGuard::Remove(Range* range) {
  const std::lock_guard lock(g_mutex);
  range->begin.store(0, std::memory_order_release);
  g_first_free = std::min(g_first_free, static_cast<uint32_t>(range - g_ranges));
}

uint64_t SigbusGuard::faults() { return g_faults.load(std::memory_order_relaxed); }

}  // namespace roci::memory
