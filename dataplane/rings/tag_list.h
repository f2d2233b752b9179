// The ordered list of tagged buffers of a tag-matching receive queue, and the count of unexpected
// messages that says which of them may be matched. No rings, no packets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "roce/work.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::dataplane {

// A tagged buffer. A message with `t` matches if (t & mask) == tag.
struct TaggedBuffer {
  uint64_t wr_id = 0;
  uint64_t tag = 0;
  uint64_t mask = 0;
  uint64_t capacity = 0;  // bytes
  uint32_t handle = 0;    // slot | turn << kSlotBits
  uint32_t num_sge = 0;
  std::array<roce::Sge, ROCI_ABI_MAX_TAG_SGE> sges{};

  static constexpr uint32_t kSlotBits = 16;
  static uint32_t SlotOf(uint32_t handle) { return handle & ((1u << kSlotBits) - 1); }
  uint32_t slot() const { return SlotOf(handle); }
};

// The rule about unexpected messages (rdma-core, Documentation/tag_matching.md): a buffer that the
// program posts while a message that it has not seen may be waiting for that very buffer must not
// take a later one. So buffers count from the moment on at which the program has named the number
// of unexpected messages that there have been; those posted before stay matchable.
class TagList {
 public:
  explicit TagList(uint32_t max_tags);

  // Behind all others. False: there is no such slot, or it is taken.
  bool Add(const TaggedBuffer& buffer);
  // False: it is not in the list (any more), or an earlier one of its slot is meant.
  bool Remove(uint32_t handle);
  // The oldest that matches and may be matched leaves the list; it stays here until Release. Null:
  // none does.
  const TaggedBuffer* Match(uint64_t tag);
  const TaggedBuffer& At(uint32_t slot) const { return buffers_[slot]; }
  // A slot that Match gave out is free.
  void Release(uint32_t slot);

  // A message that matched nothing is in an untagged receive; or it was, and is lost.
  void NoteUnexpected() { ++unexpected_; }
  void TakeBackUnexpected() {
    --unexpected_;
    if (in_sync()) waiting_ = kNone;
  }
  // The program has seen `count` unexpected messages.
  void Sync(uint32_t count);
  bool in_sync() const { return handled_ == unexpected_; }
  // Unexpected messages of which the program has said nothing.
  uint32_t behind() const { return unexpected_ - handled_; }

  uint32_t size() const { return size_; }  // buffers in the list
  uint32_t max_tags() const { return static_cast<uint32_t>(buffers_.size()); }

 private:
  static constexpr uint32_t kNone = ~0u;
  enum class State : uint8_t { kFree, kListed, kMatched };
  // Apart from the buffers, since matching walks over these alone.
  struct Link {
    uint64_t tag, mask;
    uint32_t next, previous;
  };
  void Unlink(uint32_t slot);

  std::vector<Link> links_;
  std::vector<TaggedBuffer> buffers_;
  std::vector<State> states_;
  uint32_t first_ = kNone;
  uint32_t last_ = kNone;
  uint32_t waiting_ = kNone;  // the first that may not be matched yet; nor may those behind it
  uint32_t size_ = 0;
  uint32_t unexpected_ = 0;  // both counters run freely
  uint32_t handled_ = 0;
};

}  // namespace roci::dataplane
