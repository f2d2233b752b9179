// A DMA buffer of this machine's kernel, for tests: of udmabuf, or of a graphics driver whose
// memory the CPU can map (vgem, which needs no hardware).
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::testing {

class DmaBuffer {
 public:
  // Check `fd` afterwards: -1 where the kernel has nothing that exports one.
  explicit DmaBuffer(size_t bytes);
  ~DmaBuffer();
  DmaBuffer(const DmaBuffer&) = delete;
  DmaBuffer& operator=(const DmaBuffer&) = delete;

  int fd = -1;
  size_t size = 0;
  uint8_t* data = nullptr;  // as the test sees it

 private:
  int device_ = -1;  // keeps the buffer where it is a graphics driver's
};

}  // namespace roci::testing
