#include "tools/judge/congestion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace roci::tools::judge {
namespace {

// A sender that is to slow down is looked at in intervals of this length, ...
constexpr int64_t kIntervalNs = 1'000'000;
// ... and has had time enough after this number of them, each with a CNP.
constexpr uint32_t kMostIntervals = 10;

void EndInterval(const SeenFrame& frame, Flow& flow, Reporter& out) {
  CongestionState& state = flow.congestion;
  if (state.interval_cnps == 0) {
    state.intervals = 0;
  } else if (state.intervals++ == 0) {
    state.first_bytes = state.interval_bytes;
  }
  if (state.intervals > kMostIntervals) {
    if (state.interval_bytes >= state.first_bytes) {
      out.Unsure(Rule::kCnpIgnored, flow, FrameRef::Of(frame), [&] {
        return absl::StrCat(state.interval_bytes, " bytes in a ms, ", kMostIntervals,
                            " ms earlier ", state.first_bytes);
      });
    }
    state.intervals = 0;
  }
  state.interval_bytes = 0;
  state.interval_cnps = 0;
  state.interval_start_ns = frame.time_ns;
}

template <class Key>
void NoteInterval(std::map<Key, CnpIntervals>& intervals, const Key& key, int64_t now_ns) {
  if (intervals.size() == CongestionWatch::kMostPorts && !intervals.contains(key)) return;
  intervals[key].Note(now_ns);
}

}  // namespace

void CongestionWatch::NotePacket(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (frame.packet.ecn() == roce::kEcnCongestionExperienced) ++flow.totals.marked;
  CongestionState& state = flow.congestion;
  if (!state.is_notified || !frame.has_time) return;
  if (frame.time_ns - state.interval_start_ns >= kIntervalNs) EndInterval(frame, flow, out);
  state.interval_bytes += frame.packet.payload.size();
}

void CongestionWatch::NoteCnp(const SeenFrame& frame, Flow& flow, Reporter& out) {
  ++flow.totals.cnps;
  const roce::Packet& packet = frame.packet;
  const std::byte* reserved = frame.bth + packet.info->OffsetOf(roce::ExtHeader::kCnpReserved);
  const bool has_bits =
      std::any_of(reserved, reserved + 16, [](std::byte b) { return b != std::byte{0}; });
  if (!packet.becn || has_bits) {
    out.Sure(Rule::kCnpBits, flow, frame,
             [&] { return std::string(packet.becn ? "reserved bytes are not 0" : "BECN is 0"); });
  }
  if (frame.has_time) {
    flow.congestion.cnps.Note(frame.time_ns);
    NoteInterval(ports_, packet.src_gid.bytes, frame.time_ns);
    NoteInterval(pairs_, {packet.src_gid.bytes, packet.dst_gid.bytes}, frame.time_ns);
  }
  if (flow.peer == nullptr) return;
  Flow& slowed = *flow.peer;
  if (!slowed.congestion.is_notified) slowed.congestion.interval_start_ns = frame.time_ns;
  slowed.congestion.is_notified = true;
  ++slowed.congestion.interval_cnps;
  if (flow.congestion.marks_used == slowed.totals.marked) {
    out.Unsure(Rule::kCnpUnmarked, flow, FrameRef::Of(frame),
               [&] { return absl::StrCat(slowed.totals.marked, " packets were marked so far"); });
  }
  flow.congestion.marks_used = slowed.totals.marked;
}

}  // namespace roci::tools::judge
