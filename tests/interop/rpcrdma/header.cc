#include "tests/interop/rpcrdma/header.h"

#include <utility>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

constexpr size_t kSegmentBytes = 16;
constexpr size_t kReadSegmentBytes = 4 + 4 + kSegmentBytes;  // flag, position, segment

// Decodes the lists of Msg and Nomsg (RFC 8166, section 4.3). The first fault stays.
class ListDecoder {
 public:
  ListDecoder(XdrReader& reader, const HeaderLimits& limits) : reader_(reader), limits_(limits) {}

  HeaderFault Decode(Header& header) {
    DecodeReads(header.reads);
    DecodeWrites(header.writes);
    if (Present()) DecodeChunk(header.reply.emplace());
    return fault_;
  }

 private:
  bool ok() const { return fault_ == HeaderFault::kNone; }
  void Fail(HeaderFault fault) {
    if (ok()) fault_ = fault;
  }

  // The flag before a list's element, or before the Reply chunk.
  bool Present() {
    uint32_t flag = 0;
    if (!ok()) return false;
    if (!reader_.Read32(flag)) Fail(HeaderFault::kTruncated);
    if (flag > 1) Fail(HeaderFault::kPresenceFlag);
    return ok() && flag == 1;
  }

  void DecodeSegment(Segment& segment) {
    if (++segments_ > limits_.max_segments) return Fail(HeaderFault::kTooManySegments);
    if (!reader_.Read32(segment.handle) || !reader_.Read32(segment.length) ||
        !reader_.Read64(segment.offset)) {
      return Fail(HeaderFault::kTruncated);
    }
    if (segment.offset + segment.length < segment.offset) Fail(HeaderFault::kSegmentWraps);
  }

  void DecodeReads(std::vector<ReadSegment>& reads) {
    uint64_t bytes = 0;
    while (Present()) {
      ReadSegment& read = reads.emplace_back();
      if (!reader_.Read32(read.position)) return Fail(HeaderFault::kTruncated);
      DecodeSegment(read.target);
      bytes += read.target.length;
      if (bytes > limits_.max_chunk_bytes) Fail(HeaderFault::kChunkTooLong);
    }
  }

  void DecodeChunk(Chunk& chunk) {
    uint32_t count = 0;
    if (!reader_.Read32(count)) return Fail(HeaderFault::kTruncated);
    // Before anything is allocated for them.
    if (count > limits_.max_segments) return Fail(HeaderFault::kTooManySegments);
    if (count > reader_.left() / kSegmentBytes) return Fail(HeaderFault::kTruncated);
    chunk.resize(count);
    for (Segment& segment : chunk) DecodeSegment(segment);
    if (ChunkBytes(chunk) > limits_.max_chunk_bytes) Fail(HeaderFault::kChunkTooLong);
  }

  void DecodeWrites(std::vector<Chunk>& writes) {
    while (Present()) {
      if (writes.size() == limits_.max_chunks) return Fail(HeaderFault::kTooManyChunks);
      DecodeChunk(writes.emplace_back());
    }
  }

  XdrReader& reader_;
  const HeaderLimits& limits_;
  HeaderFault fault_ = HeaderFault::kNone;
  size_t segments_ = 0;
};

// RFC 8166, section 4.5.
HeaderFault DecodeError(XdrReader& reader, Header& header) {
  uint32_t code = 0;
  if (!reader.Read32(code)) return HeaderFault::kTruncated;
  header.error = static_cast<ErrorCode>(code);
  if (header.error == ErrorCode::kChunk) return HeaderFault::kNone;
  if (header.error != ErrorCode::kVersion) return HeaderFault::kUnknownError;
  return reader.Read32(header.lowest_version) && reader.Read32(header.highest_version)
             ? HeaderFault::kNone
             : HeaderFault::kTruncated;
}

HeaderFault DecodeBody(XdrReader& reader, const HeaderLimits& limits, Header& header) {
  switch (header.procedure) {
    case Procedure::kMsg:
    case Procedure::kNomsg:
      return ListDecoder(reader, limits).Decode(header);
    case Procedure::kMsgp:
      return HeaderFault::kWithdrawnProcedure;
    case Procedure::kDone:
      return HeaderFault::kNone;
    case Procedure::kError:
      return DecodeError(reader, header);
  }
  return HeaderFault::kUnknownProcedure;
}

