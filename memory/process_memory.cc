#include "memory/process_memory.h"

#include <sys/uio.h>
#include <unistd.h>

namespace roci::memory {

bool ProcessVmWorks() {
  static const bool works = [] {
    char from = 1, to = 0;
    const iovec local{&to, 1}, remote{&from, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
  }();
  return works;
}

}  // namespace roci::memory
