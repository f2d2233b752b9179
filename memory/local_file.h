// Recognises files whose calls and page faults no other process can block.
#pragma once

#include <cstddef>
#include <optional>

namespace roci::memory {

/// A regular file of a local file system.
struct LocalFile {
  size_t page_size;  ///< Bytes; of huge pages for hugetlbfs.
  bool durable;      ///< The contents survive a power failure once synced.
};

/// Describes `fd` (O_PATH is enough). nullopt if another process could block calls on it: FUSE,
/// network and stacked file systems, sockets, devices. Never blocks, unlike fstat(2) and fstatfs(2)
/// of a FUSE file. A local file system that is not mounted in this process's namespace is not
/// recognised, unless its files have seals (tmpfs, hugetlbfs) and `fd` is not O_PATH.
std::optional<LocalFile> InspectLocalFile(int fd);

/// Whether `fd` is a DMA buffer (dma_buf(9)). Never blocks.
bool IsDmaBuffer(int fd);

}  // namespace roci::memory
