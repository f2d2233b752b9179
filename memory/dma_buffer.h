// CPU access to DMA buffers, which belong to a device (dma_buf(9)).
#pragma once

#include <cstdint>

namespace roci::memory {

/// 0 if the range lies within the DMA buffer `fd`; EBADF no DMA buffer, EINVAL out of range.
int CheckDmaBuffer(int fd, uint64_t offset, uint64_t length);

/// Starts CPU reads and writes (DMA_BUF_SYNC_START). Returns a descriptor for EndDmaBufferAccess,
/// owned by the caller, or -1 with *error an errno.
int BeginDmaBufferAccess(int fd, int* error);
/// Ends CPU access and closes the descriptor.
void EndDmaBufferAccess(int fd);

}  // namespace roci::memory
