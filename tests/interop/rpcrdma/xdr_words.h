// Words of XDR (RFC 4506: big-endian, units of four bytes) in a bounded buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rpcrdma {

// Length of an item of `bytes` bytes with its round-up to whole words (RFC 4506, section 3).
template <class T>
constexpr T PaddedLength(T bytes) {
  return (bytes + 3) & ~T{3};
}

inline uint32_t LoadWord(const std::byte* from) {
  return std::to_integer<uint32_t>(from[0]) << 24 | std::to_integer<uint32_t>(from[1]) << 16 |
         std::to_integer<uint32_t>(from[2]) << 8 | std::to_integer<uint32_t>(from[3]);
}

inline void StoreWord(std::byte* to, uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (24 - 8 * i));
}

// Takes words off the front. A read past the end returns false and changes nothing.
class XdrReader {
 public:
  explicit XdrReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool Read32(uint32_t& value) {
    if (left() < 4) return false;
    value = LoadWord(bytes_.data() + position_);
    position_ += 4;
    return true;
  }
  bool Read64(uint64_t& value) {
    if (left() < 8) return false;
    uint32_t high = 0;
    uint32_t low = 0;
    Read32(high);
    Read32(low);
    value = uint64_t{high} << 32 | low;
    return true;
  }
  // `length` bytes and their round-up.
  bool ReadBytes(size_t length, std::span<const std::byte>& value) {
    if (length > left() || PaddedLength(length) > left()) return false;
    value = bytes_.subspan(position_, length);
    position_ += PaddedLength(length);
    return true;
  }
  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

// Appends words. A write past the end is dropped, and ok() is false from then on.
class XdrWriter {
 public:
  explicit XdrWriter(std::span<std::byte> room) : room_(room) {}

  void Write32(uint32_t value) {
    if (room_.size() - length_ < 4) {
      ok_ = false;
      return;
    }
    StoreWord(room_.data() + length_, value);
    length_ += 4;
  }
  void Write64(uint64_t value) {
    Write32(static_cast<uint32_t>(value >> 32));
    Write32(static_cast<uint32_t>(value));
  }
  size_t length() const { return length_; }
  bool ok() const { return ok_; }

 private:
  std::span<std::byte> room_;
  size_t length_ = 0;
  bool ok_ = true;
};

}  // namespace rpcrdma
