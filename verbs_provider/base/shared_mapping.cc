// Checks and maps a memfd.
#include "verbs_provider/base/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace roci::provider {

int SharedMapping::Map(int fd, uint64_t bytes) {
  struct stat st;
  if (fstat(fd, &st) != 0) return errno;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (bytes == 0 || static_cast<uint64_t>(st.st_size) < bytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return EPROTO;
  }
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return errno;
  // A child that inherited the rings could post into its parent's queues.
  if (madvise(address, bytes, MADV_DONTFORK) != 0) {
    const int error = errno;
    munmap(address, bytes);
    return error;
  }
  data = static_cast<std::byte*>(address);
  size = bytes;
  return 0;
}

int SharedMapping::CheckRoom(int fd, uint64_t bytes) {
  if (fd >= 0) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return errno;
    close(copy);
  }
  // Counts to RLIMIT_AS, RLIMIT_MEMLOCK and vm.max_map_count as the mapping will, but takes no
  // pages.
  void* address =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return errno;
  munmap(address, bytes);
  return 0;
}

void SharedMapping::Unmap() {
  if (data != nullptr) munmap(data, size);
  data = nullptr;
  size = 0;
}

}  // namespace roci::provider
