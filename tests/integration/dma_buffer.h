// A DMA buffer of this machine's kernel, for tests: of udmabuf, or of a graphics driver whose
// memory the CPU can map (vgem, which needs no hardware).
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::testing {

class DmaBuffer {
 public:
  // Check `fd` afterwards: -1 if the kernel has no exporter.
  explicit DmaBuffer(size_t bytes);
  ~DmaBuffer();
  DmaBuffer(const DmaBuffer&) = delete;
  DmaBuffer& operator=(const DmaBuffer&) = delete;

  int fd = -1;
  size_t size = 0;
  uint8_t* data = nullptr;  // the test's mapping

 private:
  int device_ = -1;  // keeps the buffer of a graphics driver alive
};

}  // namespace roci::testing
