#include "tests/interop/rpcrdma/marshal_plan.h"

#include <algorithm>

#include "tests/interop/rpcrdma/header.h"
#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

size_t Segments(size_t bytes, size_t segment_bytes) {
  return (bytes + segment_bytes - 1) / segment_bytes;
}

// Length of a header whose lists have so many segments; a Write list has one chunk.
class HeaderLength {
 public:
  void AddReads(size_t segments) { bytes_ += segments * 24; }
  void AddWriteChunk(size_t segments) { bytes_ += 8 + segments * 16; }
  void AddReplyChunk(size_t segments) { bytes_ += 4 + segments * 16; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = kEmptyHeaderBytes;
};

void AddRange(std::vector<Range>& ranges, size_t begin, size_t end) {
  if (begin < end) ranges.push_back({begin, end - begin});
}

// The reply's header repeats the Write list; the data is in its chunk or inline.
void PlanReplyChunks(const CallShape& shape, size_t receive_bytes, size_t segment_bytes,
                     MarshalPlan& plan) {
  HeaderLength header;
  size_t rest = shape.most_reply_bytes + PaddedLength(shape.data_room);
  if (shape.data_room > 0 && header.bytes() + rest > receive_bytes) {
    plan.write_chunk = true;
    header.AddWriteChunk(Segments(shape.data_room, segment_bytes));
    rest = shape.most_reply_bytes;
  }
  if (header.bytes() + rest <= receive_bytes) return;
  plan.reply_chunk = true;
  plan.reply_chunk_bytes = rest;
}

}  // namespace

MarshalPlan PlanMarshal(const CallShape& shape, size_t send_bytes, size_t receive_bytes,
                        size_t segment_bytes) {
  MarshalPlan plan;
  PlanReplyChunks(shape, receive_bytes, segment_bytes, plan);
  HeaderLength header;
  if (plan.write_chunk) header.AddWriteChunk(Segments(shape.data_room, segment_bytes));
  if (plan.reply_chunk) header.AddReplyChunk(Segments(plan.reply_chunk_bytes, segment_bytes));
  if (header.bytes() + shape.message_bytes <= send_bytes) {
    AddRange(plan.payload, 0, shape.message_bytes);
    return plan;
  }
  header.AddReads(Segments(shape.bulk.length, segment_bytes));
  const size_t rest = shape.message_bytes - PaddedLength(shape.bulk.length);
  plan.read_chunk = shape.bulk.length > 0 && header.bytes() + rest <= send_bytes;
  plan.long_call = !plan.read_chunk;
  if (plan.read_chunk) {
    AddRange(plan.payload, 0, shape.bulk.offset);
    AddRange(plan.payload, shape.bulk.offset + PaddedLength(shape.bulk.length),
             shape.message_bytes);
  }
  return plan;
}

Chunk SegmentsOf(uint32_t handle, uint64_t address, size_t length, size_t segment_bytes) {
  Chunk chunk;
  for (size_t done = 0; done < length;) {
    const size_t bytes = std::min(length - done, segment_bytes);
    chunk.push_back({handle, static_cast<uint32_t>(bytes), address + done});
    done += bytes;
  }
  return chunk;
}

}  // namespace rpcrdma
