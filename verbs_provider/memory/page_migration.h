// Page migration for conversion (convert.h): moves a range of private anonymous memory to a file
// and back, while other threads and the kernel use it.
#pragma once

#include <cstdint>

namespace roci::provider {

/// Descriptors that a migration needs; conversion_file.cc owns them.
struct MigrationFiles {
  /// /dev/userfaultfd, used if userfaultfd(2) is not permitted; -1: none.
  int userfaultfd_device;
  /// Sparse sealed memfd, as large as the address space: the page at address A is at file offset A.
  /// So one descriptor serves all ranges, and adjacent ranges merge into one mapping.
  int file;
};

/// Addresses that can be offsets of MigrationFiles::file: every user address of 4-level page
/// tables.
inline constexpr uint64_t kMigrationFileSize = uint64_t{1} << 47;

/// Moves the private anonymous pages [begin, end), which lie in one mapping of protection
/// `protection`, to the file, piece by piece. Accesses to a piece block for a few ms at most. 0, or
/// an errno if a piece could not be moved; that piece and the rest are unchanged, and `*done` is
/// the end of the moved part. The range must not contain the caller's stack, thread-local storage
/// or global data: the migration uses these, but neither malloc nor the dynamic linker.
int MigrateToFile(uint64_t begin, uint64_t end, int protection, const MigrationFiles& files,
                  uint64_t* done);

/// Replaces a mapping [begin, end) of the file from `offset` on by private memory with the same
/// content, and frees the file's pages. Writes through this mapping block meanwhile; the caller
/// ensures that the file is not written in another way. 0 or an errno, and `*done`, as above.
int MigrateToPrivate(uint64_t begin, uint64_t end, uint64_t offset, int protection,
                     const MigrationFiles& files, uint64_t* done);

/// Frees the file's pages for [begin, end).
void DropFilePages(uint64_t begin, uint64_t end, const MigrationFiles& files);

}  // namespace roci::provider
