// The control thread's end of a capture: takes the captured frames.
#pragma once

#include <cstdint>

#include "dataplane/types/capture_settings.h"

namespace roci::dataplane {

// Control thread only.
class CaptureReader {
 public:
  // Most frames of each lcore that wait for the reader; further ones are dropped and counted.
  static constexpr uint32_t kMaxWaiting = 4096;

  CaptureReader() = default;
  virtual ~CaptureReader() = default;
  CaptureReader(const CaptureReader&) = delete;
  CaptureReader& operator=(const CaptureReader&) = delete;

  // Takes the oldest frame of all lcores. False: there is none.
  virtual bool Next(CapturedFrame& out) = 0;
  // Frames that matched the filter and were dropped for lack of room.
  virtual uint64_t dropped() const = 0;
};

}  // namespace roci::dataplane
