#include "dataplane/link/fault_table.h"

#include <algorithm>
#include <utility>

namespace roci::dataplane {
namespace {

constexpr size_t kOpcodes = 256;

using Entries = std::vector<PositionIndex::Entry>;

bool NamesQueuePairs(const FaultMatch& match) {
  return !match.filter.qpns.empty() || match.cm_message != 0;
}
bool NamesPsn(const FaultMatch& match) { return match.psn.has_value() && !match.psn_from_first; }

Entries ByQpn(std::span<const FaultTable::Entry> faults) {
  Entries out;
  for (size_t i = 0; i < faults.size(); ++i) {
    const FaultMatch& match = faults[i].lane->match();
    const auto position = static_cast<uint16_t>(i);
    if (!NamesQueuePairs(match)) continue;
    if (match.filter.qpns.empty()) out.push_back({roce::kGsiQpn.value(), position});
    for (const roce::Qpn qpn : faults[i].qpns) out.push_back({qpn.value(), position});
    if (faults[i].qpns.empty()) continue;
    for (const roce::Qpn qpn : match.filter.peers) out.push_back({qpn.value(), position});
  }
  return out;
}

Entries ByPsn(std::span<const FaultTable::Entry> faults) {
  Entries out;
  for (size_t i = 0; i < faults.size(); ++i) {
    const FaultMatch& match = faults[i].lane->match();
    if (!NamesQueuePairs(match) && NamesPsn(match))
      out.push_back({*match.psn, static_cast<uint16_t>(i)});
  }
  return out;
}

}  // namespace

PositionIndex::PositionIndex(std::vector<Entry> entries) {
  if (entries.empty()) return;
  std::ranges::stable_sort(entries, {}, &Entry::key);
  slots_.resize(std::bit_ceil(entries.size() * 2));
  mask_ = static_cast<uint32_t>(slots_.size() - 1);
  for (size_t i = 0, end = 0; i < entries.size(); i = end) {
    const uint32_t key = entries[i].key;
    for (; end < entries.size() && entries[end].key == key; ++end) {
      positions_.push_back(entries[end].position);
    }
    const uint32_t bit = Hash(key) % kFilterBits;
    filter_[bit / 64] |= uint64_t{1} << (bit % 64);
    uint32_t at = Hash(key);
    while (slots_[at & mask_].count != 0) ++at;
    slots_[at & mask_] = {key, static_cast<uint32_t>(i), static_cast<uint32_t>(end - i)};
  }
}

FaultTable::FaultTable(std::span<const Entry> entries)
    : words_((entries.size() + kWordBits - 1) / kWordBits),
      by_qpn_(ByQpn(entries)),
      by_psn_(ByPsn(entries)),
      by_opcode_(kOpcodes * words_) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const FaultMatch& match = entries[i].lane->match();
    lanes_.push_back(entries[i].lane);
    asks_origin_ |= !match.queue_pair.MatchesAll();
    if (NamesQueuePairs(match) || NamesPsn(match)) continue;
    has_others_ = true;
    for (size_t opcode = 0; opcode < kOpcodes; ++opcode) {
      if (match.filter.opcodes.any() && !match.filter.opcodes.test(opcode)) continue;
      has_opcode_[opcode] = true;
      by_opcode_[opcode * words_ + i / kWordBits] |= uint64_t{1} << (i % kWordBits);
    }
  }
}

void FaultTable::Find(const FaultFrame& frame, size_t from, Positions& found) const {
  const std::span<const std::byte> transport = frame.transport();
  const roce::Bth bth = frame.bth();
  if (has_others_) {
    const size_t opcode = static_cast<uint8_t>(bth.opcode);
    std::copy_n(by_opcode_.begin() + static_cast<ptrdiff_t>(opcode * words_), words_,
                found.begin());
  } else {
    std::fill_n(found.begin(), words_, 0);
  }
  Add(by_psn_.Find(bth.psn.value()), found);
  Add(by_qpn_.Find(bth.dest_qpn.value()), found);
  if (frame.direction == LinkDirection::kOut) Add(by_qpn_.Find(frame.own.value()), found);
  const roce::Qpn source = DatagramSource(transport);
  if (source != roce::Qpn(0)) Add(by_qpn_.Find(source.value()), found);
  if (from == 0) return;
  const size_t word = std::min(from / kWordBits, words_);
  std::fill_n(found.begin(), word, 0);
  if (word < words_) found[word] &= ~uint64_t{0} << (from % kWordBits);
}

}  // namespace roci::dataplane
