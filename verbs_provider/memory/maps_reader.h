// Reads /proc/self/maps without malloc: from its beginning, or, where the kernel can be asked for
// one mapping (PROCMAP_QUERY, Linux 6.11), from an address on.
#pragma once

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
  /// Cut to the buffer and ended by NUL; empty for unnamed anonymous memory.
  char path[512];
};

/// Parses one line of `length` bytes without its newline. False when it is not one.
bool ParseMapsLine(const char* text, size_t length, MapsLine* line);

/// Line by line, with read(2) into its own buffer on the caller's stack. The kernel goes by
/// address, so changing mappings behind the line just read is fine; memory that others change
/// meanwhile is seen before or after the change.
class MapsReader {
 public:
  /// Keeps a descriptor of the file open, which saves opening it and still works where a later
  /// chroot(2) leaves no /proc. Readers do it themselves where it has not been done.
  static void HoldFile();

  /// Mappings that end at or before `from` are left out.
  explicit MapsReader(uint64_t from = 0) : MapsReader(from, 0) {}
  /// From the beginning, but anonymous mappings may be left out, which is faster where seeks().
  static MapsReader OfFiles() { return {1, kFilesOnly}; }
  ~MapsReader();
  MapsReader(const MapsReader&) = delete;
  MapsReader& operator=(const MapsReader&) = delete;

  bool ok() const { return fd_ >= 0; }
  /// Whether beginning at an address costs no more than beginning there.
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
  bool owns_fd_ = false;  // else it is the held one
  bool seeks_ = false;
  uint64_t query_flags_;
  uint64_t from_;
  size_t begin_ = 0;
  size_t end_ = 0;
  char buffer_[4096 + 512];  // the kernel hands out a page at most; longer lines lose the end of
                             // their path
};

}  // namespace roci::provider
