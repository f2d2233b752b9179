// The moves behind conversion: put a range of private anonymous memory onto a file, and back, while
// other threads and the kernel go on using it.
#pragma once

#include <cstdint>

namespace roci::provider {

/// Descriptors that the moves need; owned by convert.cc.
struct SwapTools {
  /// /dev/userfaultfd, used where userfaultfd(2) is not permitted; -1: none.
  int userfaultfd_device;
  /// Sparse sealed memfd, as large as the address space: the page at address A belongs at file
  /// offset A. So one descriptor serves every range, and neighbours merge into one mapping.
  int file;
};

/// Addresses that can be offsets of SwapTools::file: every user address of 4-level page tables.
inline constexpr uint64_t kSwapFileSize = uint64_t{1} << 47;

/// Puts the private anonymous pages [begin, end), which lie in one mapping of protection
/// `protection`, onto the file. Whoever touches them meanwhile waits, a few ms at most: it goes
/// piece by piece. 0, or an errno when a piece could not be moved; it and those after it are as
/// before, *done tells where the moved part ends. The caller's stack, thread-local storage and
/// global data are outside the range. Nothing else (no malloc, no dynamic linking) is used while a
/// piece is away.
int SwapToFile(uint64_t begin, uint64_t end, int protection, const SwapTools& tools,
               uint64_t* done);

/// The way back, for a mapping [begin, end) of the file from `offset` on. Whoever writes to the
/// pages through this mapping meanwhile waits; nobody may write to the file in another way. The
/// file's pages are freed. 0 or an errno, as above.
int SwapToPrivate(uint64_t begin, uint64_t end, uint64_t offset, int protection,
                  const SwapTools& tools, uint64_t* done);

/// Frees the file's pages for [begin, end).
void DropFilePages(uint64_t begin, uint64_t end, const SwapTools& tools);

}  // namespace roci::provider
