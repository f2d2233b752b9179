// Which files a foreign process cannot make the daemon wait for.
#pragma once

#include <cstddef>
#include <optional>

namespace roci::memory {

/// A regular file of a file system whose calls end by themselves.
struct LocalFile {
  size_t page_size;  ///< Bytes; of huge pages for hugetlbfs.
  bool durable;      ///< Its contents outlive a power failure.
};

/// What `fd` is (O_PATH will do); nothing where the answer of some call on it could be another
/// process's to withhold: FUSE, network and stacked file systems, sockets, devices. Never blocks:
/// fstat(2) and fstatfs(2) of a FUSE file would. A local file system that this process sees mounted
/// nowhere is not recognised, except where its files have seals (tmpfs, hugetlbfs) and `fd` is not
/// O_PATH.
std::optional<LocalFile> InspectLocalFile(int fd);

/// Whether `fd` is a DMA buffer (dma_buf(9)). Never blocks.
bool IsDmaBuffer(int fd);

}  // namespace roci::memory
