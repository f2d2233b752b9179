// Private data of RFC 8797: layout, sizes, and data of other formats.
#include "tests/interop/rpcrdma/private_data.h"

#include <gtest/gtest.h>

#include <vector>

namespace rpcrdma {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(PrivateData, HasTheLayoutOfTheRfc) {
  const auto encoded = EncodePrivateData(
      {.remote_invalidation = true, .send_bytes = 4096, .receive_bytes = 256 * 1024});
  EXPECT_EQ(std::vector(encoded.begin(), encoded.end()),
            Bytes({0xF6, 0xAB, 0x0E, 0x18, 1, 1, 3, 255}));
}

TEST(PrivateData, SurvivesEncodingAndPadding) {
  const PrivateData data = {
      .remote_invalidation = false, .send_bytes = 1024, .receive_bytes = 8192};
  const auto encoded = EncodePrivateData(data);
  std::vector<std::byte> padded(encoded.begin(), encoded.end());
  padded.resize(196);
  EXPECT_EQ(DecodePrivateData(padded), data);
}

TEST(PrivateData, SizesAreRoundedDownAndClamped) {
  const auto decoded =
      DecodePrivateData(EncodePrivateData({.send_bytes = 0, .receive_bytes = 5000}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->send_bytes, 1024u);
  EXPECT_EQ(decoded->receive_bytes, 4096u);
  EXPECT_EQ(DecodePrivateData(EncodePrivateData({.send_bytes = 1 << 30}))->send_bytes,
            kMostInlineBytes);
}

TEST(PrivateData, OtherFormatsAreNone) {
  EXPECT_FALSE(DecodePrivateData({}));
  EXPECT_FALSE(DecodePrivateData(Bytes({0xF6, 0xAB, 0x0E, 0x18, 1, 1, 3})));
  EXPECT_FALSE(DecodePrivateData(Bytes({0xF6, 0xAB, 0x0E, 0x19, 1, 1, 3, 3})));
  EXPECT_FALSE(DecodePrivateData(Bytes({0xF6, 0xAB, 0x0E, 0x18, 2, 1, 3, 3})));
}

TEST(PrivateData, ReservedFlagsAreIgnored) {
  EXPECT_FALSE(
      DecodePrivateData(Bytes({0xF6, 0xAB, 0x0E, 0x18, 1, 0xFE, 3, 3}))->remote_invalidation);
}

}  // namespace
}  // namespace rpcrdma
