// Reads /proc/self/maps without malloc: from its beginning, or, if the kernel has PROCMAP_QUERY
// (Linux 6.11), from an address on.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace roci::provider {

/// One line: a mapping of this process.
struct MapsLine {
  uint64_t begin;
  uint64_t end;
  uint64_t offset;
  uint64_t device;  ///< dev_t
  uint64_t inode;   ///< 0: anonymous
  bool readable;
  bool writable;
  bool executable;
  bool shared;
  /// NUL-terminated, truncated to the buffer; empty for unnamed anonymous memory.
  char path[512];
};

/// Parses one line of `length` bytes without its newline. False if it is malformed.
bool ParseMapsLine(const char* text, size_t length, MapsLine* line);

/// Returns mappings in the order of their addresses. Lives on the caller's stack, with its buffer.
/// The caller may change mappings below the end of the last line. A concurrent change by another
/// thread is seen or not.
class MapsReader {
 public:
  /// Opens the descriptor that stays open for all readers: it saves opening the file, and works
  /// after a chroot(2) without /proc. Otherwise the first reader that seeks opens it.
  static void HoldFile();

  /// Skips mappings that end at or before `from`.
  explicit MapsReader(uint64_t from = 0) : MapsReader(from, 0) {}
  /// From the beginning. If seeks(), skips anonymous mappings, which is faster.
  static MapsReader OfFiles() { return {1, kFilesOnly}; }
  ~MapsReader();
  MapsReader(const MapsReader&) = delete;
  MapsReader& operator=(const MapsReader&) = delete;

  bool ok() const { return fd_ >= 0; }
  /// Whether the reader begins at `from` without reading the mappings below.
  bool seeks() const { return seeks_; }
  /// False at the end of the file or on an error.
  bool Next(MapsLine* line);

 private:
  static constexpr uint64_t kFilesOnly = 32;  // PROCMAP_QUERY_FILE_BACKED_VMA

  MapsReader(uint64_t from, uint64_t query_flags);
  int Query(MapsLine* line);
  void FallBackToText();
  bool NextOfText(MapsLine* line);
  bool Fill();

  int fd_ = -1;
  bool owns_fd_ = false;  // false: `fd_` is the descriptor of HoldFile()
  off_t position_ = 0;    // of the text that is not read yet
  bool seeks_ = false;
  uint64_t query_flags_;
  uint64_t from_;
  size_t begin_ = 0;
  size_t end_ = 0;
  // The kernel returns at most a page per read. Longer lines lose the end of their path.
  char buffer_[4096 + 512];
};

}  // namespace roci::provider
