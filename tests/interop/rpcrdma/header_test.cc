// The transport header: what is encoded is decoded, and each defect has its reason.
#include "tests/interop/rpcrdma/header.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/interop/rpcrdma/rpc_message.h"

namespace rpcrdma {
namespace {

std::vector<std::byte> Words(std::initializer_list<uint32_t> words) {
  std::vector<std::byte> bytes;
  for (const uint32_t word : words) AppendWord(bytes, word);
  return bytes;
}

std::vector<std::byte> Encode(const Header& header) {
  std::vector<std::byte> bytes(EncodedLength(header));
  EXPECT_EQ(EncodeHeader(header, bytes), bytes.size());
  return bytes;
}

HeaderFault Decode(const std::vector<std::byte>& bytes, const HeaderLimits& limits = {}) {
  Header header;
  size_t length = 0;
  return DecodeHeader(bytes, limits, header, length);
}

void ExpectRoundTrip(const Header& header) {
  std::vector<std::byte> bytes = Encode(header);
  const size_t encoded = bytes.size();
  bytes.resize(encoded + 8);  // a payload
  Header decoded;
  size_t length = 0;
  ASSERT_EQ(DecodeHeader(bytes, {}, decoded, length), HeaderFault::kNone);
  EXPECT_EQ(decoded, header);
  EXPECT_EQ(length, encoded);
}

Header WithEverything() {
  Header header;
  header.xid = 0x01020304;
  header.credits = 32;
  header.reads = {{120, {0x11, 100, 0x1000}}, {120, {0x12, 200, 0xFFFF'FFFF'0000'0000}}};
  header.writes = {{{0x21, 4096, 0x2000}, {0x22, 1, 0x3000}}, {}, {{0x23, 0, 0}}};
  header.reply = Chunk{{0x31, 1 << 20, 0x4000}};
  return header;
}

TEST(Header, SurvivesEncodingAndDecoding) {
  ExpectRoundTrip(Header());
  ExpectRoundTrip(WithEverything());
  Header nomsg = WithEverything();
  nomsg.procedure = Procedure::kNomsg;
  nomsg.reads[0].position = nomsg.reads[1].position = 0;
  ExpectRoundTrip(nomsg);
  ExpectRoundTrip(VersionError(7, 8));
  ExpectRoundTrip(ChunkError(7, 8));
}

// Written down from RFC 8166, section 4: independent of the encoder.
TEST(Header, HasTheLayoutOfTheRfc) {
  Header header;
  header.xid = 0xAABBCCDD;
  header.credits = 3;
  header.reads = {{40, {0x11, 100, 0x1'0000'0002}}};
  header.writes = {{{0x21, 4096, 5}}};
  header.reply = Chunk{{0x31, 8, 9}};
  EXPECT_EQ(Encode(header), Words({0xAABBCCDD, 1,  3,    0,              // fixed part
                                   1,          40, 0x11, 100,  1, 2, 0,  // Read list
                                   1,          1,  0x21, 4096, 0, 5, 0,  // Write list
                                   1,          1,  0x31, 8,    0, 9}));  // Reply chunk
  EXPECT_EQ(Encode(VersionError(5, 6)), Words({5, 1, 6, 4, 1, 1, 1}));
  EXPECT_EQ(Encode(ChunkError(5, 6)), Words({5, 1, 6, 4, 2}));
}

TEST(Header, EncoderRefusesTooLittleRoom) {
  const Header header = WithEverything();
  std::vector<std::byte> room(EncodedLength(header) - 1);
  EXPECT_EQ(EncodeHeader(header, room), 0u);
}

TEST(Header, EveryTruncationIsFound) {
  for (const Header& header : {Header(), WithEverything(), VersionError(1, 2), ChunkError(1, 2)}) {
    const std::vector<std::byte> whole = Encode(header);
    for (size_t length = 0; length < whole.size(); ++length) {
      const std::vector<std::byte> cut(whole.begin(),
                                       whole.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_EQ(Decode(cut),
                length < kFixedBytes ? HeaderFault::kShortFixedPart : HeaderFault::kTruncated)
          << length;
    }
  }
}

TEST(Header, OtherVersionsKeepTheXid) {
  for (const uint32_t version : {0u, 2u, 0xFFFF'FFFFu}) {
    Header header;
    size_t length = 0;
    EXPECT_EQ(DecodeHeader(Words({9, version, 5, 0, 0, 0, 0}), {}, header, length),
              HeaderFault::kOtherVersion);
    EXPECT_EQ(header.xid, 9u);
    EXPECT_EQ(header.credits, 5u);
  }
}

TEST(Header, ProceduresBeyondTheRfc) {
  EXPECT_EQ(Decode(Words({9, 1, 5, 2, 0, 0, 0})), HeaderFault::kWithdrawnProcedure);
  EXPECT_EQ(Decode(Words({9, 1, 5, 3})), HeaderFault::kNone);
  EXPECT_EQ(Decode(Words({9, 1, 5, 5, 0, 0, 0})), HeaderFault::kUnknownProcedure);
  EXPECT_EQ(Decode(Words({9, 1, 5, 0xFFFF'FFFF, 0, 0, 0})), HeaderFault::kUnknownProcedure);
  EXPECT_EQ(Decode(Words({9, 1, 5, 4, 3})), HeaderFault::kUnknownError);
}

TEST(Header, AnyCreditsAreDecoded) {
  for (const uint32_t credits : {0u, 0xFFFF'FFFFu}) {
    Header header;
    size_t length = 0;
    ASSERT_EQ(DecodeHeader(Words({9, 1, credits, 0, 0, 0, 0}), {}, header, length),
              HeaderFault::kNone);
    EXPECT_EQ(header.credits, credits);
  }
}

TEST(Header, FlagsAreZeroOrOne) {
  EXPECT_EQ(Decode(Words({9, 1, 5, 0, 2, 0, 0})), HeaderFault::kPresenceFlag);
  EXPECT_EQ(Decode(Words({9, 1, 5, 0, 0, 0xFFFF'FFFF, 0})), HeaderFault::kPresenceFlag);
  EXPECT_EQ(Decode(Words({9, 1, 5, 0, 0, 0, 0x100})), HeaderFault::kPresenceFlag);
}

// Counts beyond what the message holds are refused before anything is allocated for them.
TEST(Header, HugeCounts) {
  EXPECT_EQ(Decode(Words({9, 1, 5, 0, 0, 1, 0xFFFF'FFFF, 0, 0, 0, 0})),
            HeaderFault::kTooManySegments);
  EXPECT_EQ(Decode(Words({9, 1, 5, 0, 0, 0, 1, 0x8000'0000})), HeaderFault::kTooManySegments);
  EXPECT_EQ(Decode(Words({9, 1, 5, 0, 0, 0, 1, 100})), HeaderFault::kTruncated);
}

TEST(Header, SegmentsOfAllListsCountTogether) {
  Header header = WithEverything();
  HeaderLimits limits;
  limits.max_segments = 6;
  EXPECT_EQ(Decode(Encode(header), limits), HeaderFault::kNone);
  limits.max_segments = 5;
  EXPECT_EQ(Decode(Encode(header), limits), HeaderFault::kTooManySegments);
}

TEST(Header, ChunksOfTheWriteListAreBounded) {
  Header header;
  header.writes.resize(3);
  HeaderLimits limits;
  limits.max_chunks = 3;
  EXPECT_EQ(Decode(Encode(header), limits), HeaderFault::kNone);
  limits.max_chunks = 2;
  EXPECT_EQ(Decode(Encode(header), limits), HeaderFault::kTooManyChunks);
}

TEST(Header, LengthsAreSummedWithoutWrapping) {
  Header header;
  header.reads.assign(4, {40, {1, 0x4000'0001, 0}});
  EXPECT_EQ(Decode(Encode(header)), HeaderFault::kChunkTooLong);
  header = Header();
  header.reply = Chunk(5, {1, 0xFFFF'FFFF, 0});
  EXPECT_EQ(Decode(Encode(header)), HeaderFault::kChunkTooLong);
  header = Header();
  header.writes = {Chunk(2, {1, 0x4000'0001, 0})};
  EXPECT_EQ(Decode(Encode(header)), HeaderFault::kChunkTooLong);
}

TEST(Header, SegmentsMayNotWrap) {
  Header header;
  header.reply = Chunk{{1, 0x1000, 0xFFFF'FFFF'FFFF'F001}};
  EXPECT_EQ(Decode(Encode(header)), HeaderFault::kSegmentWraps);
  header.reply->front().offset -= 2;
  EXPECT_EQ(Decode(Encode(header)), HeaderFault::kNone);
}

TEST(Header, EveryFaultHasAName) {
  for (size_t i = 0; i < kHeaderFaults; ++i) {
    EXPECT_NE(std::string(Name(static_cast<HeaderFault>(i))), "");
  }
}

}  // namespace
}  // namespace rpcrdma
