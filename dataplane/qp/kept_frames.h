// Frames of early packets (roce::EarlyAction::kKeep), of all queue pairs of an lcore.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "dataplane/base/on_shard.h"
#include "roce/types.h"

struct rte_mbuf;

namespace roci::dataplane {

class KeptFrames {
 public:
  // A small part of the frames of an lcore: while they are kept, ports cannot receive into them.
  static constexpr uint16_t kMost = 512;

  // The frames of one queue pair, in the order in which they are due: responses, requests.
  struct List {
    std::array<uint16_t, 2> first{kNone, kNone};
    std::array<uint16_t, 2> last{kNone, kNone};
    uint16_t count = 0;
  };

  KeptFrames();
  ~KeptFrames();
  KeptFrames(const KeptFrames&) = delete;
  KeptFrames& operator=(const KeptFrames&) = delete;

  // A queue pair may keep as many frames as it leaves free. So one whose peer leaves gaps on
  // purpose gets half of them, two get a third each, and there is always room for others.
  bool HasRoom(const OnShard&, const List& list) const { return list.count < free_count_; }
  // Takes ownership of the frame. There must be room.
  void Keep(const OnShard&, List& list, bool is_request, roce::Psn due, rte_mbuf* frame);
  std::optional<roce::Psn> FirstDue(const OnShard&, const List& list, bool is_request) const;
  // The caller becomes the owner. Null: there is none.
  rte_mbuf* TakeFirst(const OnShard&, List& list, bool is_request);

 private:
  static constexpr uint16_t kNone = UINT16_MAX;
  struct Entry {
    rte_mbuf* frame;
    roce::Psn due;
    uint16_t next;  // in its list, or the next free entry
  };

  std::array<Entry, kMost> entries_;
  uint16_t free_ = 0;
  uint16_t free_count_ = kMost;
};

}  // namespace roci::dataplane
