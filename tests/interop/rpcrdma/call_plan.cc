#include "tests/interop/rpcrdma/call_plan.h"

#include <algorithm>
#include <span>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

using Reads = std::span<const ReadSegment>;

uint64_t BytesOf(Reads chunk) {
  uint64_t bytes = 0;
  for (const ReadSegment& read : chunk) bytes += read.target.length;
  return bytes;
}

// Takes the segments of the lowest position off the front.
Reads TakeChunk(Reads& sorted) {
  size_t count = 0;
  while (count < sorted.size() && sorted[count].position == sorted[0].position) ++count;
  const Reads chunk = sorted.first(count);
  sorted = sorted.subspan(count);
  return chunk;
}

// The message without its chunks of other positions than zero: the payload, or the Position Zero
// Read chunk. Gives it out from front to back.
class ReducedMessage {
 public:
  explicit ReducedMessage(size_t payload_bytes) : left_(payload_bytes) {}
  explicit ReducedMessage(Reads chunk) : remote_(true), left_(BytesOf(chunk)), chunk_(chunk) {}

  uint64_t left() const { return left_; }

  // The next part, of at most `most` bytes. There must be that many.
  CallPart Take(size_t most) {
    CallPart part;
    part.length = most;
    if (remote_) {
      while (used_ == chunk_[0].target.length) {
        chunk_ = chunk_.subspan(1);
        used_ = 0;
      }
      const Segment& segment = chunk_[0].target;
      part.source = CallPart::Source::kRead;
      part.length = std::min<size_t>(most, segment.length - used_);
      part.handle = segment.handle;
      part.remote = segment.offset + used_;
    } else {
      part.from = used_;
    }
    used_ += part.length;
    left_ -= part.length;
    return part;
  }

 private:
  bool remote_ = false;
  uint64_t left_;
  Reads chunk_;
  size_t used_ = 0;  // of the payload, or of the chunk's first segment
};

class Assembly {
 public:
  Assembly(CallPlan& plan, ReducedMessage reduced, size_t max_bytes)
      : plan_(plan), reduced_(reduced), max_bytes_(max_bytes) {}

  // Inserts a chunk at its position.
  CallFault Insert(Reads chunk) {
    const uint32_t position = chunk[0].position;
    if (position % 4 != 0) return CallFault::kUnalignedPosition;
    if (position < plan_.length) return CallFault::kPositionInChunk;
    const size_t before = position - plan_.length;
    if (before > reduced_.left()) return CallFault::kPositionBeyondEnd;
    if (!Fits(before + PaddedLength(BytesOf(chunk)))) return CallFault::kTooLong;
    AppendReduced(before);
    for (const ReadSegment& read : chunk) AppendSegment(read.target);
    AppendRoundUp();
    return CallFault::kNone;
  }

  CallFault Finish() {
    if (!Fits(reduced_.left())) return CallFault::kTooLong;
    AppendReduced(reduced_.left());
    return CallFault::kNone;
  }

 private:
  bool Fits(uint64_t bytes) const { return bytes <= max_bytes_ - plan_.length; }

  void Append(CallPart part) {
    part.to = plan_.length;
    plan_.length += part.length;
    plan_.parts.push_back(part);
  }

  void AppendReduced(size_t bytes) {
    while (bytes > 0) {
      const CallPart part = reduced_.Take(bytes);
      bytes -= part.length;
      Append(part);
    }
  }

  void AppendSegment(const Segment& segment) {
    if (segment.length == 0) return;
    CallPart part;
    part.source = CallPart::Source::kRead;
    part.length = segment.length;
    part.handle = segment.handle;
    part.remote = segment.offset;
    Append(part);
  }

  // A requester may leave out the round-up of a chunk (RFC 8166, section 3.4.5.2).
  void AppendRoundUp() {
    const size_t bytes = PaddedLength(plan_.length) - plan_.length;
    if (bytes == 0) return;
    CallPart part;
    part.source = CallPart::Source::kZeros;
    part.length = bytes;
    Append(part);
  }

  CallPlan& plan_;
  ReducedMessage reduced_;
  const size_t max_bytes_;
};

}  // namespace

const char* Name(CallFault fault) {
  static constexpr const char* kNames[kCallFaults] = {
      "none",
      "Position Zero Read chunk beside an inline message",
      "no Position Zero Read chunk",
      "payload behind a NOMSG header",
      "unaligned position",
      "position within another chunk",
      "position beyond the end of the message",
      "message too long",
  };
  return kNames[static_cast<size_t>(fault)];
}

CallFault PlanCall(const Header& header, size_t payload_bytes, size_t max_bytes, CallPlan& plan) {
  plan = CallPlan();
  std::vector<ReadSegment> sorted = header.reads;
  std::stable_sort(sorted.begin(), sorted.end(), [](const ReadSegment& a, const ReadSegment& b) {
    return a.position < b.position;
  });
  Reads rest = sorted;
  const bool has_position_zero = !rest.empty() && rest[0].position == 0;
  ReducedMessage reduced(payload_bytes);
  if (header.procedure == Procedure::kNomsg) {
    if (!has_position_zero) return CallFault::kNoPositionZero;
    if (payload_bytes != 0) return CallFault::kPayloadInNomsg;
    const Reads zero = TakeChunk(rest);
    if (BytesOf(zero) > max_bytes) return CallFault::kTooLong;
    reduced = ReducedMessage(zero);
  } else if (has_position_zero) {
    return CallFault::kPositionZeroInMsg;
  }
  Assembly assembly(plan, reduced, max_bytes);
  while (!rest.empty()) {
    const CallFault fault = assembly.Insert(TakeChunk(rest));
    if (fault != CallFault::kNone) return fault;
  }
  return assembly.Finish();
}

}  // namespace rpcrdma
