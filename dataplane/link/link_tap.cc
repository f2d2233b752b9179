#include "dataplane/link/link_tap.h"

#include <rte_mbuf.h>

#include <algorithm>

#include "dataplane/link/frame_filter.h"
#include "roce/headers.h"

namespace roci::dataplane {

LinkTap::LinkTap(uint32_t lcore, const uint64_t* now, rte_mempool* pool, const LaneView& view)
    : lcore_(lcore), now_ns_(now), pool_(pool), view_(view) {
  captures_.reserve(kMaxCaptures);
  for (auto& rules : rules_) rules.reserve(kMaxRules);
}

void LinkTap::RemoveCapture(const OnShard&, CaptureTap& capture) {
  std::erase(captures_, &capture);
}

bool LinkTap::CapturesHaveRoom() const {
  return std::ranges::all_of(
      captures_, [this](const CaptureTap* capture) { return capture->HasRoom(lcore_); });
}

void LinkTap::RemoveRule(const OnShard&, Impairment& rule) {
  for (auto& rules : rules_) std::erase(rules, &rule);
}

bool LinkTap::IsIdle() const {
  const auto is_empty = [](const auto& each) { return each.empty(); };
  const auto is_null = [](const FaultTable* table) { return table == nullptr; };
  return !wire_time_ && captures_.empty() && trace_ == nullptr &&
         std::ranges::all_of(faults_, is_null) && std::ranges::all_of(rules_, is_empty) &&
         std::ranges::all_of(queues_, is_empty) && std::ranges::all_of(overtaken_, is_empty);
}

uint32_t LinkTap::Receive(rte_mbuf** frames, uint32_t count, uint32_t capacity) {
  if (wire_time_) [[unlikely]]
    count = Arrive(frames, count, capacity);
  Capture(LinkDirection::kIn, frames, count);
  count = Impair(LinkDirection::kIn, frames, nullptr, 0, count);
  uint8_t unused;
  while (count < capacity) {
    rte_mbuf* due = QueueOf(LinkDirection::kIn).Pop(*now_ns_, &unused);
    if (due == nullptr) break;
    frames[count++] = due;
  }
  if (trace_ != nullptr) Trace(LinkDirection::kIn, frames, count);
  return count;
}

uint32_t LinkTap::Send(rte_mbuf** frames, uint8_t* to, uint32_t staged, uint32_t capacity) {
  if (trace_ != nullptr) Trace(LinkDirection::kOut, frames + passed_, staged - passed_);
  uint32_t count = Impair(LinkDirection::kOut, frames, to, passed_, staged);
  while (count < capacity) {
    rte_mbuf* due = QueueOf(LinkDirection::kOut).Pop(*now_ns_, &to[count]);
    if (due == nullptr) break;
    frames[count++] = due;
  }
  if (wire_time_) [[unlikely]]
    count = Depart(frames, to, passed_, count, capacity);
  Capture(LinkDirection::kOut, frames + passed_, count - passed_);
  return count;
}

// The frames of [begin, end) enter the link. Those that have left it by now take their places;
// returns the new end.
uint32_t LinkTap::Depart(rte_mbuf** frames, uint8_t* to, uint32_t begin, uint32_t end,
                         uint32_t capacity) {
  for (uint32_t i = begin; i < end; ++i) wire_time_->Depart(frames[i], to[i], *now_ns_);
  uint32_t count = begin;
  while (count < capacity) {
    rte_mbuf* const left = wire_time_->NextDeparted(*now_ns_, &to[count]);
    if (left == nullptr) break;
    frames[count++] = left;
  }
  return count;
}

// The same for `count` frames of other ends of the wire, and those that have arrived.
uint32_t LinkTap::Arrive(rte_mbuf** frames, uint32_t count, uint32_t capacity) {
  for (uint32_t i = 0; i < count; ++i) wire_time_->Arrive(frames[i]);
  count = 0;
  while (count < capacity) {
    rte_mbuf* const arrived = wire_time_->NextArrived(*now_ns_);
    if (arrived == nullptr) break;
    frames[count++] = arrived;
  }
  return count;
}

// Keeps the frames of [begin, end) that pass now. Returns the new end.
uint32_t LinkTap::Impair(LinkDirection direction, rte_mbuf** frames, uint8_t* to, uint32_t begin,
                         uint32_t end) {
  OvertakenOf(direction).ReleaseOverdue(
      *now_ns_, [&](rte_mbuf* frame, uint8_t lcore) { Hold(direction, frame, lcore, *now_ns_); });
  if (FaultsOf(direction) == nullptr && RulesOf(direction).empty() &&
      OvertakenOf(direction).empty()) {
    return end;
  }
  uint32_t kept = begin;
  for (uint32_t i = begin; i < end; ++i) {
    const uint8_t lcore = to != nullptr ? to[i] : uint8_t{0};
    if (!PassesNow(direction, frames[i], lcore)) continue;
    frames[kept] = frames[i];
    if (to != nullptr) to[kept] = lcore;
    ++kept;
  }
  return kept;
}

// False: the frame was lost or is held; the caller does not own it any more.
bool LinkTap::PassesNow(LinkDirection direction, rte_mbuf* frame, uint8_t to) {
  const FaultFate fault = ApplyFaults(direction, frame, to);
  if (!fault.is_hit && RulesOf(direction).empty() && OvertakenOf(direction).empty() &&
      !follows_[static_cast<size_t>(direction)]) {
    return true;
  }
  if (fault.is_dropped) {
    rte_pktmbuf_free(frame);
    return false;
  }
  const FrameFate fate = ApplyRules(direction, frame);
  if (fate.lost) {
    rte_pktmbuf_free(frame);
    return false;
  }
  const uint64_t due_ns = *now_ns_ + fate.hold_ns() + fault.delay_ns;
  Duplicate(direction, frame, to, fault.copies + (fate.duplicated ? 1 : 0), due_ns, fault.by);
  if (fault.overtaken_by != 0) {
    if (OvertakenOf(direction).Push(frame, to, fault.overtaken_by, *now_ns_)) return false;
    NoteNoRoom(direction, fault.by);
  }
  if (due_ns != *now_ns_) {
    Hold(direction, frame, to, due_ns, fault.by);
    ReleaseOvertaken(direction, due_ns);
    return false;
  }
  return PassInOrder(direction, frame, to);
}

FaultFate LinkTap::ApplyFaults(LinkDirection direction, rte_mbuf* frame, uint8_t to) {
  FaultFate fate;
  const FaultTable* const table = FaultsOf(direction);
  if (table == nullptr) return fate;
  FaultFrame seen{.bytes = {rte_pktmbuf_mtod(frame, std::byte*), frame->data_len},
                  .direction = direction,
                  .now_ns = *now_ns_};
  const size_t transport_bytes = FromBth(seen.bytes).size();
  if (transport_bytes == 0) return fate;
  seen.transport_offset = seen.bytes.size() - transport_bytes;
  seen.own = direction == LinkDirection::kOut ? roce::Qpn(frame->hash.usr) : seen.bth().dest_qpn;
  if (table->asks_origin()) {
    seen.origin = view_.origin_of(view_.lane, seen.own);
    seen.is_of_other_lcore = seen.origin == nullptr && view_.is_elsewhere(view_.lane, seen.own);
  }
  table->VisitAll(seen, [&](FaultLane& fault) {
    fate.injects = nullptr;
    fault.Apply(seen, fate);
    if (fate.injects != nullptr) Inject(fault, seen, to);
    return !fate.is_dropped;
  });
  if (fate.is_dropped) return fate;
  if (fate.cut_bytes != 0) {
    // The Ethernet header stays.
    const auto most = static_cast<uint32_t>(frame->data_len) - roce::EthernetHeader::kBytes;
    rte_pktmbuf_trim(frame, static_cast<uint16_t>(std::min(fate.cut_bytes, most)));
  }
  return fate;
}

// The queue pair that has sent the packet; 0: unknown.
roce::Qpn LinkTap::AnsweredBy(const FaultFrame& hit) const {
  const roce::Qpn source = DatagramSource(hit.transport());
  if (source != roce::Qpn(0)) return source;
  return hit.direction == LinkDirection::kOut ? hit.own : view_.peer_of(view_.lane, hit.own);
}

// In its own direction the frame goes in front of the packet, which follows it by the queue.
// `to`: where the packet goes.
void LinkTap::Inject(FaultLane& fault, const FaultFrame& hit, uint8_t to) {
  rte_mbuf* const frame = rte_pktmbuf_alloc(pool_);
  if (frame == nullptr) return fault.NoteNoRoom();
  const std::span<std::byte> out(rte_pktmbuf_mtod(frame, std::byte*),
                                 std::min<size_t>(rte_pktmbuf_tailroom(frame), kMostInjectedBytes));
  const auto made = fault.Inject(hit, AnsweredBy(hit), out);
  if (!made.has_value()) return rte_pktmbuf_free(frame);
  frame->hash.usr = hit.own.value();
  frame->data_len = static_cast<uint16_t>(made->bytes);
  frame->pkt_len = made->bytes;
  const std::span<const std::byte> transport = FromBth(out.first(made->bytes));
  // Frames without a BTH are for control threads, as packets to QP 1 are.
  const roce::Qpn dest =
      transport.empty() ? roce::kGsiQpn : roce::Bth::Load(transport.data()).dest_qpn;
  if (made->direction == LinkDirection::kOut) {
    to = view_.lcore_of(view_.lane, dest);
  } else if (!view_.hands_off && view_.is_elsewhere(view_.lane, dest)) {
    fault.NoteNotThere();
    return rte_pktmbuf_free(frame);
  }
  // Incoming frames are captured before faults apply.
  rte_mbuf* captured = frame;
  if (made->direction == LinkDirection::kIn) Capture(LinkDirection::kIn, &captured, 1);
  Hold(made->direction, frame, to, *now_ns_, &fault);
  if (made->direction == hit.direction) follows_[static_cast<size_t>(hit.direction)] = true;
}

// With virtual time, frames of control threads must not change which numbers the others draw, nor
// wait for a time that may not come before them.
FrameFate LinkTap::ApplyRules(LinkDirection direction, rte_mbuf* frame) {
  if (wire_time_ && WireTime::IsOfControl(*frame, direction)) return {};
  const FrameArrival arrival{
      .now_ns = *now_ns_, .bytes = frame->pkt_len, .has_room = QueueOf(direction).HasRoom()};
  FrameFate fate;
  for (Impairment* rule : RulesOf(direction)) {
    rule->Apply({rte_pktmbuf_mtod(frame, std::byte*), frame->data_len}, arrival, fate);
    if (fate.lost) break;
  }
  return fate;
}

void LinkTap::Duplicate(LinkDirection direction, rte_mbuf* frame, uint8_t to, uint32_t copies,
                        uint64_t due_ns, FaultLane* by) {
  for (; copies != 0; --copies) {
    // Without room nothing is copied: many faults can ask for a thousand copies of each frame.
    rte_mbuf* copy =
        QueueOf(direction).HasRoom() ? rte_pktmbuf_copy(frame, pool_, 0, UINT32_MAX) : nullptr;
    if (copy == nullptr) return NoteNoRoom(direction, by);
    Hold(direction, copy, to, due_ns, by);
  }
}

// Releases the frames that the frame due at `due_ns` was the last to overtake: they follow it.
// False: there were none.
bool LinkTap::ReleaseOvertaken(LinkDirection direction, uint64_t due_ns) {
  bool any = false;
  OvertakenOf(direction).NotePassed([&](rte_mbuf* overtaken, uint8_t lcore) {
    any = true;
    Hold(direction, overtaken, lcore, due_ns);
  });
  return any;
}

// Lets frames go on that this one was the last to overtake. Frames after them go behind them, by
// the queue, as this one does if there are such frames.
bool LinkTap::PassInOrder(LinkDirection direction, rte_mbuf* frame, uint8_t to) {
  const bool follows = follows_[static_cast<size_t>(direction)] && !QueueOf(direction).empty() &&
                       QueueOf(direction).next_due() <= *now_ns_;
  if (follows) Hold(direction, frame, to, *now_ns_);
  const bool released = ReleaseOvertaken(direction, *now_ns_);
  follows_[static_cast<size_t>(direction)] = follows || released;
  return !follows;
}

void LinkTap::Hold(LinkDirection direction, rte_mbuf* frame, uint8_t to, uint64_t due_ns,
                   FaultLane* by) {
  if (QueueOf(direction).Push(frame, to, due_ns)) return;
  NoteNoRoom(direction, by);
  rte_pktmbuf_free(frame);
}

void LinkTap::NoteNoRoom(LinkDirection direction, FaultLane* by) {
  if (by != nullptr) {
    by->NoteNoRoom();
  } else if (!RulesOf(direction).empty()) {
    RulesOf(direction).front()->counters().queue_full.Add(1);
  } else if (FaultsOf(direction) != nullptr) {
    FaultsOf(direction)->front().NoteNoRoom();
  }
}

// Frames that are no RoCE packets are of no queue pair of a transport, and left out.
void LinkTap::Trace(LinkDirection direction, rte_mbuf* const* frames, uint32_t count) {
  const bool is_sent = direction == LinkDirection::kOut;
  for (uint32_t i = 0; i < count; ++i) {
    const rte_mbuf* frame = frames[i];
    const std::span bytes(rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len);
    const std::span<const std::byte> transport = FromBth(bytes);
    if (transport.empty()) continue;
    const uint32_t udp_bytes =
        roce::UdpHeader::Load(transport.data() - roce::UdpHeader::kBytes).length;
    if (udp_bytes < roce::UdpHeader::kBytes + roce::Bth::kBytes) continue;
    const uint32_t qpn =
        is_sent ? frame->hash.usr : roce::Bth::Load(transport.data()).dest_qpn.value();
    trace_->AddPacket(qpn, transport, udp_bytes - roce::UdpHeader::kBytes, is_sent,
                      IsMarkedCe(bytes));
  }
}

void LinkTap::Capture(LinkDirection direction, rte_mbuf** frames, uint32_t count) {
  if (count == 0) return;
  for (CaptureTap* capture : captures_) {
    capture->Take(lcore_, frames, count, direction, *now_ns_);
  }
}

}  // namespace roci::dataplane
