// The frame buffers (mbufs) of the daemon, shared by all lcores and ports.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

struct rte_mempool;

namespace roci::dataplane {

// Where a frame that this daemon builds starts in its buffer: WRITE and SEND payloads of a common
// frame (Ethernet, IPv4, UDP, BTH) then begin on a cache line.
inline constexpr uint16_t kFrameOffset = 128 + 10;
// Bytes of a buffer behind its start; holds roce::kMaxFrameBytes from kFrameOffset on.
inline constexpr uint16_t kFrameBufferBytes = 4480;

// Where frames lie without hugepages (in these they lie in any case).
enum class FrameMemory : uint8_t {
  kOwn,      // in transparent huge pages, where the kernel gives them
  kDevices,  // in DPDK's heap, which PCI devices and the peers of net_virtio_user can reach
};

// An rte_mempool of single-segment buffers.
class FramePool {
 public:
  // `buffer_bytes` as kFrameBufferBytes, at most 65535.
  static absl::StatusOr<std::unique_ptr<FramePool>> Create(
      uint32_t frames, uint16_t buffer_bytes = kFrameBufferBytes,
      FrameMemory memory = FrameMemory::kOwn);
  // How much of the heap a pool takes, generously.
  static uint32_t HeapMib(uint32_t frames, uint16_t buffer_bytes);
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  rte_mempool* mempool() const { return pool_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t in_use() const;  // not exact while lcores run

 private:
  FramePool() = default;
  rte_mempool* pool_ = nullptr;
  uint32_t capacity_ = 0;
};

}  // namespace roci::dataplane
