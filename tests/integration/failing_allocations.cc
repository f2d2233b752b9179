// Fault injection, preloaded into a daemon: the n-th `operator new` of its main thread throws.
#include "tests/integration/failing_allocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace {

using roci::testing::FailingAllocations;

pid_t main_thread = 0;
FailingAllocations* shared = nullptr;

// Children of the daemon have other thread numbers and are not affected.
__attribute__((constructor)) void Open() {
  const char* name = std::getenv("ROCI_TEST_ALLOCATIONS");
  const int fd = name != nullptr ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* page = mmap(nullptr, sizeof(FailingAllocations), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page == MAP_FAILED) return;
  main_thread = gettid();
  shared = static_cast<FailingAllocations*>(page);
}

bool ShallFail() {
  if (shared == nullptr || shared->countdown == 0 || gettid() != main_thread) return false;
  if (shared->countdown.fetch_sub(1) != 1) return false;
  ++shared->failed;
  return true;
}

}  // namespace

void* operator new(size_t size) {
  void* memory = ShallFail() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