void EncodeSegment(XdrWriter& writer, const Segment& segment) {
  writer.Write32(segment.handle);
  writer.Write32(segment.length);
  writer.Write64(segment.offset);
}

// With the flag in front.
void EncodeChunk(XdrWriter& writer, const Chunk& chunk) {
  writer.Write32(1);
  writer.Write32(static_cast<uint32_t>(chunk.size()));
  for (const Segment& segment : chunk) EncodeSegment(writer, segment);
}

void EncodeLists(XdrWriter& writer, const Header& header) {
  for (const ReadSegment& read : header.reads) {
    writer.Write32(1);
    writer.Write32(read.position);
    EncodeSegment(writer, read.target);
  }
  writer.Write32(0);
  for (const Chunk& chunk : header.writes) EncodeChunk(writer, chunk);
  writer.Write32(0);
  if (header.reply) {
    EncodeChunk(writer, *header.reply);
  } else {
    writer.Write32(0);
  }
}

void EncodeError(XdrWriter& writer, const Header& header) {
  writer.Write32(static_cast<uint32_t>(header.error));
  if (header.error != ErrorCode::kVersion) return;
  writer.Write32(header.lowest_version);
  writer.Write32(header.highest_version);
}

Header ErrorMessage(uint32_t xid, uint32_t credits, ErrorCode code) {
  Header header;
  header.xid = xid;
  header.credits = credits;
  header.procedure = Procedure::kError;
  header.error = code;
  return header;
}

size_t EncodedChunkLength(const Chunk& chunk) { return 4 + 4 + chunk.size() * kSegmentBytes; }

}  // namespace

const char* Name(HeaderFault fault) {
  static constexpr const char* kNames[kHeaderFaults] = {
      "none",
      "shorter than the fixed part",
      "another version",
      "unknown procedure",
      "withdrawn procedure",
      "truncated",
      "presence flag neither 0 nor 1",
      "too many segments",
      "too many chunks",
      "chunk too long",
      "segment wraps around the address space",
      "unknown error code",
  };
  return kNames[static_cast<size_t>(fault)];
}

HeaderFault DecodeHeader(std::span<const std::byte> message, const HeaderLimits& limits,
                         Header& header, size_t& length) {
  header = Header();
  length = 0;
  XdrReader reader(message);
  uint32_t procedure = 0;
  if (!reader.Read32(header.xid) || !reader.Read32(header.version) ||
      !reader.Read32(header.credits) || !reader.Read32(procedure)) {
    return HeaderFault::kShortFixedPart;
  }
  // Only the fixed part is the same in all versions (RFC 8166, section 4.2).
  header.procedure = static_cast<Procedure>(procedure);
  if (header.version != kProtocolVersion) return HeaderFault::kOtherVersion;
  const HeaderFault fault = DecodeBody(reader, limits, header);
  length = reader.position();
  return fault;
}

size_t EncodedLength(const Header& header) {
  if (header.procedure == Procedure::kError) {
    return kFixedBytes + (header.error == ErrorCode::kVersion ? 12 : 4);
  }
  size_t length = kEmptyHeaderBytes + header.reads.size() * kReadSegmentBytes;
  for (const Chunk& chunk : header.writes) length += EncodedChunkLength(chunk);
  if (header.reply) length += EncodedChunkLength(*header.reply) - 4;  // its flag is counted
  return length;
}

size_t EncodeHeader(const Header& header, std::span<std::byte> room) {
  XdrWriter writer(room);
  writer.Write32(header.xid);
  writer.Write32(header.version);
  writer.Write32(header.credits);
  writer.Write32(static_cast<uint32_t>(header.procedure));
  if (header.procedure == Procedure::kError) {
    EncodeError(writer, header);
  } else {
    EncodeLists(writer, header);
  }
  return writer.ok() ? writer.length() : 0;
}

Header VersionError(uint32_t xid, uint32_t credits) {
  Header header = ErrorMessage(xid, credits, ErrorCode::kVersion);
  header.lowest_version = kProtocolVersion;
  header.highest_version = kProtocolVersion;
  return header;
}

Header ChunkError(uint32_t xid, uint32_t credits) {
  return ErrorMessage(xid, credits, ErrorCode::kChunk);
}

uint64_t ChunkBytes(const Chunk& chunk) {
  uint64_t bytes = 0;
  for (const Segment& segment : chunk) bytes += segment.length;
  return bytes;
}

}  // namespace rpcrdma
