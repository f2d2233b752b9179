// When the processor may look at a DMA buffer, which belongs to some device (dma_buf(9)).
#pragma once

#include <cstdint>

namespace roci::memory {

/// 0 if the range lies in the DMA buffer `fd`; EBADF, EINVAL.
int CheckDmaBuffer(int fd, uint64_t offset, uint64_t length);

/// Says to the exporter that the processor reads and writes from now on. A descriptor of the
/// caller's for EndDmaBufferAccess, or -1 with *error an errno.
int BeginDmaBufferAccess(int fd, int* error);
/// Says that it does no more, and closes the descriptor.
void EndDmaBufferAccess(int fd);

}  // namespace roci::memory
