// Fuzzes what an RPC-over-RDMA server does with a received message before it touches memory: the
// transport header, the plan that puts a call together, and that of its reply. Input: length of the
// reply, offset and length of its data, one 32-bit number each; then the message.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/interop/rpcrdma/call_plan.h"
#include "tests/interop/rpcrdma/header.h"
#include "tests/interop/rpcrdma/private_data.h"
#include "tests/interop/rpcrdma/reply_plan.h"

namespace rpcrdma {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kInlineBytes = 4096;

bool IsInSegment(const Segment& segment, uint32_t handle, uint64_t from, uint64_t length) {
  return segment.handle == handle && from >= segment.offset &&
         from - segment.offset <= segment.length &&
         length <= segment.length - (from - segment.offset);
}

// Every byte of the message has one source, within the payload or a segment that was offered.
void CheckCallPlan(const Header& header, size_t payload, const CallPlan& plan) {
  size_t next = 0;
  for (const CallPart& part : plan.parts) {
    CHECK(part.to == next && part.length > 0);
    next += part.length;
    if (part.source == CallPart::Source::kPayload) {
      CHECK(part.from <= payload && part.length <= payload - part.from);
    } else if (part.source == CallPart::Source::kRead) {
      CHECK(std::any_of(header.reads.begin(), header.reads.end(), [&](const ReadSegment& read) {
        return IsInSegment(read.target, part.handle, part.remote, part.length);
      }));
    } else {
      CHECK(part.length < 4);
    }
  }
  CHECK(next == plan.length && plan.length <= kMostBytes);
}

std::vector<Segment> WritableSegments(const Header& call) {
  std::vector<Segment> segments;
  for (const Chunk& chunk : call.writes) {
    segments.insert(segments.end(), chunk.begin(), chunk.end());
  }
  if (call.reply) segments.insert(segments.end(), call.reply->begin(), call.reply->end());
  return segments;
}

// Every byte of the reply leaves once, into what was offered, and the SEND fits.
void CheckReplyPlan(const Header& call, size_t message, const Range& bulk, const ReplyPlan& plan) {
  const std::vector<Segment> offered = WritableSegments(call);
  size_t bytes = 0;
  for (const RemoteWrite& write : plan.writes) {
    CHECK(write.from.offset <= message && write.from.length <= message - write.from.offset);
    CHECK(std::any_of(offered.begin(), offered.end(), [&write](const Segment& segment) {
      return IsInSegment(segment, write.handle, write.to, write.from.length);
    }));
    bytes += write.from.length;
  }
  size_t inline_bytes = EncodedLength(plan.header);
  for (const Range& range : plan.payload) {
    CHECK(range.offset <= message && range.length <= message - range.offset);
    inline_bytes += range.length;
    bytes += range.length;
  }
  CHECK(inline_bytes <= kInlineBytes);
  CHECK(bytes <= message && message - bytes <= (bulk.length > 0 ? 3 : 0));
  CHECK(plan.header.writes.size() == call.writes.size());
}

// What is decoded encodes to the same bytes.
void CheckEncoding(const Header& header, std::span<const std::byte> encoded) {
  std::vector<std::byte> again(encoded.size());
  CHECK(EncodedLength(header) == encoded.size());
  CHECK(EncodeHeader(header, again) == encoded.size());
  CHECK(std::equal(again.begin(), again.end(), encoded.begin()));
}

void Run(size_t reply_bytes, const Range& bulk, std::span<const std::byte> message) {
  Header header;
  size_t length = 0;
  const HeaderFault fault = DecodeHeader(message, {}, header, length);
  CHECK(length <= message.size());
  CHECK(Name(fault) != nullptr);
  if (fault != HeaderFault::kNone || header.procedure == Procedure::kDone) return;
  CheckEncoding(header, message.first(length));
  if (header.procedure == Procedure::kError) return;
  CallPlan call_plan;
  const size_t payload = message.size() - length;
  if (PlanCall(header, payload, kMostBytes, call_plan) == CallFault::kNone) {
    CheckCallPlan(header, payload, call_plan);
  }
  ReplyPlan reply_plan;
  if (PlanReply(header, reply_bytes, bulk, kInlineBytes, 1, reply_plan) == ReplyFault::kNone) {
    CheckReplyPlan(header, reply_bytes, bulk, reply_plan);
  }
}

}  // namespace
}  // namespace rpcrdma

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  roci::fuzz::Input input(data, size);
  const size_t reply_bytes = input.Take<uint32_t>() % (2 * rpcrdma::kMostBytes);
  rpcrdma::Range bulk;
  bulk.offset = input.Take<uint32_t>();
  bulk.length = input.Take<uint32_t>();
  std::vector<std::byte> message;
  while (!input.empty()) message.push_back(input.Take<std::byte>());
  rpcrdma::Run(reply_bytes, bulk, message);
  // The same bytes as private data.
  const auto decoded = rpcrdma::DecodePrivateData(message);
  if (decoded) CHECK(rpcrdma::DecodePrivateData(rpcrdma::EncodePrivateData(*decoded)) == decoded);
  return 0;
}
