#include "tests/interop/memory_region.h"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

namespace interop {
namespace {

constexpr size_t kLength = 64 * kPage;
constexpr size_t kPartLength = 16 * kPage;
constexpr size_t kMallocLength = size_t{4} << 20;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

alignas(kPage) std::array<uint8_t, kLength> initialised = {1};
alignas(kPage) std::array<uint8_t, kLength> uninitialised;
// Volatile, because the compiler does not know that memcpy may raise a signal.
thread_local sigjmp_buf* volatile landing = nullptr;

void OnFault(int signal) {
  if (landing != nullptr) siglongjmp(*landing, signal);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

// Reserves `length` bytes of address space and as many behind them, so that no other mapping is
// placed there. Aligned to huge pages.
uint8_t* Reserve(size_t length) {
  void* at = mmap(nullptr, 2 * length + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(at) + kHugePage - 1) &
                                    ~(kHugePage - 1));
}

uint8_t* Map(size_t length, int flags, int fd = -1) {
  uint8_t* at = Reserve(length);
  if (at == nullptr) return nullptr;
  void* made = mmap(at, length, kReadWrite, flags | MAP_FIXED, fd, 0);
  return made == MAP_FAILED ? nullptr : at;
}

Region OnPages(uint8_t* data) {
  return {.data = data, .length = kLength, .part = kLength / 2, .part_length = kPartLength};
}

Region OnHugePages(uint8_t* data) {
  return {.data = data, .length = 2 * kHugePage, .part = kHugePage, .part_length = kHugePage};
}

Region Malloc(const std::string&, uint8_t*) {
  auto* data = static_cast<uint8_t*>(malloc(kMallocLength));
  // The part consists of whole pages, but malloc's memory starts behind a header.
  const size_t behind = reinterpret_cast<uintptr_t>(data) % kPage;
  return {.data = data,
          .length = kMallocLength,
          .part = 3 * kMallocLength / 4 - behind,
          .part_length = kPartLength};
}

Region Heap(const std::string&, uint8_t*) {
  const auto end = reinterpret_cast<uintptr_t>(sbrk(0));
  const size_t gap = (kPage - end % kPage) % kPage;
  // One page more, so that later allocations do not share a page with the region.
  auto* before = static_cast<uint8_t*>(sbrk(static_cast<intptr_t>(gap + kLength + kPage)));
  if (reinterpret_cast<intptr_t>(before) == -1) return {};
  return OnPages(before + gap);
}

Region Anonymous(const std::string&, uint8_t*) {
  return OnPages(Map(kLength, MAP_PRIVATE | MAP_ANONYMOUS));
}

Region ReadOnly(const std::string&, uint8_t*) {
  Region region = OnPages(Map(kLength, MAP_PRIVATE | MAP_ANONYMOUS));
  region.writable = false;
  return region;
}

Region TransparentHuge(const std::string&, uint8_t*) {
  Region region = OnHugePages(Map(2 * kHugePage, MAP_PRIVATE | MAP_ANONYMOUS));
  if (madvise(region.data, region.length, MADV_HUGEPAGE) != 0) return {};
  return region;
}

Region Stack(const std::string&, uint8_t* stack) {
  const auto at = reinterpret_cast<uintptr_t>(stack);
  return OnPages(stack + (kPage - at % kPage) % kPage);
}

Region Data(const std::string&, uint8_t*) { return OnPages(initialised.data()); }

Region Bss(const std::string&, uint8_t*) { return OnPages(uninitialised.data()); }

// An unlinked file, so that none is left behind.
int MakeFile(const std::string& folder) {
  std::string name = folder + "/region.XXXXXX";
  const int fd = mkstemp(name.data());
  if (fd < 0) return -1;
  unlink(name.c_str());
  std::vector<uint8_t> bytes(kLength);
  Fill(Pattern::kFile, bytes.data(), 0, kLength);
  return pwrite(fd, bytes.data(), kLength, 0) == static_cast<ssize_t>(kLength) ? fd : -1;
}

Region OfFile(int fd, int flags) {
  if (fd < 0) return {};
  Region region = OnPages(Map(kLength, flags, fd));
  region.fd = fd;
  return region;
}

Region PrivateFile(const std::string& folder, uint8_t*) {
  return OfFile(MakeFile(folder), MAP_PRIVATE);
}

Region SharedFile(const std::string& folder, uint8_t*) {
  return OfFile(MakeFile(folder), MAP_SHARED);
}

Region Memfd(const std::string&, uint8_t*) {
  const int fd = memfd_create("region", MFD_CLOEXEC);
  if (ftruncate(fd, kLength) != 0) return {};
  return OfFile(fd, MAP_SHARED);
}

Region SharedAnonymous(const std::string&, uint8_t*) {
  return OnPages(Map(kLength, MAP_SHARED | MAP_ANONYMOUS));
}

Region SysV(const std::string&, uint8_t*) {
  const int id = shmget(IPC_PRIVATE, kLength, IPC_CREAT | 0600);
  if (id < 0) return {};
  void* at = shmat(id, Reserve(kLength), SHM_REMAP);
  shmctl(id, IPC_RMID, nullptr);
  if (reinterpret_cast<intptr_t>(at) == -1) return {};
  return OnPages(static_cast<uint8_t*>(at));
}

Region Huge(const std::string&, uint8_t*) {
  return OnHugePages(Map(2 * kHugePage, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB));
}

using Maker = Region (*)(const std::string& folder, uint8_t* stack);
struct NamedMaker {
  const char* name;
  Maker make;
};
constexpr NamedMaker kMakers[] = {
    {"malloc", Malloc},
    {"brk heap", Heap},
    {"anonymous", Anonymous},
    {"THP", TransparentHuge},
    {"stack", Stack},
    {".data", Data},
    {".bss", Bss},
    {"PROT_READ anonymous", ReadOnly},
    {"private file", PrivateFile},
    {"shared file", SharedFile},
    {"memfd", Memfd},
    {"SysV", SysV},
    {"shared anonymous", SharedAnonymous},
    {"hugetlb", Huge},
};

uint64_t Word(Pattern pattern, size_t offset) {
  return uint64_t{static_cast<uint8_t>(pattern)} * 0x0101010100000000 + offset;
}

}  // namespace

const std::vector<std::string>& Kinds() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const NamedMaker& maker : kMakers) all->emplace_back(maker.name);
    return all;
  }();
  return *names;
}

