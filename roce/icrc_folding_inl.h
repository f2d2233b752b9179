// The CRC kernel of processors without masked loads, for a width of vectors. The including file
// defines ROCI_CRC_TARGET, the instructions that its vectors need. Internal to roce/icrc_*.cc.
#pragma once

#include <array>

#include "roce/icrc_clmul.h"
#include "roce/icrc_kernels.h"

namespace roci::roce::internal {

#define ROCI_CRC __attribute__((target(ROCI_CRC_TARGET)))
#define ROCI_CRC_INLINE __attribute__((target(ROCI_CRC_TARGET), always_inline)) inline

// `Vector` (of an unnamed namespace, so that these functions belong to one file) has
//   kBytes; Value; Load; Store; Xor; Broadcast(a Fold);
//   Step(x, k, block)   every lane of x moved forward by `k`, plus `block`
//   Widen(x)            x in the first lane, zeros in the others
//   Narrow(v)           128 bits that stand for all lanes
template <class Vector>
struct FoldingKernel {
  using Value = typename Vector::Value;
  static constexpr size_t kWidth = Vector::kBytes;

  // `dst` is null, and not used, without kCopy.
  template <bool kCopy>
  ROCI_CRC_INLINE static Value LoadAndStore(std::byte* dst, const std::byte* src, size_t at) {
    const Value v = Vector::Load(src + at);
    if constexpr (kCopy) Vector::Store(dst + at, v);
    return v;
  }

  // Appends blocks (at least one) of kWidth bytes; four accumulators hide the multiplier's latency.
  template <bool kCopy>
  ROCI_CRC_INLINE static Block AppendBlocks(Block x, std::byte* dst, const std::byte* src,
                                            size_t blocks) {
    static constexpr std::array<Fold, 4> kBy = {By(kWidth), By(2 * kWidth), By(3 * kWidth),
                                                By(4 * kWidth)};
    const Value by1 = Vector::Broadcast(kBy[0]);
    const Block moved = Step128(x, Load128(&kBy16), FromWords(0, 0));
    Value sum = Vector::Xor(Vector::Widen(moved), LoadAndStore<kCopy>(dst, src, 0));
    size_t at = kWidth;
    if (blocks >= 8) {
      const Value by4 = Vector::Broadcast(kBy[3]);
      Value x1 = LoadAndStore<kCopy>(dst, src, kWidth);
      Value x2 = LoadAndStore<kCopy>(dst, src, 2 * kWidth);
      Value x3 = LoadAndStore<kCopy>(dst, src, 3 * kWidth);
      at = 4 * kWidth;
      for (blocks -= 4; blocks >= 4; blocks -= 4, at += 4 * kWidth) {
        sum = Vector::Step(sum, by4, LoadAndStore<kCopy>(dst, src, at));
        x1 = Vector::Step(x1, by4, LoadAndStore<kCopy>(dst, src, at + kWidth));
        x2 = Vector::Step(x2, by4, LoadAndStore<kCopy>(dst, src, at + 2 * kWidth));
        x3 = Vector::Step(x3, by4, LoadAndStore<kCopy>(dst, src, at + 3 * kWidth));
      }
      sum = Vector::Step(sum, Vector::Broadcast(kBy[2]),
                         Vector::Step(x1, Vector::Broadcast(kBy[1]), Vector::Step(x2, by1, x3)));
      ++blocks;
    }
    for (; blocks > 1; --blocks, at += kWidth) {
      sum = Vector::Step(sum, by1, LoadAndStore<kCopy>(dst, src, at));
    }
    return Vector::Narrow(sum);
  }

  // Appends `length` bytes and then `pad` zeros, length % 16 + pad <= 16.
  template <bool kCopy>
  ROCI_CRC_INLINE static Block Append(Block x, std::byte* dst, const std::byte* src, size_t length,
                                      size_t pad) {
    size_t at = length / kWidth * kWidth;
    if (at != 0) x = AppendBlocks<kCopy>(x, dst, src, at / kWidth);
    for (; at + 16 <= length; at += 16) {  // not with vectors of 16 bytes
      const Block block = Load128(src + at);
      if constexpr (kCopy) StorePartial(dst + at, block, 16);
      x = Step128(x, Load128(&kBy16), block);
    }
    const size_t rest = length - at;
    if (rest + pad == 0) return x;
    const Block tail = LoadPartial(src + at, rest);
    if constexpr (kCopy) StorePartial(dst + at, tail, rest + pad);
    return AppendTail128(x, tail, rest + pad);
  }

