// The headers of tag matching, at the start of each message to a tag-matching receive queue
// (rdma-core, Documentation/tag_matching.md; infiniband/tm_types.h). The transport treats them as
// payload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "roce/headers.h"

namespace roci::roce {

enum class TagOperation : uint8_t {
  kNoTag = 0,       // the other fields are ignored
  kRendezvous = 1,  // a RendezvousHeader follows
  kFinished = 2,    // the rendezvous with these headers is done
  kEager = 3,       // the data follows
};

// Every field big-endian on the wire.
struct TagHeader {
  static constexpr uint32_t kBytes = 16;
  uint8_t operation = 0;  // TagOperation; other values mean no tag
  uint32_t context = 0;   // opaque; reported with the match
  uint64_t tag = 0;

  static TagHeader Load(const std::byte* p) {
    return {std::to_integer<uint8_t>(p[0]), LoadBe<uint32_t>(p + 4), LoadBe<uint64_t>(p + 8)};
  }
  void Store(std::byte* p) const {
    StoreBe<uint32_t>(p, uint32_t{operation} << 24);
    StoreBe(p + 4, context);
    StoreBe(p + 8, tag);
  }
};

// The location of the sender's data, for an RDMA READ.
struct RendezvousHeader {
  static constexpr uint32_t kBytes = 16;
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;  // bytes

  static RendezvousHeader Load(const std::byte* p) {
    return {LoadBe<uint64_t>(p), LoadBe<uint32_t>(p + 8), LoadBe<uint32_t>(p + 12)};
  }
  void Store(std::byte* p) const {
    StoreBe(p, va);
    StoreBe(p + 8, rkey);
    StoreBe(p + 12, length);
  }
};

// Both headers of a rendezvous request.
inline constexpr uint32_t kRendezvousBytes = TagHeader::kBytes + RendezvousHeader::kBytes;

}  // namespace roci::roce
