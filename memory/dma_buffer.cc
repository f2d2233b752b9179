// Checks and maps DMA buffers; starts and ends CPU access.
#include "memory/dma_buffer.h"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "memory/local_file.h"
#include "memory/mapped_file.h"

namespace roci::memory {
namespace {

// 0 or an errno. EBUSY: a device is using the buffer. Waiting for it is not an option, since the
// program that passed the buffer could make others wait for any time.
int Sync(int fd, uint64_t flags) {
  pollfd idle = {fd, POLLOUT, 0};
  if (poll(&idle, 1, 0) == 0) return EBUSY;
  dma_buf_sync sync = {};
  sync.flags = flags | DMA_BUF_SYNC_RW;
  constexpr int kTries = 16;
  for (int tries = 0; ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) != 0; ++tries) {
    if ((errno != EINTR && errno != EAGAIN) || tries == kTries) return errno;
  }
  return 0;
}

}  // namespace

int CheckDmaBuffer(int fd, uint64_t offset, uint64_t length) {
  if (!IsDmaBuffer(fd)) return EINVAL;
  const off_t end = lseek(fd, 0, SEEK_END);
  if (end < 0) return errno;
  const auto size = static_cast<uint64_t>(end);
  return length != 0 && offset <= size && length <= size - offset ? 0 : EINVAL;
}

int BeginDmaBufferAccess(int fd, int* error) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  *error = copy < 0 ? errno : Sync(copy, DMA_BUF_SYNC_START);
  if (*error == 0) return copy;
  if (copy >= 0) close(copy);
  return -1;
}

void EndDmaBufferAccess(int fd) {
  Sync(fd, DMA_BUF_SYNC_END);
  close(fd);
}

std::shared_ptr<MappedFile> MappedFile::MapDmaBuffer(int fd, uint64_t offset, uint64_t length,
                                                     bool writable, int* error) {
  *error = CheckDmaBuffer(fd, offset, length);
  if (*error != 0) return nullptr;
  const auto page_size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t end = (offset + length + page_size - 1) & ~(page_size - 1);
  // Mapped from offset 0: some exporters (Linux's GEM with shmem) count pages from the start of the
  // mapping, not of the buffer.
  auto mapped = MapPages(fd, 0, end, writable, error);
  if (mapped == nullptr) {
    // The range exists, so the exporter refuses the mapping.
    const bool ours = *error == EACCES || *error == EPERM || *error == ENOMEM || *error == EAGAIN;
    if (!ours) *error = EOPNOTSUPP;
    return nullptr;
  }
  // Pages of some exporters can disappear, like those of a truncated file.
  if (!mapped->Guard(page_size, error)) return nullptr;
  mapped->dma_buffer_ = BeginDmaBufferAccess(fd, error);
  return mapped->dma_buffer_ >= 0 ? mapped : nullptr;
}

}  // namespace roci::memory
