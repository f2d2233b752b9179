// The control thread's end of a trace: takes the records that lcores have written.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/types/trace_record.h"

namespace roci::dataplane {

// Control thread only.
class TraceReader {
 public:
  TraceReader() = default;
  virtual ~TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  // Appends the records that are older than `before_ns`, lcore by lcore.
  virtual void Take(uint64_t before_ns, std::vector<TraceRecord>& out) = 0;
};

}  // namespace roci::dataplane
