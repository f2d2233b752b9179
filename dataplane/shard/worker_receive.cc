// The receiving part of the loop: a burst of frames through gate 1 to the queue pairs.
#include <rte_mbuf.h>

#include <algorithm>

#include "dataplane/base/prefetch.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"
#include "roce/parse.h"

namespace roci::dataplane {
namespace {

using roce::DropReason;

std::span<const std::byte> BytesOf(const rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len};
}

// The address check beyond that of the queue pair: ports may deliver frames of other stations, and
// datagrams must have one of the device's addresses.
DropReason CheckAddressedHere(const OnShard& shard, const DeviceLane& lane, const QueuePair& qp,
                              const roce::Packet& packet) {
  if (lane.ethdev != nullptr && packet.dst_mac != lane.mac && !packet.dst_mac.IsGroup()) {
    return DropReason::kAddress;
  }
  if (qp.type() != roce::QpType::kUd || lane.local_addresses(shard).empty())
    return DropReason::kNone;
  DropReason reason = DropReason::kAddress;
  for (const roce::NetAddress& own : lane.local_addresses(shard)) {
    if (own.gid != packet.dst_gid) continue;
    if (own.vlan == packet.vlan()) return DropReason::kNone;
    reason = DropReason::kVlan;
  }
  return reason;
}

// The device is a member of the VLANs in which it has an address.
bool IsOfOurVlan(const OnShard& shard, const DeviceLane& lane, const roce::Packet& packet) {
  const auto& own = lane.local_addresses(shard);
  return packet.vlan() == 0 || own.empty() ||
         std::any_of(own.begin(), own.end(), [&](const roce::NetAddress& address) {
           return address.vlan == packet.vlan();
         });
}

// Of a frame that is not RoCE. At most one VLAN tag, as in all frames that control/ handles.
SlowPathKind KindOf(const rte_mbuf* frame) {
  constexpr size_t kTypeAt = roce::Ipv6Header::kBytes;  // of ICMPv6
  std::span<const std::byte> rest = BytesOf(frame);
  if (rest.size() < roce::EthernetHeader::kBytes) return SlowPathKind::kOthers;
  uint16_t type = roce::EthernetHeader::Load(rest.data()).ether_type;
  rest = rest.subspan(roce::EthernetHeader::kBytes);
  if (roce::IsVlanType(type) && rest.size() >= roce::VlanTag::kBytes) {
    type = roce::VlanTag::Load(rest.data()).ether_type;
    rest = rest.subspan(roce::VlanTag::kBytes);
  }
  if (type == roce::kEtherTypeArp) return SlowPathKind::kNeighbours;
  const bool is_icmpv6 = type == roce::kEtherTypeIpv6 && rest.size() > kTypeAt &&
                         roce::Ipv6Header::Load(rest.data()).next_header == roce::kIpProtocolIcmpv6;
  return is_icmpv6 && (rest[kTypeAt] == std::byte{roce::kNdSolicitation} ||
                       rest[kTypeAt] == std::byte{roce::kNdAdvertisement})
             ? SlowPathKind::kNeighbours
             : SlowPathKind::kOthers;
}

bool IsOwnDatagram(const DeviceLane& lane, const QueuePair& qp, const roce::Packet& packet) {
  return packet.info->Has(roce::ExtHeader::kDeth) && packet.ext.deth.src_qpn == qp.qpn() &&
         packet.src_mac == lane.mac;
}

}  // namespace

uint32_t Worker::ReceiveLane(DeviceLane& lane) {
  uint32_t received = 0;
  for (uint32_t burst = 0; burst < kBurstsPerRound; ++burst) {
    const uint32_t count = ReceiveBurst(lane);
    received += count;
    if (count < kBurst) break;
  }
  if (lane.matched != nullptr) received += ReceiveMatched(lane);
  return received;
}

uint32_t Worker::ReceiveBurst(DeviceLane& lane) {
  rte_mbuf* frames[kBurst];
  const auto [count, handed_off] = lane.Receive(shard_, frames);
  if (count == 0) return 0;
  stats_.rx_bursts.Add(1);
  stats_.rx_packets.Add(count);
  stats_.rx_handed_off.Add(handed_off);
  ParseBurst(lane, frames, count);
  if (count == kBurst && lane.IsBacklogged(shard_)) [[unlikely]]
    MarkBacklog(lane, handed_off, count);
  CountReceived(lane, frames + handed_off, count - handed_off);
  if (!lane.flows.sniffers(shard_).empty()) [[unlikely]]
    Sniff(lane, frames + handed_off, count - handed_off);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!HandleFrame(lane, frames[i], i, handed_off)) frames[kept++] = frames[i];
  }
  // Before sending, so that the buffers are reused while they are in the cache.
  FreeFrames(lane, frames, kept);
  VisitTouched();
  if (!is_virtual_) [[likely]]
    events_.Publish(shard_);
  return count;
}

