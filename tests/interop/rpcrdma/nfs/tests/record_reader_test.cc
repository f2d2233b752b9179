// Record marking.
#include "tests/interop/rpcrdma/nfs/record_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace rpcrdma {
namespace {

using Bytes = std::vector<std::byte>;
using Result = RecordReader::Result;

void AppendFragment(Bytes* stream, size_t bytes, bool last, int first = 0) {
  auto mark = MarkOf(bytes);
  if (!last) mark[0] &= std::byte{0x7f};
  stream->insert(stream->end(), mark.begin(), mark.end());
  for (size_t i = 0; i < bytes; ++i)
    stream->push_back(static_cast<std::byte>(first + static_cast<int>(i)));
}

// Reads the stream in pieces. Returns the records; `result` is the last Read()'s.
std::vector<Bytes> ReadAll(const Bytes& stream, size_t piece, Result* result) {
  RecordReader reader;
  std::vector<Bytes> records;
  for (size_t at = 0; at < stream.size(); at += piece) {
    auto input = std::span(stream).subspan(at, std::min(piece, stream.size() - at));
    do {
      *result = reader.Read(&input);
      if (*result == Result::kMalformed) return records;
      if (*result == Result::kRecord) records.push_back(reader.Take());
    } while (!input.empty());
  }
  return records;
}

TEST(RecordReader, FindsRecordsHoweverTheStreamIsCut) {
  Bytes stream;
  AppendFragment(&stream, 10, false, 0);
  AppendFragment(&stream, 0, false);
  AppendFragment(&stream, 7, true, 10);
  AppendFragment(&stream, 5, true, 100);
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    Result result{};
    const auto records = ReadAll(stream, piece, &result);
    ASSERT_EQ(records.size(), 2u) << piece;
    EXPECT_EQ(result, Result::kRecord);
    ASSERT_EQ(records[0].size(), 17u);
    for (size_t i = 0; i < 17; ++i) EXPECT_EQ(records[0][i], static_cast<std::byte>(i));
    EXPECT_EQ(records[1].size(), 5u);
  }
}

TEST(RecordReader, RefusesEmptyRecords) {
  Bytes stream;
  AppendFragment(&stream, 0, true);
  Result result{};
  EXPECT_TRUE(ReadAll(stream, 4, &result).empty());
  EXPECT_EQ(result, Result::kMalformed);
}

TEST(RecordReader, RefusesLongRecordsByTheirMark) {
  for (const bool last : {false, true}) {
    Bytes stream;
    AppendFragment(&stream, 8, false);
    auto mark = MarkOf(kMaxRecordBytes - 7);
    if (!last) mark[0] &= std::byte{0x7f};
    stream.insert(stream.end(), mark.begin(), mark.end());
    Result result{};
    ReadAll(stream, 1, &result);
    EXPECT_EQ(result, Result::kMalformed);
  }
}

TEST(RecordReader, TakesTheLongestRecord) {
  Bytes stream;
  AppendFragment(&stream, kMaxRecordBytes, true);
  Result result{};
  EXPECT_EQ(ReadAll(stream, 100000, &result).size(), 1u);
}

TEST(RecordReader, RefusesEndlessFragments) {
  for (const size_t fragments : {kMaxFragments, kMaxFragments + 1}) {
    Bytes stream;
    for (size_t i = 1; i < fragments; ++i) AppendFragment(&stream, 0, false);
    AppendFragment(&stream, 1, true);
    Result result{};
    EXPECT_EQ(ReadAll(stream, 1000, &result).size(), fragments == kMaxFragments ? 1u : 0u);
    EXPECT_EQ(result, fragments == kMaxFragments ? Result::kRecord : Result::kMalformed);
  }
}

TEST(RecordReader, KnowsWhetherARecordHasBegun) {
  RecordReader reader;
  EXPECT_FALSE(reader.InRecord());
  Bytes stream;
  AppendFragment(&stream, 1, true);
  for (size_t i = 0; i < stream.size(); ++i) {
    auto input = std::span<const std::byte>(stream).subspan(i, 1);
    reader.Read(&input);
    EXPECT_TRUE(reader.InRecord()) << i;  // until the record is taken
  }
  reader.Take();
  EXPECT_FALSE(reader.InRecord());
}

}  // namespace
}  // namespace rpcrdma