size_t StackBytes() { return kLength + kPage; }

Region MakeRegion(const std::string& kind, const std::string& folder, uint8_t* stack) {
  for (const NamedMaker& maker : kMakers) {
    if (kind != maker.name) continue;
    Region region = maker.make(folder, stack);
    region.kind = kind;
    if (region.data == nullptr) return region;
    Fill(Pattern::kFirst, region.data, 0, region.length);
    if (!region.writable) mprotect(region.data, region.length, PROT_READ);
    return region;
  }
  return {};
}

void Fill(Pattern pattern, void* at, size_t offset, size_t length) {
  auto* words = static_cast<uint64_t*>(at);
  for (size_t i = 0; i < length / 8; ++i) words[i] = Word(pattern, offset + 8 * i);
}

bool Holds(Pattern pattern, const void* at, size_t offset, size_t length) {
  const auto* words = static_cast<const uint64_t*>(at);
  for (size_t i = 0; i < length / 8; ++i) {
    if (words[i] != Word(pattern, offset + 8 * i)) return false;
  }
  return true;
}

bool HoldsZeros(const void* at, size_t length) {
  const auto* words = static_cast<const uint64_t*>(at);
  for (size_t i = 0; i < length / 8; ++i) {
    if (words[i] != 0) return false;
  }
  return true;
}

int Copy(void* to, const void* from, size_t length) {
  sigjmp_buf here;
  const int signal = sigsetjmp(here, 1);
  if (signal == 0) {
    landing = &here;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    memcpy(to, from, length);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  landing = nullptr;
  return signal;
}

void CatchFaults() {
  struct sigaction action = {};
  action.sa_handler = OnFault;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace interop
