// The limit for large messages: 4096-byte packets copied into a frame with CRC, a ring, CRC check,
// payload copied out, an acknowledgement per 32 packets.
#include "tests/bench/limit_frame.h"
#include "tests/bench/limit_measure.h"

namespace roci::bench {
namespace {

constexpr size_t kMtu = 4096;
constexpr uint32_t kPacketsPerAck = 32;
constexpr size_t kAckBytes =
    64;  // a little more than the 48 of a real one's IP header through AETH

// Short runs, of which the best counts: time slices of other programs are not part of the limit.
constexpr int kRuns = 4;

enum class CopyOut { kWide, kLibrary, kAroundCaches };

constexpr const char* Name(CopyOut copy) {
  switch (copy) {
    case CopyOut::kWide:
      return "64-byte stores";
    case CopyOut::kLibrary:
      return "memcpy";
    case CopyOut::kAroundCaches:
      return "non-temporal stores";
  }
  return "";
}

template <CopyOut kCopy>
inline void Deliver(std::byte* dst, const std::byte* src) {
  if constexpr (kCopy == CopyOut::kWide) CopyWide<kMtu>(dst, src);
  if constexpr (kCopy == CopyOut::kLibrary) std::memcpy(dst, src, kMtu);
  if constexpr (kCopy == CopyOut::kAroundCaches) CopyAround<kMtu>(dst, src);
}

struct Place {
  std::byte* source;
  std::byte* target;
  std::byte* frames;
  size_t half;  // bytes of source and of target, a multiple of 4096
  // Positions of the next packet; a run continues where the last one stopped.
  size_t& send_at;
  size_t& receive_at;
};

template <CopyOut kCopy>
[[gnu::noinline]] double Run(const Place& place, uint32_t burst, double seconds) {
  const HeaderBlock block = WriteOnlyBlock(kMtu);
  std::byte* const ack = place.frames + size_t{kMaxBurst} * kFrameSlot + kPayloadAt;
  Wire wire;
  uint64_t packets = 0;
  uint32_t unacknowledged = 0;
  size_t send_at = place.send_at;
  size_t receive_at = place.receive_at;
  const double start = Now();
  double now = start;
  while (now - start < seconds) {
    for (uint32_t round = 0; round < 256; round += burst) {
      for (uint32_t i = 0; i < burst; ++i) {
        MakeFrame<kMtu>(block, static_cast<uint32_t>(packets + i), send_at, place.source + send_at,
                        place.frames + i * kFrameSlot + kPayloadAt);
        wire.Push(i);
        send_at = send_at + kMtu == place.half ? 0 : send_at + kMtu;
      }
      for (uint32_t i = 0; i < burst; ++i) {
        const std::byte* payload = place.frames + wire.Pop() * kFrameSlot + kPayloadAt;
        if (!CheckFrame<kMtu>(payload)) Die("a frame failed its check");
        Deliver<kCopy>(place.target + receive_at, payload);
        receive_at = receive_at + kMtu == place.half ? 0 : receive_at + kMtu;
      }
      packets += burst;
      unacknowledged += burst;
      if (unacknowledged >= kPacketsPerAck) {
        unacknowledged = 0;
        MakeFrame<kAckBytes>(block, static_cast<uint32_t>(packets), 0, ack - 128, ack);
        if (!CheckFrame<kAckBytes>(ack)) Die("an acknowledgement failed its check");
      }
    }
    now = Now();
  }
  place.send_at = send_at;
  place.receive_at = receive_at;
  return static_cast<double>(packets * kMtu * 8) / (now - start) * 1e-9;
}

double RunWith(CopyOut copy, const Place& place, uint32_t burst, double seconds) {
  switch (copy) {
    case CopyOut::kWide:
      return Run<CopyOut::kWide>(place, burst, seconds);
    case CopyOut::kLibrary:
      return Run<CopyOut::kLibrary>(place, burst, seconds);
    case CopyOut::kAroundCaches:
      return Run<CopyOut::kAroundCaches>(place, burst, seconds);
  }
  return 0;
}

}  // namespace

LargeResult LargeLimit(size_t working_set, double seconds) {
  const size_t half = working_set / 2 < kMtu ? kMtu : working_set / 2 / kMtu * kMtu;
  const Memory source(half);
  const Memory target(half);
  const Memory frames((kMaxBurst + 1) * kFrameSlot + kPayloadAt);
  size_t send_at = 0;
  size_t receive_at = 0;
  const Place place{source.data(), target.data(), frames.data(), half, send_at, receive_at};
  LargeResult best;
  for (const uint32_t burst : {1u, 4u, 8u, 32u}) {
    for (const CopyOut copy : {CopyOut::kWide, CopyOut::kLibrary, CopyOut::kAroundCaches}) {
      for (int run = 0; run < kRuns; ++run) {
        const double gbps = RunWith(copy, place, burst, seconds / kRuns);
        if (gbps > best.gbps) {
          best = {gbps, "burst " + std::to_string(burst) + ", " + Name(copy)};
        }
      }
    }
  }
  return best;
}

}  // namespace roci::bench
