// The cold part of a key; for the files of KeyTable alone.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/key_table.h"

namespace roci::memory {

struct KeyTable::Region {
  const AppMemory* app = nullptr;  // whose memory it is
  uint64_t va = 0;
  std::vector<Extent> extents;
  uint32_t windows = 0;  // bound to it
  // Of a window: the region it is bound to, or null, and where in it the window begins.
  const Entry* parent = nullptr;
  uint64_t offset = 0;
  // A bound window of type 2, in the list of its queue pair's bucket: who follows, and what points
  // here.
  Entry* next = nullptr;
  Entry** link = nullptr;
  // Of a list region: its parts, sorted by where in the list they begin.
  struct Run {
    uint64_t begin;
    ListRun place;
  };
  std::vector<Run> runs;
  uint32_t max_runs = 0;
  bool is_valid = false;
};

}  // namespace roci::memory
