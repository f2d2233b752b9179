// The ordered list of tagged buffers of a tag-matching receive queue, and the count of unexpected
// messages, which decides which buffers may be matched. Pure: no rings, no packets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "roce/work.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::dataplane {

// A tagged buffer. A message with tag `t` matches if (t & mask) == tag.
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

// The rule about unexpected messages (rdma-core, Documentation/tag_matching.md): if the program
// posts a buffer before it has seen an unexpected message that would match, a later message must
// not take the buffer. So a new buffer can be matched only after the program has reported the
// current number of unexpected messages. Buffers posted earlier stay matchable.
class TagList {
 public:
  explicit TagList(uint32_t max_tags);

  // Appends a buffer. False: no such slot, or the slot is taken.
  bool Add(const TaggedBuffer& buffer);
  // False: the buffer is not in the list, or `handle` is of an earlier buffer in its slot.
  bool Remove(uint32_t handle);
  // Removes from the list, and returns, the oldest buffer that matches and may be matched. Its slot
  // stays taken until Release. Null: no match.
  const TaggedBuffer* Match(uint64_t tag);
  const TaggedBuffer& At(uint32_t slot) const { return buffers_[slot]; }
  // Frees a slot that Match returned.
  void Release(uint32_t slot);

  // A message that matched no buffer has taken an untagged receive, or was lost.
  void NoteUnexpected() { ++unexpected_; }
  void TakeBackUnexpected() {
    --unexpected_;
    if (in_sync()) waiting_ = kNone;
  }
  // The program has seen `count` unexpected messages.
  void Sync(uint32_t count);
  bool in_sync() const { return handled_ == unexpected_; }
  // Unexpected messages that the program has not reported yet.
  uint32_t behind() const { return unexpected_ - handled_; }

  uint32_t size() const { return size_; }  // buffers in the list
  uint32_t max_tags() const { return static_cast<uint32_t>(buffers_.size()); }

 private:
  static constexpr uint32_t kNone = ~0u;
  enum class State : uint8_t { kFree, kListed, kMatched };
  // Separate from the buffers, because matching reads only these.
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
  uint32_t waiting_ = kNone;  // the first buffer that may not be matched yet, like all later ones
  uint32_t size_ = 0;
  uint32_t unexpected_ = 0;  // both counters wrap
  uint32_t handled_ = 0;
};

}  // namespace roci::dataplane
