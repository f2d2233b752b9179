#include "tests/interop/rpcrdma/reply_plan.h"

#include <algorithm>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

// Fills a chunk from front to back, and notes in it how much of each segment was used.
class ChunkFiller {
 public:
  // `offered` is what the requester gave; `used` becomes the chunk of the reply.
  ChunkFiller(const Chunk& offered, Chunk& used, std::vector<RemoteWrite>& writes)
      : offered_(offered), used_(used), writes_(writes) {
    used_ = offered;
    for (Segment& segment : used_) segment.length = 0;
  }

  // The chunk must have room for `range`.
  void Append(Range range) {
    while (range.length > 0) {
      const Segment& offer = offered_[at_];
      Segment& use = used_[at_];
      const size_t bytes = std::min<size_t>(range.length, offer.length - use.length);
      if (bytes == 0) {
        ++at_;
        continue;
      }
      writes_.push_back({{range.offset, bytes}, offer.handle, offer.offset + use.length});
      use.length += static_cast<uint32_t>(bytes);
      range.offset += bytes;
      range.length -= bytes;
    }
  }

 private:
  const Chunk& offered_;
  Chunk& used_;
  std::vector<RemoteWrite>& writes_;
  size_t at_ = 0;
};

// The Write list of the reply: the first chunk takes the data; the others stay unused, with
// lengths of zero (RFC 8166, section 4.3.2.2). An empty chunk asks for inline data (4.3.2.3).
// True: `bulk` is placed by writes.
bool PlaceBulk(const Header& call, const Range& bulk, ReplyPlan& plan) {
  plan.header.writes.resize(call.writes.size());
  for (size_t i = 0; i < call.writes.size(); ++i) {
    ChunkFiller filler(call.writes[i], plan.header.writes[i], plan.writes);
    if (i == 0 && !call.writes[0].empty()) filler.Append(bulk);
  }
  return bulk.length > 0 && !call.writes.empty() && !call.writes[0].empty();
}

void AddRange(std::vector<Range>& ranges, size_t begin, size_t end) {
  if (begin < end) ranges.push_back({begin, end - begin});
}

// The message without what was placed directly and its round-up (RFC 8166, section 3.4.4.4).
std::vector<Range> Reduced(size_t message_bytes, const Range& bulk, bool placed) {
  std::vector<Range> ranges;
  const size_t behind = placed ? bulk.offset + PaddedLength(bulk.length) : 0;
  if (placed) AddRange(ranges, 0, bulk.offset);
  AddRange(ranges, behind, message_bytes);
  return ranges;
}

size_t BytesOf(const std::vector<Range>& ranges) {
  size_t bytes = 0;
  for (const Range& range : ranges) bytes += range.length;
  return bytes;
}

bool IsBulk(size_t message_bytes, const Range& bulk) {
  return bulk.length == 0 ||
         (bulk.offset % 4 == 0 && bulk.offset <= message_bytes && bulk.length <= message_bytes &&
          PaddedLength(bulk.length) <= message_bytes - bulk.offset);
}

}  // namespace

const char* Name(ReplyFault fault) {
  static constexpr const char* kNames[kReplyFaults] = {
      "none",
      "Write chunk too short",
      "Reply chunk too short",
      "reply too long for inline, no Reply chunk",
      "service named a wrong range",
  };
  return kNames[static_cast<size_t>(fault)];
}

ReplyFault PlanReply(const Header& call, size_t message_bytes, const Range& bulk,
                     size_t inline_bytes, uint32_t credits, ReplyPlan& plan) {
  plan = ReplyPlan();
  plan.header.xid = call.xid;
  plan.header.credits = credits;
  if (!IsBulk(message_bytes, bulk)) return ReplyFault::kBadBulk;
  if (!call.writes.empty() && !call.writes[0].empty() && ChunkBytes(call.writes[0]) < bulk.length) {
    return ReplyFault::kWriteChunkTooShort;
  }
  const bool placed = PlaceBulk(call, bulk, plan);
  plan.payload = Reduced(message_bytes, bulk, placed);
  const size_t rest = BytesOf(plan.payload);
  // A Reply chunk may stay unused (RFC 8166, section 4.3.3), which saves a WRITE.
  if (EncodedLength(plan.header) + rest <= inline_bytes) return ReplyFault::kNone;
  if (!call.reply) return ReplyFault::kTooLongForInline;
  if (ChunkBytes(*call.reply) < rest) return ReplyFault::kReplyChunkTooShort;
  plan.header.procedure = Procedure::kNomsg;
  ChunkFiller filler(*call.reply, plan.header.reply.emplace(), plan.writes);
  for (const Range& range : plan.payload) filler.Append(range);
  plan.payload.clear();
  return EncodedLength(plan.header) <= inline_bytes ? ReplyFault::kNone
                                                    : ReplyFault::kTooLongForInline;
}

uint32_t KeyToInvalidate(const Header& call) {
  if (call.reply && !call.reply->empty()) return call.reply->front().handle;
  for (const Chunk& chunk : call.writes) {
    if (!chunk.empty()) return chunk.front().handle;
  }
  return call.reads.empty() ? 0 : call.reads.front().target.handle;
}

}  // namespace rpcrdma
