#include "tests/interop/rpcrdma/verbs_objects.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

namespace rpcrdma {

void ThrowErrno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

RegisteredSlots::RegisteredSlots(ibv_pd* pd, size_t count, size_t slot_bytes, int access)
    : count_(count), slot_bytes_(slot_bytes) {
  const size_t bytes = count * slot_bytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) ThrowErrno("mmap of " + std::to_string(bytes) + " bytes");
  memory_ = static_cast<std::byte*>(memory);
  mr_.reset(ibv_reg_mr(pd, memory, bytes, access));
  if (mr_ != nullptr) return;
  const int error = errno;
  munmap(memory, bytes);
  errno = error;
  ThrowErrno("registration of " + std::to_string(bytes) + " bytes");
}

RegisteredSlots::~RegisteredSlots() {
  mr_.reset();
  munmap(memory_, count_ * slot_bytes_);
}

ibv_sge RegisteredSlots::Sge(std::span<const std::byte> bytes) const {
  return {reinterpret_cast<uintptr_t>(bytes.data()), static_cast<uint32_t>(bytes.size()),
          mr_->lkey};
}

}  // namespace rpcrdma
