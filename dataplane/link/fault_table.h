// The faults of one direction of a lane, found by what they match: faults of other queue pairs,
// opcodes and PSNs cost a packet nothing. If some fault names a queue pair, each datagram is looked
// up; behind a fault that may change packets, the rest is looked up again. Immutable.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/link/fault.h"
#include "dataplane/link/fault_frame.h"
#include "memory/split_mix.h"

namespace roci::dataplane {

// Finds positions by a number. Open addressing.
class PositionIndex {
 public:
  struct Entry {
    uint32_t key;
    uint16_t position;
  };
  explicit PositionIndex(std::vector<Entry> entries);

  bool empty() const { return slots_.empty(); }
  // False: no entry has the key.
  bool MayHave(uint32_t key) const {
    const uint32_t bit = Hash(key) % kFilterBits;
    return (filter_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  std::span<const uint16_t> Find(uint32_t key) const {
    if (slots_.empty()) return {};
    for (uint32_t i = Hash(key);; ++i) {
      const Slot& slot = slots_[i & mask_];
      if (slot.count == 0) return {};
      if (slot.key == key) return std::span(positions_).subspan(slot.first, slot.count);
    }
  }

 private:
  struct Slot {
    uint32_t key = 0;
    uint32_t first = 0;
    uint32_t count = 0;
  };
  static uint32_t Hash(uint32_t key) { return (key * memory::kGoldenRatio32) >> 8; }

  static constexpr uint32_t kFilterBits = 16384;
  std::array<uint64_t, kFilterBits / 64> filter_{};  // by hash
  std::vector<Slot> slots_;  // a power of two, at most half of them used; empty: no entries
  uint32_t mask_ = 0;
  std::vector<uint16_t> positions_;
};

class FaultTable {
 public:
  static constexpr size_t kMost = 1024;

  // `qpns`: those of the fault's filter that still exist.
  struct Entry {
    FaultLane* lane;
    std::span<const roce::Qpn> qpns;
  };
  // At most kMost, in the order in which they apply.
  explicit FaultTable(std::span<const Entry> entries);

  bool empty() const { return lanes_.empty(); }
  size_t size() const { return lanes_.size(); }
  // Some fault asks for the origin of the packet's queue pair.
  bool asks_origin() const { return asks_origin_; }
  FaultLane& front() const { return *lanes_.front(); }

  // Calls visit(fault) for those that may concern the frame, in their order, until it returns
  // false. A fault may change the frame: those behind it see it as changed.
  template <class Visit>
  void VisitAll(const FaultFrame& frame, Visit&& visit) const {
    if (!MayConcern(frame)) [[likely]]
      return;
    Positions found;
    Find(frame, 0, found);
    for (size_t word = 0; word < words_; ++word) {
      while (found[word] != 0) {
        const auto bit = static_cast<size_t>(std::countr_zero(found[word]));
        found[word] &= found[word] - 1;
        FaultLane& lane = *lanes_[word * kWordBits + bit];
        if (!visit(lane)) return;
        if (lane.changes_packets()) Find(frame, word * kWordBits + bit + 1, found);
      }
    }
  }

 private:
  static constexpr size_t kWordBits = 64;
  using Positions = std::array<uint64_t, kMost / kWordBits>;

  // False: no fault concerns the frame.
  bool MayConcern(const FaultFrame& frame) const {
    const std::byte* const bth = frame.bytes.data() + frame.transport_offset;
    const auto opcode = std::to_integer<uint8_t>(bth[0]);
    constexpr uint32_t kNumber = roce::kMask24;
    return has_opcode_[opcode] || by_psn_.MayHave(roce::LoadBe<uint32_t>(bth + 8) & kNumber) ||
           by_qpn_.MayHave(roce::LoadBe<uint32_t>(bth + 4) & kNumber) ||
           (!by_qpn_.empty() && (by_qpn_.MayHave(frame.own.value()) || IsDatagram(opcode)));
  }
  static bool IsDatagram(uint8_t opcode) {
    const roce::OpcodeInfo& info = roce::kOpcodeTable[opcode];
    return info.known && info.Has(roce::ExtHeader::kDeth);
  }
  // Those from position `from` on.
  void Find(const FaultFrame& frame, size_t from, Positions& found) const;
  void Add(std::span<const uint16_t> positions, Positions& found) const {
    for (const uint16_t position : positions) {
      found[position / kWordBits] |= uint64_t{1} << (position % kWordBits);
    }
  }

  std::vector<FaultLane*> lanes_;
  size_t words_;
  bool asks_origin_ = false;
  bool has_others_ = false;
  // Whether by_opcode_ has some.
  std::array<bool, 256> has_opcode_{};
  PositionIndex by_qpn_;
  PositionIndex by_psn_;
  // The others by opcode: `words_` for each.
  std::vector<uint64_t> by_opcode_;
};

}  // namespace roci::dataplane
