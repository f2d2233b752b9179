// The kinds of memory that the rows of memory_table.cc register. Also copies of memory that may be
// unmapped: a signal during the access is a valid result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace interop {

/// The writer of the words in memory. Each word also contains its offset in the region.
enum class Pattern : uint8_t {
  kFirst = 1,  ///< the program, when the region was made
  kNew,        ///< the program, after the operation
  kDevice,     ///< an RDMA WRITE or READ of the device
  kChild,      ///< a child process
  kBrought,    ///< the operation, from a file or a page fault handler
  kFile,       ///< the file below a private mapping
};

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
/// Bytes at the start of every region, for traffic during the operation.
constexpr size_t kTrafficLength = 4 * kPage;

/// Memory of one kind, filled with Pattern::kFirst.
struct Region {
  std::string kind = {};
  uint8_t* data = nullptr;
  size_t length = 0;
  size_t part = 0;  ///< offset of the part that operations change, whole pages of the kind
  size_t part_length = 0;
  bool writable = true;  ///< false: read-only, also for the device
  int fd = -1;           ///< of the file, if there is one
};

/// The names of all kinds but device memory, in the order of the table.
const std::vector<std::string>& Kinds();
/// A region of `kind` with its files in `folder`. `stack` points to StackBytes() bytes of the
/// caller's stack. `data` is null if the machine has no such memory.
Region MakeRegion(const std::string& kind, const std::string& folder, uint8_t* stack);
size_t StackBytes();

/// Fills `length` bytes, a multiple of 8. `offset` is their place in the region.
void Fill(Pattern pattern, void* at, size_t offset, size_t length);
bool Holds(Pattern pattern, const void* at, size_t offset, size_t length);
bool HoldsZeros(const void* at, size_t length);

/// Copies. Returns 0 or the signal that the access raised.
int Copy(void* to, const void* from, size_t length);
/// Installs the signal handlers for Copy(). Call once in each process, before starting threads.
void CatchFaults();

}  // namespace interop
