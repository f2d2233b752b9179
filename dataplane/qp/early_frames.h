// Frames of early packets (roce::EarlyAction::kKeep), of all queue pairs of an lcore.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "dataplane/base/on_shard.h"
#include "roce/types.h"

struct rte_mbuf;

namespace roci::dataplane {

class EarlyFrames {
 public:
  // A small part of the frames of an lcore: while they are kept, ports cannot receive into them.
  static constexpr uint16_t kMost = 512;

  // The frames of one queue pair, in the order in which they are due: responses, requests.
  struct List {
    std::array<uint16_t, 2> first{kNone, kNone};
    std::array<uint16_t, 2> last{kNone, kNone};
    // Frames that the user keeps on all lcores (CopyUse::early), or of_domains().
    std::atomic<uint32_t>* of_user = nullptr;
  };

  EarlyFrames();
  ~EarlyFrames();
  EarlyFrames(const EarlyFrames&) = delete;
  EarlyFrames& operator=(const EarlyFrames&) = delete;

  // A user may keep as many frames as remain free: the first user gets half of them, the next one a
  // quarter, and so on. Without room, early packets are dropped, as with go-back-N.
  bool HasRoom(const OnShard&, const List& list) const {
    return list.of_user->load(std::memory_order_relaxed) < free_count_;
  }
  // Takes ownership of the frame. There must be room.
  void Keep(const OnShard&, List& list, bool is_request, roce::Psn due, rte_mbuf* frame);
  std::optional<roce::Psn> FirstDue(const OnShard&, const List& list, bool is_request) const;
  // The caller becomes the owner. Null: there is none.
  rte_mbuf* TakeFirst(const OnShard&, List& list, bool is_request);
  // Counts the frames of queue pairs of XRC domains, which have several users.
  std::atomic<uint32_t>& of_domains() { return of_domains_; }

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
  std::atomic<uint32_t> of_domains_{0};
};

}  // namespace roci::dataplane
