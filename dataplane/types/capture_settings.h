// Filter of a capture, and a captured frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/types/frame_filter.h"

namespace roci::dataplane {

struct CaptureSettings {
  FrameFilter filter;
  bool in = true;
  bool out = true;
  uint32_t snap_length = UINT32_MAX;  // most bytes of a frame that are captured
};

struct CapturedFrame {
  LinkDirection direction{};
  uint64_t time_ns = 0;              // CLOCK_MONOTONIC, of the burst
  uint32_t original_length = 0;      // bytes on the wire, without FCS
  std::span<const std::byte> bytes;  // valid until the next CaptureReader::Next
};

}  // namespace roci::dataplane
