// Input that is compressed with gzip, and input that is not.
#include "tools/decode/gunzip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace roci::tools {
namespace {

std::string Compress(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string in = text;
  std::string out(deflateBound(&stream, in.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

// All of `file`, in pieces of `piece`, and the error.
std::pair<std::string, std::string> ReadAll(const std::string& file, size_t piece = 7) {
  size_t at = 0;
  Gunzip gunzip([&](std::byte* p, size_t n) {
    const size_t count = std::min(n, file.size() - at);
    if (count != 0) std::memcpy(p, file.data() + at, count);
    at += count;
    return count;
  });
  std::string text;
  std::string buffer(piece, '\0');
  size_t got = piece;
  while (got == piece) {
    got = gunzip.Read(reinterpret_cast<std::byte*>(buffer.data()), piece);
    text.append(buffer, 0, got);
  }
  EXPECT_EQ(gunzip.Read(reinterpret_cast<std::byte*>(buffer.data()), piece), 0u);
  return {text, gunzip.error()};
}

std::string LongText() {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * 7919);
  return text;
}

using Answer = std::pair<std::string, std::string>;

TEST(GunzipTest, CompressedFilesAreRead) {
  for (const std::string& text : {std::string(), std::string("a"), LongText()}) {
    for (const size_t piece : {1, 7, 65536}) {
      EXPECT_EQ(ReadAll(Compress(text), piece), Answer(text, ""));
    }
  }
  // Streams behind each other are one file, and zeros behind them nothing.
  EXPECT_EQ(ReadAll(Compress("one") + Compress("two") + std::string(512, '\0')),
            Answer("onetwo", ""));
}

TEST(GunzipTest, OtherFilesAreHandedOnAsTheyAre) {
  for (const std::string& text : {std::string(), std::string("\x1F"), std::string("ab"),
                                  std::string("\x1F\x8C..."), LongText()}) {
    for (const size_t piece : {1, 7, 65536}) EXPECT_EQ(ReadAll(text, piece), Answer(text, ""));
  }
}

TEST(GunzipTest, DamageIsNamed) {
  const std::string text = LongText();
  const std::string whole = Compress(text);
  for (const size_t kept : {size_t{2}, size_t{5}, whole.size() / 2, whole.size() - 1}) {
    const auto [read, error] = ReadAll(whole.substr(0, kept));
    EXPECT_EQ(error, "the gzip file ends too early") << kept;
    EXPECT_EQ(read, text.substr(0, read.size()));
  }
  std::string damaged = whole;
  damaged[whole.size() - 6] ^= 1;  // of its checksum
  EXPECT_EQ(ReadAll(damaged).second, "the gzip file is damaged");
}

}  // namespace
}  // namespace roci::tools
