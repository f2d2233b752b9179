// SipHash against the test vectors of its authors.
#include "tests/interop/rpcrdma/nfs/siphash.h"

#include <gtest/gtest.h>

#include <vector>

namespace rpcrdma {
namespace {

// The key 00 01 .. 0f and the messages of 0, 1, 8 and 15 bytes 00 01 ..: appendix A of the paper
// has the last, the reference implementation's table the others.
TEST(SipHash, HasTheValuesOfItsAuthors) {
  SipKey key;
  std::vector<std::byte> message(15);
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i);
  const std::span<const std::byte> all(message);
  EXPECT_EQ(SipHash(key, all.first(0)), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(SipHash(key, all.first(1)), 0x74f839c593dc67fdu);
  EXPECT_EQ(SipHash(key, all.first(8)), 0x93f5f5799a932462u);
  EXPECT_EQ(SipHash(key, all), 0xa129ca6149be45e5u);
}

}  // namespace
}  // namespace rpcrdma
