// The cold part of a key. Internal to key_table*.cc.
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
  const AppMemory* app = nullptr;  // owner of the memory
  uint64_t va = 0;
  std::vector<Extent> extents;
  Entry* windows = nullptr;  // bound windows, linked through of_region
  // Window: the region it is bound to (null: not bound), and its offset in the region.
  Entry* parent = nullptr;
  uint64_t offset = 0;
  // List links of a bound window: of its region, and for type 2 of its queue pair's bucket.
  struct Chain {
    Entry* next = nullptr;   // next window
    Entry** link = nullptr;  // the pointer that points to this window
  };
  Chain of_region;
  Chain of_qp;
  // Inserts `window` at the front of the list `head`.
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
  // List region: its runs; signature region: also the runs of its protection information.
  std::vector<PlacedRun> runs;
  std::vector<PlacedRun> protection;
  uint32_t max_runs = 0;
  uint32_t max_protection = 0;
  bool is_valid = false;
  std::optional<ListBytes> bytes;              // of a list
  std::unique_ptr<IntegrityRegion> integrity;  // of a signature region only
};

}  // namespace roci::memory
