// The cold part of a key; for the files of KeyTable alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memory/integrity.h"
#include "memory/key_table.h"
#include "memory/list_bytes.h"

namespace roci::memory {

struct KeyTable::Region {
  const AppMemory* app = nullptr;  // whose memory it is
  uint64_t va = 0;
  std::vector<Extent> extents;
  Entry* windows = nullptr;  // bound to it: the first, the others through of_region
  // Of a window: the region it is bound to, or null, and where in it the window begins.
  Entry* parent = nullptr;
  uint64_t offset = 0;
  // A bound window's places: among those of its region, and, of type 2, of its queue pair's bucket.
  struct Chain {
    Entry* next = nullptr;   // who follows
    Entry** link = nullptr;  // what points here
  };
  Chain of_region;
  Chain of_qp;
  // As the first of the chain that begins at `head`.
  static void Insert(Entry** head, Chain Region::*chain, Entry* window) {
    Chain& place = window->region->*chain;
    place = {*head, head};
    if (*head != nullptr) ((*head)->region->*chain).link = &place.next;
    *head = window;
  }
  static void Remove(Chain Region::*chain, Entry* window) {
    Chain& place = window->region->*chain;
    *place.link = place.next;
    if (place.next != nullptr) (place.next->region->*chain).link = place.link;
    place = {};
  }
  // Of a list region: its parts, and of a signature region those of its protection information.
  std::vector<PlacedRun> runs;
  std::vector<PlacedRun> protection;
  uint32_t max_runs = 0;
  uint32_t max_protection = 0;
  bool is_valid = false;
  std::optional<ListBytes> bytes;              // of a list
  std::unique_ptr<IntegrityRegion> integrity;  // of a signature region only
};

}  // namespace roci::memory