// Parses the headers of all frames first, while the queue pairs' state is prefetched.
void Worker::ParseBurst(DeviceLane& lane, rte_mbuf** frames, uint32_t count) {
  const QueuePair* last = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    __builtin_prefetch(frames[i]);
    __builtin_prefetch(static_cast<const char*>(frames[i]->buf_addr) + kFrameOffset);
    __builtin_prefetch(static_cast<const char*>(frames[i]->buf_addr) + kFrameOffset +
                       kCacheLineBytes);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (frames[i]->nb_segs != 1) [[unlikely]] {
      reasons_[i] = DropReason::kNotRoce;  // HandleOther drops it
      continue;
    }
    reasons_[i] = roce::ParseHeaders(BytesOf(frames[i]), packets_[i]);
    if (reasons_[i] != DropReason::kNone) [[unlikely]]
      continue;
    const QueuePair* qp = lane.Slot(shard_, packets_[i].dest_qpn);
    if (qp == nullptr || qp == last) continue;
    qp->Prefetch(shard_);
    last = qp;
  }
}

// This host is the bottleneck: handles the frames of the burst as a congested switch would have
// marked them (RFC 3168), so that their senders get CNPs.
void Worker::MarkBacklog(DeviceLane& lane, uint32_t first, uint32_t count) {
  if (!lane.congestion) return;
  for (uint32_t i = first; i < count; ++i) {
    roce::Packet& packet = packets_[i];
    if (reasons_[i] != DropReason::kNone || packet.ecn() == 0) continue;
    if (packet.ecn() != roce::kEcnCongestionExperienced) lane.counters.rx_backlog_marked.Add(1);
    packet.traffic_class |= roce::kEcnCongestionExperienced;
  }
}

void Worker::CountReceived(DeviceLane& lane, rte_mbuf** frames, uint32_t count) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) bytes += frames[i]->pkt_len;
  lane.counters.rx_packets.Add(count);
  lane.counters.rx_bytes.Add(bytes);
}

bool Worker::HandleFrame(DeviceLane& lane, rte_mbuf* frame, uint32_t index, uint32_t handed_off) {
  const roce::Packet& packet = packets_[index];
  if (reasons_[index] != DropReason::kNone) [[unlikely]] {
    return HandleOther(lane, frame, reasons_[index]);
  }
  QueuePair* qp = lane.Find(shard_, packet.dest_qpn);
  if (qp == nullptr) [[unlikely]]
    return HandleNoQueuePair(lane, frame, packet, index < handed_off);
  DropReason reason = roce::CheckIcrc(packet);
  if (reason == DropReason::kNone) [[likely]]
    reason = CheckAddressedHere(shard_, lane, *qp, packet);
  if (reason != DropReason::kNone) [[unlikely]] {
    lane.counters.Drop(reason);
    return false;
  }
  lane.counters.rx_roce_packets.Add(1);
  return Deliver(lane, *qp, packet, frame, Sharing::kNobody);
}

// Delivers a packet with a correct ICRC to a queue pair of this lcore. True: took ownership of the
// frame.
bool Worker::Deliver(DeviceLane& lane, QueuePair& qp, const roce::Packet& packet, rte_mbuf* frame,
                     Sharing sharing) {
  AppCopies* copies = qp.host(shard_).CopiesFor(packet);
  const bool is_plain = copies == nullptr || (copies->IsIdle(shard_) &&
                                              qp.host(shard_).copy_state().parked_in() == nullptr &&
                                              !copies->IsShut(shard_));
  if (!is_plain && MustWait(*copies, qp, packet)) [[unlikely]] {
    return Park(*copies, qp, lane, frame, sharing);
  }
  qp.CountReceived(shard_);
  DropReason reason = qp.CheckPath(shard_, packet);
  bool is_kept = false;
  if (reason == DropReason::kNone) [[likely]] {
    if (copies != nullptr) [[likely]]
      copies->places(shard_).BeginPacket(packet);
    const roce::PacketEffects effects = HandlePacket(qp, copies, packet);
    reason = effects.reason;
    if (effects.cnp_to_source) [[unlikely]]
      qp.SetNotificationPath(shard_, packet);
    Touch(qp);
    if (copies != nullptr && copies->places(shard_).HasPayloadOfPacket()) [[unlikely]]
      is_kept = KeepFrame(*copies, lane, frame, sharing);
    // Without room the packet is lost, and the peer retransmits it.
    if (effects.offer_again) [[unlikely]]
      is_kept = Park(*copies, qp, lane, frame, sharing);
    if (effects.early != roce::EarlyAction::kNone) [[unlikely]]
      is_kept |= HandleEarly(lane, qp, packet, frame, effects.early);
  }
  if (reason != DropReason::kNone) [[unlikely]] {
    qp.CountDrop(shard_);
    lane.counters.Drop(reason);
  }
  return is_kept;
}

