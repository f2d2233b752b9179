#include "tests/interop/memory_uring.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace interop {
namespace {

constexpr unsigned kEntries = 4;
constexpr size_t kRingLength = 65536;  // far more than these few entries need

uint8_t* MapRing(int fd, off_t which) {
  void* at = mmap(nullptr, kRingLength, PROT_READ | PROT_WRITE, MAP_SHARED, fd, which);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

uint32_t* WordAt(uint8_t* ring, uint32_t offset) {
  return reinterpret_cast<uint32_t*>(ring + offset);
}

}  // namespace

bool Uring::Open() {
  io_uring_params params = {};
  fd_ = static_cast<int>(syscall(SYS_io_uring_setup, kEntries, &params));
  if (fd_ < 0) return false;
  uint8_t* sq = MapRing(fd_, IORING_OFF_SQ_RING);
  uint8_t* cq = MapRing(fd_, IORING_OFF_CQ_RING);
  uint8_t* entries = MapRing(fd_, IORING_OFF_SQES);
  if (sq == nullptr || cq == nullptr || entries == nullptr) return false;
  sq_tail_ = WordAt(sq, params.sq_off.tail);
  sq_mask_ = WordAt(sq, params.sq_off.ring_mask);
  sq_array_ = WordAt(sq, params.sq_off.array);
  cq_head_ = WordAt(cq, params.cq_off.head);
  cq_mask_ = WordAt(cq, params.cq_off.ring_mask);
  completions_ = reinterpret_cast<io_uring_cqe*>(cq + params.cq_off.cqes);
  entries_ = reinterpret_cast<io_uring_sqe*>(entries);
  return true;
}

int Uring::RegisterBuffer(void* at, size_t length) const {
  const iovec buffer = {at, length};
  const long status = syscall(SYS_io_uring_register, fd_, IORING_REGISTER_BUFFERS, &buffer, 1);
  return status == 0 ? 0 : errno;
}

int Uring::ReadFixed(int fd, void* at, size_t length, uint64_t offset) {
  const uint32_t tail = *sq_tail_;
  const uint32_t slot = tail & *sq_mask_;
  io_uring_sqe& entry = entries_[slot];
  memset(&entry, 0, sizeof(entry));
  entry.opcode = IORING_OP_READ_FIXED;
  entry.fd = fd;
  entry.addr = reinterpret_cast<uintptr_t>(at);
  entry.len = static_cast<uint32_t>(length);
  entry.off = offset;
  sq_array_[slot] = slot;
  __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) != 1) return errno;
  const uint32_t head = *cq_head_;
  const int got = completions_[head & *cq_mask_].res;
  __atomic_store_n(cq_head_, head + 1, __ATOMIC_RELEASE);
  if (got < 0) return -got;
  return got == static_cast<int>(length) ? 0 : EIO;
}

}  // namespace interop
