// io_uring by system calls, for reads into a fixed buffer.
#pragma once

#include <cstddef>
#include <cstdint>

struct io_uring_sqe;
struct io_uring_cqe;

namespace interop {

class Uring {
 public:
  /// False if the kernel has no io_uring or denies it to the program.
  bool Open();
  /// Returns an errno, or 0.
  int RegisterBuffer(void* at, size_t length) const;
  /// Reads into the registered buffer and waits for the end. Returns an errno, or 0.
  int ReadFixed(int fd, void* at, size_t length, uint64_t offset);

 private:
  int fd_ = -1;
  uint32_t* sq_tail_ = nullptr;
  uint32_t* sq_mask_ = nullptr;
  uint32_t* sq_array_ = nullptr;
  uint32_t* cq_head_ = nullptr;
  uint32_t* cq_mask_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  io_uring_cqe* completions_ = nullptr;
};

}  // namespace interop