roce::PacketEffects Worker::HandlePacket(QueuePair& qp, const AppCopies* copies,
                                         const roce::Packet& packet) {
  const MemoryUse use(*this, copies);
  return qp.HandlePacket(shard_, now_, packet);
}

// True: took ownership of the frame of `packet`, which has been handled.
bool Worker::HandleEarly(DeviceLane& lane, QueuePair& qp, const roce::Packet& packet,
                         rte_mbuf* frame, roce::EarlyAction action) {
  if (action == roce::EarlyAction::kOfferKept) {
    DeliverEarly(lane, qp);
    return false;
  }
  early_.Keep(shard_, qp.early(shard_), packet.info->is_request, QueuePair::Core::DuePsn(packet),
              frame);
  qp.NoteEarly(shard_);
  return true;
}

// Delivers the early packets that are due now. Each may make the next one due.
void Worker::DeliverEarly(DeviceLane& lane, QueuePair& qp) {
  if (delivers_early_) return;
  delivers_early_ = true;
  roce::Packet packet;
  while (rte_mbuf* frame = TakeDue(qp)) {
    // Headers and ICRC were checked at its arrival, and an ECN mark was counted.
    bool is_taken = false;
    if (roce::ParseHeaders(BytesOf(frame), packet) == DropReason::kNone) {
      packet.traffic_class &= static_cast<uint8_t>(~roce::kEcnMask);
      is_taken = Deliver(lane, qp, packet, frame, Sharing::kNobody);
    }
    if (!is_taken) rte_pktmbuf_free(frame);
  }
  delivers_early_ = false;
}

// Null: no early packet is due.
rte_mbuf* Worker::TakeDue(QueuePair& qp) {
  EarlyFrames::List& list = qp.early(shard_);
  for (const bool is_request : {true, false}) {
    const std::optional<roce::Psn> due = early_.FirstDue(shard_, list, is_request);
    if (due && qp.core(shard_).IsDue(is_request, *due)) {
      return early_.TakeFirst(shard_, list, is_request);
    }
  }
  return nullptr;
}

void Worker::DropEarly(QueuePair& qp) {
  for (const bool is_request : {true, false}) {
    while (rte_mbuf* frame = early_.TakeFirst(shard_, qp.early(shard_), is_request)) {
      rte_pktmbuf_free(frame);
    }
  }
  qp.NoteNoEarly(shard_);
}

void Worker::Touch(QueuePair& qp) {
  if (qp.Touch(shard_)) touched_[touched_count_++] = &qp;
}

bool Worker::HandleOther(DeviceLane& lane, rte_mbuf* frame, DropReason reason) {
  if (frame->nb_segs != 1) {
    lane.counters.rx_scattered_dropped.Add(1);
    return false;
  }
  if (HandleFlows(lane, frame)) return false;
  if (reason != DropReason::kNotRoce) {
    lane.counters.Drop(reason);
    return false;
  }
  return GiveToControl(lane, KindOf(frame), frame);
}

bool Worker::GiveToControl(DeviceLane& lane, SlowPathKind kind, rte_mbuf* frame) {
  if (!lane.device.PushSlowPath(kind, frame)) {
    lane.counters.rx_slow_path_dropped.Add(1);
    if (kind == SlowPathKind::kNeighbours) lane.counters.rx_neighbour_dropped.Add(1);
    if (kind == SlowPathKind::kMads) lane.counters.rx_mad_dropped.Add(1);
    return false;
  }
  lane.counters.rx_slow_path.Add(1);
  return true;
}

