#include "dataplane/shard/device_lane.h"

#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "dataplane/port/raw_checksums.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/rings/trace.h"

namespace roci::dataplane {
namespace {

// A port that takes no frames for so long is broken: the staged frames are dropped, as in a NIC.
constexpr uint64_t kGiveUpNs = 200'000'000;

}  // namespace

DeviceLane::DeviceLane(ShardedDevice& lane_device, const Config& config)
    : LaneState(config.mac, config.congestion),
      device(lane_device),
      wire(config.wire),
      ethdev(config.ethdev),
      endpoint(config.endpoint),
      lcore(config.lcore),
      lcore_bits(config.lcore_bits),
      lcore_count(config.lcore_count),
      raw(config.raw),
      matched(config.matched),
      now_ns_(config.now_ns),
      table_(static_cast<QueuePair**>(std::calloc(QpnSpace::kSlots, sizeof(QueuePair*)))) {
  if (table_ == nullptr) throw std::bad_alloc();
}

DeviceLane::~DeviceLane() {
  assert(reserved() == 0);
  rte_pktmbuf_free_bulk(frames_.data(), staged_);
}

QueuePair* DeviceLane::Find(const OnShard& shard, roce::Qpn qpn) const {
  QueuePair* qp = Slot(shard, qpn);
  return qp != nullptr && qp->qpn() == qpn ? qp : nullptr;
}

void DeviceLane::Add(const OnShard&, QueuePair& qp) {
  QueuePair*& slot = table_[QpnSpace::SlotOf(qp.qpn(), lcore_bits)];
  assert(slot == nullptr);
  slot = &qp;
  count_.store(queue_pairs() + 1, std::memory_order_relaxed);
}

void DeviceLane::Remove(const OnShard& shard, QueuePair& qp) {
  QueuePair*& slot = table_[QpnSpace::SlotOf(qp.qpn(), lcore_bits)];
  assert(slot == &qp);
  slot = nullptr;
  if (trace != nullptr) trace->AddEnd(qp.qpn().value(), qp.core(shard).state());
  count_.store(queue_pairs() - 1, std::memory_order_relaxed);
  if (qp.is_in_groups(shard)) multicast_.RemoveAll(shard, qp);
}

bool DeviceLane::Join(const OnShard& shard, const roce::Gid& group, QueuePair& qp) {
  if (!multicast_.Add(shard, group, qp)) return false;
  qp.CountGroup(shard, 1);
  return true;
}

bool DeviceLane::Leave(const OnShard& shard, const roce::Gid& group, QueuePair& qp) {
  if (!multicast_.Remove(shard, group, qp)) return false;
  qp.CountGroup(shard, -1);
  return true;
}

void DeviceLane::UseLink(const OnShard&, uint32_t max_frame_bytes, uint32_t line_rate_kbps) {
  max_frame_bytes_ = max_frame_bytes;
  if (congestion) congestion->parameters.line_rate_kbps = line_rate_kbps;
}

// `lane`: of a view.
const QueuePair* DeviceLane::FindFor(const void* lane, roce::Qpn qpn) {
  const DeviceLane& self = *static_cast<const DeviceLane*>(lane);
  const QueuePair* const qp = self.table_[QpnSpace::SlotOf(qpn, self.lcore_bits)];
  return qp != nullptr && qp->qpn() == qpn ? qp : nullptr;
}

LaneView DeviceLane::view() const {
  return {.lane = this,
          .origin_of = [](const void* lane, roce::Qpn qpn) -> const QueuePairOrigin* {
            const QueuePair* const qp = FindFor(lane, qpn);
            return qp != nullptr ? &qp->origin() : nullptr;
          },
          .peer_of =
              [](const void* lane, roce::Qpn qpn) {
                const QueuePair* const qp = FindFor(lane, qpn);
                return qp != nullptr ? qp->peer() : roce::Qpn(0);
              },
          .lcore_of =
              [](const void* lane, roce::Qpn qpn) {
                if (qpn.value() <= roce::kGsiQpn.value()) return Wire::kFromControl;
                return static_cast<uint8_t>(
                    QpnSpace::LcoreOf(qpn, static_cast<const DeviceLane*>(lane)->lcore_bits));
              },
          .is_elsewhere =
              [](const void* lane, roce::Qpn qpn) {
                const DeviceLane& self = *static_cast<const DeviceLane*>(lane);
                const uint32_t owner = QpnSpace::LcoreOf(qpn, self.lcore_bits);
                return qpn.value() > roce::kGsiQpn.value() && qpn != roce::kMulticastQpn &&
                       owner != self.lcore && owner < self.lcore_count;
              },
          .hands_off = ethdev != nullptr};
}

// Frames that are already staged have not passed the tap, so its earlier state is reset.
void DeviceLane::AttachTap(const OnShard&, LinkTap& tap) {
  if (tap_ != nullptr) return;
  tap.Sent(0);
  CompleteChecksums();
  tap_ = &tap;
}

// Without a tap, a lane does not look at the link when it receives.
void DeviceLane::SetDown(const OnShard& shard, bool is_down, LinkTap& tap) {
  is_set_down_ = is_down;
  if (is_down) AttachTap(shard, tap);
}

EthdevPort::Received DeviceLane::ReceiveThroughTap(const OnShard&, rte_mbuf** frames,
                                                   EthdevPort::Received received) {
  const uint32_t seen = received.handed_off;
  if (is_set_down_) {
    rte_pktmbuf_free_bulk(frames + seen, received.count - seen);
    // Held frames that are due are dropped too: the lcore does not sleep while there are any.
    const uint32_t due = tap_->Receive(frames + seen, 0, kBurst - seen);
    rte_pktmbuf_free_bulk(frames + seen, due);
    counters.rx_link_down.Add(received.count - seen + due);
    return {seen, seen};
  }
  for (uint32_t i = seen; i < received.count; ++i) ForgetChecksums(*frames[i]);
  return {seen + tap_->Receive(frames + seen, received.count - seen, kBurst - seen), seen};
}

bool DeviceLane::ServeTap(const OnShard& shard) {
  const bool is_due = tap_->SendIsDue();
  if (is_due) FlushStage(shard);
  if (tap_->IsIdle() && !is_set_down_) tap_ = nullptr;
  return is_due;
}

bool DeviceLane::FlushStage(const OnShard& shard) {
  if (tap_ == nullptr) [[likely]]
    return SendStage(shard);
  staged_ = tap_->Send(frames_.data(), to_lcore_.data(), staged_, kStage);
  const bool has_room = SendStage(shard);
  tap_->Sent(staged_);
  return has_room;
}

bool DeviceLane::SendStage(const OnShard& shard) {
  if (max_frame_bytes_ != kAnyFrame) DropWhatCannotPass();
  if (staged_ == 0) return true;
  uint64_t bytes = 0;
  std::array<uint16_t, kStage> lengths;
  for (uint32_t i = 0; i < staged_; ++i) lengths[i] = static_cast<uint16_t>(frames_[i]->pkt_len);
  const uint32_t taken = wire != nullptr
                             ? wire->Transmit(endpoint, frames_.data(), to_lcore_.data(), staged_)
                             : ethdev->Transmit(lcore, frames_.data(), to_lcore_.data(), staged_);
  for (uint32_t i = 0; i < taken; ++i) bytes += lengths[i];
  counters.tx_packets.Add(taken);
  counters.tx_bytes.Add(bytes);
  if (taken == staged_) [[likely]] {
    staged_ = 0;
    blocked_since_ns_ = 0;
    return true;
  }
  counters.tx_blocked.Add(1);
  std::copy(frames_.begin() + taken, frames_.begin() + staged_, frames_.begin());
  std::copy(to_lcore_.begin() + taken, to_lcore_.begin() + staged_, to_lcore_.begin());
  staged_ -= taken;
  if (taken != 0 || blocked_since_ns_ == 0) blocked_since_ns_ = *now_ns_;
  if (*now_ns_ - blocked_since_ns_ > kGiveUpNs) GiveUpStage();
  return !IsFull(shard);
}

// Frames to the device itself stay in the port and always pass. (A multicast frame that cannot
// leave is dropped for local members too.)
bool DeviceLane::CannotPass(const rte_mbuf& frame) const {
  if (frame.pkt_len <= max_frame_bytes_) return false;
  const auto* header = rte_pktmbuf_mtod(&frame, const rte_ether_hdr*);
  const bool is_tagged = header->ether_type == RTE_BE16(RTE_ETHER_TYPE_VLAN);
  if (is_tagged && frame.pkt_len <= max_frame_bytes_ + sizeof(rte_vlan_hdr)) return false;
  return std::memcmp(&header->dst_addr, mac.bytes.data(), mac.bytes.size()) != 0;
}

// With a tap the port computes no checksum: captures and impairments need the frame as on the link.
void DeviceLane::FillChecksums(const OnShard&, rte_mbuf& frame, uint32_t bytes) {
  const bool as_it_is = ethdev != nullptr && tap_ == nullptr;
  const uint64_t offloads = as_it_is ? ethdev->ChecksumsOf(frame) : 0;
  if (!dataplane::FillChecksums(frame, bytes, offloads) || ethdev->Prepare(lcore, frame)) return;
  dataplane::CompleteChecksums(frame);
}

// The port has no checksums left to compute in staged frames.
void DeviceLane::CompleteChecksums() {
  for (uint32_t i = 0; i < staged_; ++i) dataplane::CompleteChecksums(*frames_[i]);
}

// Drops and counts frames that the kernel would drop silently, or that would wait for a link that
// is down.
void DeviceLane::DropWhatCannotPass() {
  Counter& counter = max_frame_bytes_ == kNoFrame ? counters.tx_link_down : counters.tx_above_mtu;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < staged_; ++i) {
    if (CannotPass(*frames_[i])) [[unlikely]] {
      counter.Add(1);
      rte_pktmbuf_free(frames_[i]);
      continue;
    }
    frames_[kept] = frames_[i];
    to_lcore_[kept] = to_lcore_[i];
    ++kept;
  }
  staged_ = kept;
}

