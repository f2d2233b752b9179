// Copies of frames on their way from the lcores to the control thread, which writes them down.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/eal.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/link/frame_filter.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

struct CaptureSettings {
  FrameFilter filter;
  bool in = true;
  bool out = true;
  uint32_t snap_length = UINT32_MAX;  // bytes of a frame that are kept
};

struct CapturedFrame {
  LinkDirection direction{};
  uint64_t time_ns = 0;              // CLOCK_MONOTONIC, of the burst
  uint32_t original_length = 0;      // bytes on the wire, without FCS
  std::span<const std::byte> bytes;  // until the next call of Next
};

// One capture of one device. Frame buffers are its own: a slow reader takes none from the traffic.
// Made and destroyed by the control thread, while no lcore uses it.
class CaptureTap {
 public:
  // Frames that wait for the control thread on each lcore; more are dropped and counted.
  static constexpr uint32_t kRingEntries = 4096;

  static absl::StatusOr<std::unique_ptr<CaptureTap>> Create(uint32_t lcores,
                                                            const CaptureSettings& settings);
  ~CaptureTap();
  CaptureTap(const CaptureTap&) = delete;
  CaptureTap& operator=(const CaptureTap&) = delete;

  // On `lcore`. Copies those of the frames that the filter wants.
  void Take(uint32_t lcore, rte_mbuf* const* frames, uint32_t count, LinkDirection direction,
            uint64_t now_ns);

  // Control thread: the oldest frame of all lcores. False: none is there.
  bool Next(CapturedFrame& out);
  // Any thread: frames that were wanted and for which there was no room.
  uint64_t dropped() const;

 private:
  struct alignas(64) Lane {
    rte_ring* ring = nullptr;
    rte_mbuf* oldest = nullptr;  // the control thread's: taken from the ring, not handed out
    Counter dropped;
  };

  explicit CaptureTap(const CaptureSettings& settings) : settings_(settings) {}
  void Free(rte_mbuf* frame);

  const CaptureSettings settings_;
  std::unique_ptr<FramePool> pool_;
  uint32_t lcores_ = 0;
  std::array<Lane, kMaxLcores> lanes_;
  rte_mbuf* handed_out_ = nullptr;
  std::vector<std::byte> gathered_;  // of a frame in several segments
};

}  // namespace roci::dataplane
