// Reads /proc/self/maps without malloc.
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
  MapsReader();
  ~MapsReader();
  MapsReader(const MapsReader&) = delete;
  MapsReader& operator=(const MapsReader&) = delete;

  bool ok() const { return fd_ >= 0; }
  /// False at the end of the file or on an error.
  bool Next(MapsLine* line);

 private:
  bool Fill();

  int fd_;
  size_t begin_ = 0;
  size_t end_ = 0;
  char buffer_[4096 + 512];  // the kernel hands out a page at most; longer lines lose the end of
                             // their path
};

}  // namespace roci::provider
