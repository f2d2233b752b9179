// The frame buffers (mbufs) of the daemon, shared by all lcores and ports.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

struct rte_mempool;

namespace roci::dataplane {

// Offset in its buffer of a frame that the daemon builds, in bytes. The payload of an ordinary
// WRITE or SEND (behind Ethernet, IPv4, UDP and BTH headers) then starts on a cache line.
inline constexpr uint16_t kFrameOffset = 128 + 10;
// Bytes of a buffer, from its start; roce::kMaxFrameBytes fit from kFrameOffset on.
inline constexpr uint16_t kFrameBufferBytes = 4480;

// Memory of the frames without hugepages. With hugepages, frames are always in these.
enum class FrameMemory : uint8_t {
  kOwn,      // anonymous memory, in transparent huge pages if possible
  kDevices,  // DPDK's heap, which PCI devices and the peers of net_virtio_user can access
};

// An rte_mempool of single-segment buffers.
class FramePool {
 public:
  // `buffer_bytes` as kFrameBufferBytes, at most 65535.
  static absl::StatusOr<std::unique_ptr<FramePool>> Create(
      uint32_t frames, uint16_t buffer_bytes = kFrameBufferBytes,
      FrameMemory memory = FrameMemory::kOwn);
  // Upper bound of the heap that a pool takes, in MiB.
  static uint32_t HeapMib(uint32_t frames, uint16_t buffer_bytes);
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  rte_mempool* mempool() const { return pool_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t in_use() const;  // approximate while lcores run

 private:
  FramePool() = default;
  rte_mempool* pool_ = nullptr;
  uint32_t capacity_ = 0;
};

}  // namespace roci::dataplane