// Handles a RoCE packet to no queue pair of this lcore: multicast, QP 1, or another lcore's.
bool Worker::HandleNoQueuePair(DeviceLane& lane, rte_mbuf* frame, const roce::Packet& packet,
                               bool handed_off) {
  const uint32_t owner = QpnSpace::LcoreOf(packet.dest_qpn, lane.lcore_bits);
  const bool is_gsi = packet.dest_qpn.value() <= roce::kGsiQpn.value();
  if (!is_gsi && packet.dest_qpn != roce::kMulticastQpn && lane.ethdev != nullptr &&
      owner != lane.lcore && owner < lane.lcore_count) {
    if (lane.ethdev->HandOffToLcore(frame, owner)) return true;
    lane.counters.rx_hand_off_dropped.Add(1);
    return false;
  }
  // Every lcore has a copy of a multicast packet; only one applies the flow rules.
  const bool is_first = packet.dest_qpn != roce::kMulticastQpn ||
                        (lane.wire != nullptr ? lane.lcore == 0 : !handed_off);
  const DropReason reason = roce::CheckIcrc(packet);
  if (reason != DropReason::kNone) {
    if (!is_first || !HandleFlows(lane, frame)) lane.counters.Drop(reason);
    return false;
  }
  if (packet.dest_qpn == roce::kMulticastQpn) {
    if (!handed_off) SpreadMulticast(lane, frame);
    const bool is_ours = IsOfOurVlan(shard_, lane, packet);
    if (!(is_ours && HandleMulticast(lane, frame, packet)) &&
        !(is_first && HandleFlows(lane, frame))) {
      lane.counters.Drop(is_ours ? DropReason::kUnknownMulticast : DropReason::kVlan);
    }
    return false;
  }
  if (is_gsi) return GiveToControl(lane, SlowPathKind::kMads, frame);
  if (!HandleFlows(lane, frame)) lane.counters.Drop(DropReason::kUnknownQp);
  return false;
}

// Delivers a copy to every member of the group (IBTA vol 1, 10.5.2). False: no members.
bool Worker::HandleMulticast(DeviceLane& lane, rte_mbuf* frame, const roce::Packet& packet) {
  const std::span<QueuePair* const> members = lane.FindMembers(shard_, packet.dst_gid);
  for (QueuePair* member : members) {
    if (member->blocks_own_multicast() && IsOwnDatagram(lane, *member, packet)) continue;
    // A burst may touch more queue pairs than it has frames.
    if (touched_count_ == touched_.size()) VisitTouched();
    lane.counters.rx_roce_packets.Add(1);
    Deliver(lane, *member, packet, frame, Sharing::kOthers);
  }
  // Makes room in `touched_` for the queue pairs of the remaining frames of the burst.
  VisitTouched();
  return !members.empty();
}

// Passes a multicast frame of a port to the other lcores. (The wire gives every lcore a copy.)
void Worker::SpreadMulticast(DeviceLane& lane, const rte_mbuf* frame) {
  if (lane.ethdev == nullptr) return;
  for (uint32_t to = 0; to < lane.lcore_count; ++to) {
    if (to == lane.lcore) continue;
    rte_mbuf* copy = rte_pktmbuf_copy(frame, dataplane_.frames().mempool(), 0, UINT32_MAX);
    if (copy != nullptr && lane.ethdev->HandOffToLcore(copy, to)) continue;
    rte_pktmbuf_free(copy);
    lane.counters.rx_hand_off_dropped.Add(1);
  }
}

// Visits the queue pairs of the burst at once: they are in the cache, and one ACK covers all their
// packets of the burst. Queue pairs that wait for copies are visited after the copies.
void Worker::VisitTouched() {
  for (uint32_t i = 0; i < touched_count_; ++i) {
    QueuePair& qp = *touched_[i];
    qp.Untouch(shard_);
    if (AppCopies* const holder = qp.host(shard_).copy_state().held_by()) [[unlikely]] {
      Enlist(*holder);
      if (qp.host(shard_).has_effects()) ApplyHostEffects(qp);
    } else {
      VisitAfterPackets(qp);
    }
  }
  touched_count_ = 0;
}

void Worker::VisitAfterPackets(QueuePair& qp) {
  qp.NoteWork(shard_, now_);
  // Before the queue pair acknowledges payload that was not placed.
  if (qp.HasFailed(shard_)) [[unlikely]]
    qp.Fail(shard_);
  if (qp.core(shard_).HasTransmit() && SendAfterPackets(qp)) AwaitTurn(qp);
  ApplyEffects(qp);
}

// Packets that ACKs or copies have released are sent at once if no other queue pair waits for its
// turn: they are in the cache. Otherwise only answers are sent, since a queue pair that receives
// many ACKs would send more than its share. True: there may be more to send.
bool Worker::SendAfterPackets(QueuePair& qp) {
  if (!scheduler_.IsContended(qp)) [[likely]]
    return Transmit(qp, SendScheduler::kTurnBytes).has_more;
  if (qp.core(shard_).HasAnswer()) TransmitAnswers(qp);
  return qp.core(shard_).HasTransmit();
}

void Worker::FreeFrames(DeviceLane& lane, rte_mbuf** frames, uint32_t count) {
  if (lane.wire != nullptr && !shares_frames_) [[likely]] {
    stash_.Put(frames, count);
  } else {
    rte_pktmbuf_free_bulk(frames, count);
    shares_frames_ = false;
  }
}

}  // namespace roci::dataplane
