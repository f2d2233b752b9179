// The transport header of RPC-over-RDMA version 1 (RFC 8166, section 4): types, decoder, encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rpcrdma {

inline constexpr uint32_t kProtocolVersion = 1;
// XID, version, credits, procedure (RFC 8166, section 4.2).
inline constexpr size_t kFixedBytes = 16;
// Fixed part and three empty lists.
inline constexpr size_t kEmptyHeaderBytes = kFixedBytes + 12;
// A sender that knows nothing of its peer sends no more inline (RFC 8166, section 3.3.3).
inline constexpr size_t kDefaultInlineBytes = 1024;

// RFC 8166, section 4.2.4. Msgp and Done are no longer supported (section 4.6).
enum class Procedure : uint32_t { kMsg = 0, kNomsg = 1, kMsgp = 2, kDone = 3, kError = 4 };

// RFC 8166, section 4.5.
enum class ErrorCode : uint32_t { kVersion = 1, kChunk = 2 };

// A registered range of the requester's memory (RFC 8166, section 3.4.3).
struct Segment {
  uint32_t handle = 0;  // R_Key
  uint32_t length = 0;
  uint64_t offset = 0;  // virtual address
  bool operator==(const Segment&) const = default;
};

// Consecutive read segments of one position are a Read chunk (RFC 8166, section 3.4.5).
struct ReadSegment {
  // Where the chunk's first byte belongs in the message, chunks of lower positions included.
  uint32_t position = 0;
  Segment target;
  bool operator==(const ReadSegment&) const = default;
};

// A Write chunk, or a Reply chunk.
using Chunk = std::vector<Segment>;

struct Header {
  uint32_t xid = 0;
  uint32_t version = kProtocolVersion;
  uint32_t credits = 0;  // asked for in a call, granted in a reply
  Procedure procedure = Procedure::kMsg;
  // Of Msg and Nomsg:
  std::vector<ReadSegment> reads;
  std::vector<Chunk> writes;
  std::optional<Chunk> reply;
  // Of Error:
  ErrorCode error = ErrorCode::kChunk;
  uint32_t lowest_version = 0;  // of ErrorCode::kVersion
  uint32_t highest_version = 0;
  bool operator==(const Header&) const = default;
};

// What a receiver accepts.
struct HeaderLimits {
  size_t max_segments = 128;  // of all lists of a header together
  size_t max_chunks = 16;     // in the Write list
  uint64_t max_chunk_bytes = uint64_t{1} << 31;
};

// Why a header was rejected.
enum class HeaderFault {
  kNone,
  kShortFixedPart,      // not even the fixed part
  kOtherVersion,        // answered by ERR_VERS
  kUnknownProcedure,    // from here on: answered by ERR_CHUNK
  kWithdrawnProcedure,  // Msgp
  kTruncated,           // ends within a list
  kPresenceFlag,        // an optional-data flag is neither 0 nor 1
  kTooManySegments,
  kTooManyChunks,
  kChunkTooLong,
  kSegmentWraps,  // a range beyond the end of the 64-bit address space
  kUnknownError,  // an error message with an unknown code: ignored
};
inline constexpr size_t kHeaderFaults = 12;
const char* Name(HeaderFault fault);

// Decodes the header at the front of a received message. `length` is its length in bytes; the
// payload follows. If the fault is not kShortFixedPart, the fixed part is valid.
HeaderFault DecodeHeader(std::span<const std::byte> message, const HeaderLimits& limits,
                         Header& header, size_t& length);

// Length of the encoded header in bytes.
size_t EncodedLength(const Header& header);
// Returns the length in bytes, 0 if `room` is too small.
size_t EncodeHeader(const Header& header, std::span<std::byte> room);

// The answers to what cannot be served (RFC 8166, section 4.5): to the call with this XID.
Header VersionError(uint32_t xid, uint32_t credits);
Header ChunkError(uint32_t xid, uint32_t credits);

// Sum of the segments' lengths in bytes.
uint64_t ChunkBytes(const Chunk& chunk);

}  // namespace rpcrdma
