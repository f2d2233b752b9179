// The headers of tag matching: what messages to a tag-matching receive queue begin with (rdma-core,
// Documentation/tag_matching.md; infiniband/tm_types.h). They are payload to the transport.
#pragma once

#include <cstddef>
#include <cstdint>

#include "roce/headers.h"

namespace roci::roce {

enum class TagOperation : uint8_t {
  kNoTag = 0,       // nothing else of the header means anything
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

// Where the sender's data lies, for an RDMA READ.
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

// Both, as a rendezvous request begins.
inline constexpr uint32_t kRendezvousBytes = TagHeader::kBytes + RendezvousHeader::kBytes;

}  // namespace roci::roce
