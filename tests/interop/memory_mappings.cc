// Operations on registered memory: calls that change mappings and their contents.
#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/interop/memory_row.h"

namespace interop {
namespace {

int Errno(int status) { return status == 0 ? 0 : errno; }

bool IsMalloc(const std::string& kind) { return kind == "malloc"; }
bool IsFile(const std::string& kind) {
  return kind == "private file" || kind == "shared file" || kind == "memfd";
}
bool IsWritable(const std::string& kind) { return kind != "PROT_READ anonymous"; }
// Kinds whose page table entries show whether pages are swapped.
bool IsPrivate(const std::string& kind) {
  return kind != "shared file" && kind != "memfd" && kind != "SysV" && kind != "hugetlb" &&
         kind != "shared anonymous";
}
// Kinds made by one mmap or shmat of their own, with free addresses behind them.
bool IsMapping(const std::string& kind) {
  return IsFile(kind) || kind == "anonymous" || kind == "THP" || kind == "SysV" ||
         kind == "shared anonymous" || kind == "hugetlb" || kind == "PROT_READ anonymous";
}

int Grow(Subject& subject) {
  const Region& region = subject.region;
  munmap(region.data + region.length, region.part_length);
  void* at = mremap(region.data, region.length, region.length + region.part_length, 0);
  return at == MAP_FAILED ? errno : 0;
}

// Free addresses for `length` bytes, aligned to huge pages.
uint8_t* FreeAddresses(size_t length) {
  auto* at = static_cast<uint8_t*>(
      mmap(nullptr, length + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return at + (kHugePage - reinterpret_cast<uintptr_t>(at) % kHugePage) % kHugePage;
}

int GrowAndMove(Subject& subject) {
  Region& region = subject.region;
  const size_t length = region.length + region.part_length;
  uint8_t* to = FreeAddresses(length);
  if (mremap(region.data, region.length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
    return errno;
  }
  region.data = to;
  region.length = length;
  subject.at = to + region.part;
  return 0;
}

int Shrink(Subject& subject) {
  const Region& region = subject.region;
  return mremap(region.data, region.length, region.part, 0) == MAP_FAILED ? errno : 0;
}

int MoveWith(Subject& subject, int flags) {
  const size_t length = subject.region.part_length;
  uint8_t* to = FreeAddresses(length);
  if (mremap(subject.at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) == MAP_FAILED) {
    return errno;
  }
  subject.at = to;
  return 0;
}

int Move(Subject& subject) { return MoveWith(subject, 0); }

// The old addresses stay mapped, without the pages.
int MovePages(Subject& subject) { return MoveWith(subject, MREMAP_DONTUNMAP); }

int Reallocate(Subject& subject, size_t length) {
  Region& region = subject.region;
  auto* moved = static_cast<uint8_t*>(realloc(region.data, length));
  if (moved == nullptr) return errno;
  subject.at = moved + region.part;
  region.data = moved;
  region.length = length;
  return 0;
}

int ReallocateMore(Subject& subject) { return Reallocate(subject, 2 * subject.region.length); }

// Shrinks to less than what lies before the part: otherwise malloc would keep a page of the part.
int ReallocateLess(Subject& subject) { return Reallocate(subject, subject.region.part - kPage); }

int Unmap(Subject& subject) { return Errno(munmap(subject.at, subject.region.part_length)); }

int MapAnew(Subject& subject) {
  void* at = mmap(subject.at, subject.region.part_length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return at == MAP_FAILED ? errno : 0;
}

int Truncate(Subject& subject) {
  return Errno(ftruncate(subject.region.fd, static_cast<off_t>(subject.region.part)));
}

int Lock(Subject& subject) { return Errno(mlock(subject.at, subject.region.part_length)); }

int Unlock(Subject& subject) {
  const int error = Lock(subject);
  return error != 0 ? error : Errno(munlock(subject.at, subject.region.part_length));
}

int Incore(Subject& subject) {
  std::vector<uint8_t> pages(subject.region.part_length / kPage);
  if (mincore(subject.at, subject.region.part_length, pages.data()) != 0) return errno;
  size_t resident = 0;
  for (const uint8_t page : pages) resident += page & 1;
  subject.Remark(resident == pages.size() ? "resident" : "not resident");
  return 0;
}

std::unique_ptr<Operation> Protect(int protection) {
  return Once([protection](Subject& subject) {
    return Errno(mprotect(subject.at, subject.region.part_length, protection));
  });
}

int Advise(Subject& subject, int advice) {
  return Errno(madvise(subject.at, subject.region.part_length, advice));
}

std::unique_ptr<Operation> Advised(int advice) {
  return Once([advice](Subject& subject) { return Advise(subject, advice); });
}

int MergeSame(Subject& subject) {
  if (access("/sys/kernel/mm/ksm", F_OK) != 0) subject.skipped = "the kernel has no KSM";
  return Advise(subject, MADV_MERGEABLE);
}

bool IsSwapped(const void* at) {
  const int pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const auto place = static_cast<off_t>(reinterpret_cast<uintptr_t>(at) / kPage * sizeof(uint64_t));
  uint64_t entry = 0;
  const bool known = pread(pages, &entry, sizeof(entry), place) == sizeof(entry);
  close(pages);
  return known && (entry >> 62 & 1) != 0;
}

int SwapOut(Subject& subject) {
  std::ifstream swaps("/proc/swaps");
  std::string line;
  std::getline(swaps, line);
  if (!std::getline(swaps, line)) {
    subject.skipped = "no swap";
    return 0;
  }
  const int error = Advise(subject, MADV_PAGEOUT);
  subject.Remark(IsSwapped(subject.at) ? "swapped" : "not swapped");
  return error;
}

// <sys/mman.h> of Debian 12 has no name for it (Linux 5.18).
constexpr int kDontneedLocked = 24;

struct NamedAdvice {
  const char* name;
  int advice;
};
constexpr NamedAdvice kAdvice[] = {
    {"MADV_DONTNEED", MADV_DONTNEED},
    {"MADV_FREE", MADV_FREE},
    {"MADV_REMOVE", MADV_REMOVE},
    {"MADV_HUGEPAGE", MADV_HUGEPAGE},
    {"MADV_NOHUGEPAGE", MADV_NOHUGEPAGE},
    {"MADV_COLD", MADV_COLD},
    {"MADV_PAGEOUT", MADV_PAGEOUT},
    {"MADV_POPULATE_READ", MADV_POPULATE_READ},
    {"MADV_POPULATE_WRITE", MADV_POPULATE_WRITE},
    {"MADV_NORMAL", MADV_NORMAL},
    {"MADV_SEQUENTIAL", MADV_SEQUENTIAL},
    {"MADV_RANDOM", MADV_RANDOM},
    {"MADV_WILLNEED", MADV_WILLNEED},
    {"MADV_DONTDUMP", MADV_DONTDUMP},
    {"MADV_DONTNEED_LOCKED", kDontneedLocked},
};

}  // namespace

void AddMappings(std::vector<NamedOperation>& operations) {
  auto add = [&](const char* name, std::unique_ptr<Operation> operation,
                 bool (*suits)(const std::string&) = nullptr) {
    operations.push_back({name, std::move(operation), suits});
  };
  add("read and write", Once([](Subject&) { return 0; }));
  add("mremap: grow in place", Once(Grow), IsMapping);
  add("mremap: grow and move", Once(GrowAndMove), IsMapping);
  add("mremap: shrink", Once(Shrink), IsMapping);
  add("mremap: move", Once(Move));
  add("mremap: move, addresses stay", Once(MovePages), IsMapping);
  add("realloc: grow", Once(ReallocateMore), IsMalloc);
  add("realloc: shrink", Once(ReallocateLess), IsMalloc);
  add("munmap", Once(Unmap));
  add("munmap, mmap at the place", Once(MapAnew));
  add("ftruncate", Once(Truncate), IsFile);
  add("mprotect: read", Protect(PROT_READ), IsWritable);
  add("mprotect: none", Protect(PROT_NONE), IsWritable);
  add("mlock", Once(Lock));
  add("munlock", Once(Unlock));
  add("mincore", Once(Incore));
  for (const NamedAdvice& advice : kAdvice) add(advice.name, Advised(advice.advice));
  add("MADV_MERGEABLE", Once(MergeSame));
  add("MADV_DONTFORK, fork", AdviseAndFork(MADV_DONTFORK));
  add("MADV_WIPEONFORK, fork", AdviseAndFork(MADV_WIPEONFORK));
  add("MADV_DOFORK, fork", AdviseAndFork(MADV_DOFORK));
  add("MADV_KEEPONFORK, fork", AdviseAndFork(MADV_KEEPONFORK));
  add("swap", Once(SwapOut), IsPrivate);
  operations.push_back({"MADV_DONTNEED, device first", Advised(MADV_DONTNEED), nullptr, true});
}

}  // namespace interop
