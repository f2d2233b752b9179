// SipHash-2-4.
#include "tests/interop/rpcrdma/nfs/siphash.h"

#include <bit>
#include <cstring>

namespace rpcrdma {
namespace {

static_assert(std::endian::native == std::endian::little);

uint64_t LoadWord(const std::byte* from, size_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

class State {
 public:
  explicit State(const SipKey& key) {
    const uint64_t k0 = LoadWord(key.data(), 8), k1 = LoadWord(key.data() + 8, 8);
    v0_ ^= k0;
    v1_ ^= k1;
    v2_ ^= k0;
    v3_ ^= k1;
  }

  void Absorb(uint64_t word) {
    v3_ ^= word;
    Rounds(2);
    v0_ ^= word;
  }

  uint64_t Finish() {
    v2_ ^= 0xff;
    Rounds(4);
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void Rounds(int count) {
    for (; count > 0; --count) {
      v0_ += v1_;
      v2_ += v3_;
      v1_ = std::rotl(v1_, 13) ^ v0_;
      v3_ = std::rotl(v3_, 16) ^ v2_;
      v0_ = std::rotl(v0_, 32);
      v2_ += v1_;
      v0_ += v3_;
      v1_ = std::rotl(v1_, 17) ^ v2_;
      v3_ = std::rotl(v3_, 21) ^ v0_;
      v2_ = std::rotl(v2_, 32);
    }
  }

  // The text "somepseudorandomlygeneratedbytes".
  uint64_t v0_ = 0x736f6d6570736575, v1_ = 0x646f72616e646f6d;
  uint64_t v2_ = 0x6c7967656e657261, v3_ = 0x7465646279746573;
};

}  // namespace

uint64_t SipHash(const SipKey& key, std::span<const std::byte> bytes) {
  State state(key);
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) state.Absorb(LoadWord(bytes.data() + at, 8));
  uint64_t last = uint64_t{bytes.size()} << 56;
  if (at < bytes.size()) last |= LoadWord(bytes.data() + at, bytes.size() - at);
  state.Absorb(last);
  return state.Finish();
}

}  // namespace rpcrdma
