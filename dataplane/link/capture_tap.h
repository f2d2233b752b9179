// Passes copies of frames from the lcores to the control thread, which reads the capture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/limits.h"
#include "dataplane/types/capture_reader.h"
#include "dataplane/types/capture_settings.h"
#include "verbs_provider/abi/rings.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

class FramePool;

// One capture of one device. It has a frame pool of its own, so that a slow reader takes no buffers
// from the traffic. The control thread makes and destroys it while no lcore uses it.
class CaptureTap final : public CaptureReader {
 public:
  static absl::StatusOr<std::unique_ptr<CaptureTap>> Create(uint32_t lcores,
                                                            const CaptureSettings& settings);
  ~CaptureTap() override;

  // On `lcore`. Copies the frames that match the filter.
  void Take(uint32_t lcore, rte_mbuf* const* frames, uint32_t count, LinkDirection direction,
            uint64_t now_ns);

  // On `lcore`. Fewer than half of the frames that may wait do so.
  bool HasRoom(uint32_t lcore) const;

  // ---- Control thread
  bool Next(CapturedFrame& out) override;
  uint64_t dropped() const override;

 private:
  struct alignas(ROCI_ABI_CACHE_LINE) Lane {
    rte_ring* ring = nullptr;
    rte_mbuf* oldest = nullptr;  // of the control thread: dequeued, not returned yet
    Counter dropped;
  };

  explicit CaptureTap(const CaptureSettings& settings);
  void Free(rte_mbuf* frame);

  const CaptureSettings settings_;
  std::unique_ptr<FramePool> pool_;
  uint32_t lcores_ = 0;
  std::array<Lane, kMaxLcores> lanes_;
  rte_mbuf* handed_out_ = nullptr;
  std::vector<std::byte> gathered_;  // a frame of several segments, linearized
};

}  // namespace roci::dataplane
