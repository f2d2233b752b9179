// Counts allocations, frees and locks of each thread of a program, for tools/bench. Preloaded into
// the daemon, it shows that running dataplane threads make none. The file ROCI_CALL_COUNT has
// kSlots records of three 64-bit numbers (thread id, allocator calls, locked mutexes and read-write
// locks), written through a shared mapping.
//
// Allocates with glibc's allocator, through its entry points for wrappers.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* p, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* p);
}

namespace {

constexpr size_t kSlots = 256;

struct Slot {
  std::atomic<uint64_t> thread_id;
  std::atomic<uint64_t> allocator_calls;
  std::atomic<uint64_t> locks;
};
static_assert(sizeof(Slot) == 24);

std::atomic<Slot*> slots{nullptr};
std::atomic<size_t> used{0};
thread_local Slot* own __attribute__((tls_model("initial-exec"))) = nullptr;

[[gnu::constructor]] void Open() {
  const char* path = getenv("ROCI_CALL_COUNT");
  if (path == nullptr) return;
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, kSlots * sizeof(Slot)) != 0) return;
  void* p = mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p != MAP_FAILED) slots.store(static_cast<Slot*>(p));
}

// Threads beyond the last slot are not counted. Null for those, and before the file is open.
Slot* Own() {
  if (own != nullptr) return own;
  Slot* all = slots.load(std::memory_order_acquire);
  if (all == nullptr) return nullptr;
  const size_t index = used.fetch_add(1);
  if (index >= kSlots) return nullptr;
  own = all + index;
  own->thread_id.store(static_cast<uint64_t>(syscall(SYS_gettid)));
  return own;
}

void Count() {
  if (Slot* slot = Own()) slot->allocator_calls.fetch_add(1, std::memory_order_relaxed);
}

// The next function of that name after this library's.
template <class Function>
Function Next(std::atomic<Function>& cached, const char* name) {
  Function function = cached.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    cached.store(function, std::memory_order_relaxed);
  }
  return function;
}

template <class Lock>
int CountedLock(std::atomic<int (*)(Lock*)>& cached, const char* name, Lock* lock) {
  if (Slot* slot = Own()) slot->locks.fetch_add(1, std::memory_order_relaxed);
  return Next(cached, name)(lock);
}

std::atomic<int (*)(pthread_mutex_t*)> next_mutex_lock{nullptr};
std::atomic<int (*)(pthread_rwlock_t*)> next_read_lock{nullptr};
std::atomic<int (*)(pthread_rwlock_t*)> next_write_lock{nullptr};

}  // namespace

// glibc declares these functions with reserved parameter names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* p, size_t bytes) {
  Count();
  return __libc_realloc(p, bytes);
}
__attribute__((visibility("default"))) void* memalign(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, size_t alignment,
                                                          size_t bytes) {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) return EINVAL;
  Count();
  void* p = __libc_memalign(alignment, bytes);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
// A free on the hot path implies an allocation elsewhere, so frees count as well.
__attribute__((visibility("default"))) void free(void* p) {
  if (p != nullptr) Count();
  __libc_free(p);
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t* lock) {
  return CountedLock(next_mutex_lock, "pthread_mutex_lock", lock);
}
__attribute__((visibility("default"))) int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  return CountedLock(next_read_lock, "pthread_rwlock_rdlock", lock);
}
__attribute__((visibility("default"))) int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  return CountedLock(next_write_lock, "pthread_rwlock_wrlock", lock);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