  template <bool kCopy>
  ROCI_CRC_INLINE static CrcState UpdateAny(CrcState state, std::byte* dst, const std::byte* src,
                                            size_t length) {
    const Block start = FromWords(state, 0);
    if (length >= 16) {
      const Block block = Load128(src);
      if constexpr (kCopy) StorePartial(dst, block, 16);
      const Block x = Xor128(start, block);
      return Reduce128(Append<kCopy>(x, kCopy ? dst + 16 : nullptr, src + 16, length - 16, 0));
    }
    if (length == 0) return state;
    // The state is added to the first four bytes; the sum is right-aligned.
    const Block v = LoadPartial(src, length);
    if constexpr (kCopy) StorePartial(dst, v, length);
    const uint32_t reduced = Reduce128(ShiftUp(Xor128(start, v), 16 - length));
    // Fewer bytes than the state has: its bytes beyond the message are not multiplied.
    return length >= 4 ? reduced : reduced ^ (state >> (8 * length));
  }

  // A masked message of `total` bytes is cut into whole blocks with the first one, of
  // FirstBytes(total), right-aligned.
  ROCI_CRC_INLINE static size_t FirstBytes(size_t total) { return ((total - 1) & 15) + 1; }

  // The accumulator over the first `total` bytes (at most 128) of pseudo header and packet.
  ROCI_CRC_INLINE static Block LoadHead(const std::byte* network, size_t total,
                                        const MaskTable& masks) {
    const Block by16 = Load128(&kBy16);
    const size_t first = FirstBytes(total);
    // The message's first 8 bytes are not in memory, so its first two blocks may start before the
    // packet: then they are made from the packet's first bytes.
    const Block packet = Load128(network);
    Block x = Or128(ShiftUp(packet, 16 + kPseudoHeaderBytes - first),
                    Load128(masks.data() + 64 - 16 + first));
    Block block = first < kPseudoHeaderBytes ? ShiftUp(packet, kPseudoHeaderBytes - first)
                                             : Load128(network + first - kPseudoHeaderBytes);
    for (size_t at = first;;) {
      x = Step128(x, by16, Or128(block, Load128(masks.data() + 64 + at)));
      at += 16;
      if (at == total) return x;
      block = Load128(network + at - kPseudoHeaderBytes);
    }
  }

  ROCI_CRC static CrcState Update(CrcState state, const std::byte* data, size_t length) {
    return UpdateAny<false>(state, nullptr, data, length);
  }

  ROCI_CRC static CrcState CopyUpdate(CrcState state, std::byte* dst, const std::byte* src,
                                      size_t length) {
    return UpdateAny<true>(state, dst, src, length);
  }

  ROCI_CRC static CrcState Masked(const std::byte* network, size_t length, bool is_ipv6) {
    const size_t total = kPseudoHeaderBytes + length;
    const size_t with_first = FirstBytes(total) + 64;  // all masks lie in the first 64 bytes
    const size_t head = total < with_first ? total : with_first;
    const Block x = LoadHead(network, head, is_ipv6 ? kMaskIpv6 : kMaskIpv4);
    return Reduce128(
        Append<false>(x, nullptr, network + head - kPseudoHeaderBytes, total - head, 0));
  }

  ROCI_CRC static CrcState MaskedCopy(std::byte* network, size_t header_length, bool is_ipv6,
                                      const std::byte* payload, size_t payload_length, size_t pad) {
    const Block x =
        LoadHead(network, kPseudoHeaderBytes + header_length, is_ipv6 ? kMaskIpv6 : kMaskIpv4);
    return Reduce128(Append<true>(x, network + header_length, payload, payload_length, pad));
  }
};

}  // namespace roci::roce::internal