void DeviceLane::GiveUpStage() {
  counters.tx_dropped.Add(staged_);
  rte_pktmbuf_free_bulk(frames_.data(), staged_);
  staged_ = 0;
  blocked_since_ns_ = 0;
}

uint32_t DeviceLane::StageRaw(const OnShard& shard) {
  uint32_t moved = 0;
  void* frame;
  while ((!IsFull(shard) || FlushStage(shard)) && rte_ring_sc_dequeue(raw, &frame) == 0) {
    static_cast<rte_mbuf*>(frame)->hash.usr = roce::kGsiQpn.value();
    Stage(shard, static_cast<rte_mbuf*>(frame), Wire::kFromControl);
    ++moved;
  }
  return moved;
}

bool DeviceLane::PassMatched(rte_mbuf* frame, roce::Qpn qpn, uint32_t tag) {
  frame->hash.fdir.hi = qpn.value();
  frame->hash.fdir.lo = tag;
  return rte_ring_mp_enqueue(matched, frame) == 0;
}

DeviceLane::MatchedFrame DeviceLane::MatchOf(const rte_mbuf& frame) {
  return {roce::Qpn(frame.hash.fdir.hi), frame.hash.fdir.lo};
}

uint32_t DeviceLane::TakeMatched(const OnShard&, rte_mbuf** frames) {
  return matched == nullptr ? 0
                            : rte_ring_sc_dequeue_burst(matched, reinterpret_cast<void**>(frames),
                                                        kBurst, nullptr);
}

bool DeviceLane::MatchedPending(const OnShard&) const {
  return matched != nullptr && rte_ring_empty(matched) == 0;
}

bool DeviceLane::RawPending(const OnShard&) const {
  return raw != nullptr && rte_ring_empty(raw) == 0;
}

}  // namespace roci::dataplane
