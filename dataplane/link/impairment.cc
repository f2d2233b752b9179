#include "dataplane/link/impairment.h"

#include <algorithm>
#include <cstring>

#include "roce/headers.h"
#include "roce/packet.h"

namespace roci::dataplane {
namespace {

// Not-ECT packets must not be marked: their transport does not support ECN (RFC 3168, 5).
bool IsCapable(uint8_t ecn) { return ecn == 1 || ecn == 2; }

}  // namespace

Impairment::Impairment(const ImpairmentSettings& settings, uint32_t lcore, Bottleneck* bottleneck)
    : settings_(settings),
      random_(memory::SplitMix::At(settings.seed,
                                   2 * lcore + (settings.direction == LinkDirection::kIn ? 1 : 0))),
      bottleneck_(bottleneck) {}

void Impairment::Apply(std::span<std::byte> frame, const FrameArrival& arrival, FrameFate& fate) {
  if (!Matches(settings_.filter, frame)) return;
  // Draws equally many numbers for every frame, so that one setting does not change the results of
  // another.
  const bool lost = Happens(settings_.loss);
  const bool duplicated = Happens(settings_.duplicate);
  const bool corrupted = Happens(settings_.corrupt);
  const uint64_t bit = random_.Next();
  const bool reordered = Happens(settings_.reorder);
  const uint64_t mark = Draw();
  counters_.matched.Add(1);
  if (lost) {
    counters_.lost.Add(1);
    fate.lost = true;
    return;
  }
  if (duplicated) {
    counters_.duplicated.Add(1);
    fate.duplicated = true;
  }
  Chance marked = settings_.ecn;
  if (bottleneck_ != nullptr && !PassBottleneck(arrival, fate, marked)) {
    fate.lost = true;
    return;
  }
  // Before the corruption, as in a switch on the way.
  if (mark < marked && MarkCongestion(frame)) counters_.ecn_marked.Add(1);
  if (corrupted) CorruptOneBit(frame, bit);
  if (settings_.delay_ns != 0) {
    counters_.delayed.Add(1);
    fate.delay_ns += settings_.delay_ns;
  }
  if (reordered) {
    counters_.reordered.Add(1);
    fate.delay_ns += settings_.reorder_ns;
  }
}

// The queue comes before the delays of all rules: frames enter it in order of arrival.
bool Impairment::PassBottleneck(const FrameArrival& arrival, FrameFate& fate, Chance& marked) {
  // A frame that cannot be held must not use the link's time.
  if (!arrival.has_room) {
    counters_.queue_full.Add(1);
    return false;
  }
  const Bottleneck::Passage passage =
      bottleneck_->Enter(arrival.bytes, fate.duplicated ? 2 : 1, arrival.now_ns);
  if (!passage.fits) {
    counters_.rate_dropped.Add(1);
    return false;
  }
  if (passage.waits) counters_.rate_delayed.Add(1);
  marked = std::max(marked, passage.marked);
  fate.queue_ns = std::max(fate.queue_ns, passage.leaves_ns);
  return true;
}

// Spares the Ethernet header: a damaged address would change the receiver of the frame.
void Impairment::CorruptOneBit(std::span<std::byte> frame, uint64_t number) {
  if (frame.size() <= roce::EthernetHeader::kBytes) return;
  const size_t bits = (frame.size() - roce::EthernetHeader::kBytes) * 8;
  const size_t bit = roce::EthernetHeader::kBytes * 8 + number % bits;
  frame[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  counters_.corrupted.Add(1);
}

bool MarkCongestion(std::span<std::byte> frame) {
  const NetworkHeader network = FindNetworkHeader(frame);
  std::byte* ip = frame.data() + network.offset;
  if (network.version == 6) {
    // The traffic class is spread over two bytes.
    if (!IsCapable((std::to_integer<uint8_t>(ip[1]) >> 4) & roce::kEcnMask)) return false;
    ip[1] |= static_cast<std::byte>(roce::kEcnCongestionExperienced << 4);
    return true;
  }
  if (network.version != 4 || std::to_integer<uint8_t>(ip[0]) != 0x45) return false;
  if (!IsCapable(std::to_integer<uint8_t>(ip[1]) & roce::kEcnMask)) return false;
  ip[1] |= static_cast<std::byte>(roce::kEcnCongestionExperienced);
  std::memset(ip + 10, 0, 2);
  const auto checksum = static_cast<uint16_t>(~roce::Ipv4HeaderSum(ip));
  std::memcpy(ip + 10, &checksum, sizeof(checksum));
  return true;
}

}  // namespace roci::dataplane
