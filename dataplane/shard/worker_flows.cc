// Frames for flow rules: matching, and delivery to raw packet queue pairs on any lcore.
#include <rte_mbuf.h>

#include "dataplane/port/raw_checksums.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {
namespace {

using roce::DropReason;

std::span<const std::byte> BytesOf(const rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len};
}

// Address resolution of the device: one program's rule must not cut off the other programs.
bool IsNeighbourTraffic(const roce::FlowKey& key) {
  return key.ether_type == __builtin_bswap16(roce::kEtherTypeArp) ||
         ((key.layers & roce::kFlowLayerIpv6) != 0 && key.protocol == roce::kIpProtocolIcmpv6);
}

// Describes a frame as a packet for the batch of copies. If it cannot be placed, no NAK is sent.
roce::Packet AsPacket(std::span<const std::byte> frame) {
  roce::Packet packet;
  packet.info = &roce::InfoOf(roce::Opcode::kRcAcknowledge);
  packet.payload = frame;
  return packet;
}

void Count(const FlowRule& rule, const DeviceLane& lane, const rte_mbuf* frame) {
  // The control thread may be changing the rule's pointer.
  FlowCounters* counters =
      std::atomic_ref(const_cast<FlowRule&>(rule).counters).load(std::memory_order_acquire);
  if (counters == nullptr) return;
  FlowCounters::PerLcore& mine = counters->lcores[lane.lcore];
  mine.packets.Add(1);
  mine.bytes.Add(frame->data_len);
}

}  // namespace

bool Worker::HandleFlows(DeviceLane& lane, const rte_mbuf* frame) {
  roce::FlowKey key;
  if (lane.flows.empty(shard_) || !roce::ParseFlowKey(BytesOf(frame), key)) return false;
  const bool taken = lane.flows.Match(
      shard_, key, [&](const FlowRule& rule) { TakeByRule(lane, rule, key, frame); });
  // Makes room in `touched_` for the queue pairs of the remaining frames of the burst.
  VisitTouched();
  if (!taken) return false;
  lane.counters.rx_flow_packets.Add(1);
  return !IsNeighbourTraffic(key);
}

// Delivers a copy of every frame to sniffer rules, including frames for queue pairs and other
// rules.
void Worker::Sniff(DeviceLane& lane, rte_mbuf** frames, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    roce::FlowKey key;
    if (frames[i]->nb_segs != 1 || !roce::ParseFlowKey(BytesOf(frames[i]), key)) continue;
    for (const FlowRule* rule : lane.flows.sniffers(shard_))
      TakeByRule(lane, *rule, key, frames[i]);
  }
  VisitTouched();
}

void Worker::TakeByRule(DeviceLane& lane, const FlowRule& rule, const roce::FlowKey& key,
                        const rte_mbuf* frame) {
  Count(rule, lane, frame);
  if (rule.drops) return;
  if (&rule.qp->lane() == &lane) {
    DeliverRaw(lane, *rule.qp, key, *frame, rule.tag);
    return;
  }
  rte_mbuf* copy = rte_pktmbuf_copy(frame, dataplane_.frames().mempool(), 0, UINT32_MAX);
  if (copy != nullptr &&
      DeviceLane::Of(rule.qp->lane()).PassMatched(copy, rule.qp->qpn(), rule.tag)) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    dataplane_.WakeIfSleeping(DeviceLane::Of(rule.qp->lane()).lcore);
    return;
  }
  rte_pktmbuf_free(copy);
  lane.counters.rx_hand_off_dropped.Add(1);
}

void Worker::DeliverRaw(DeviceLane& lane, QueuePair& qp, const roce::FlowKey& key,
                        const rte_mbuf& frame, uint32_t tag) {
  QueuePair& target = qp.ReceiverOf(shard_, key);
  // One frame may be delivered to many queue pairs.
  if (touched_count_ == touched_.size()) VisitTouched();
  const std::span<const std::byte> bytes = BytesOf(&frame);
  const roce::Packet packet = AsPacket(bytes);
  AppCopies& copies = target.host(shard_).copies();
  if (!copies.IsIdle(shard_) && MustWait(copies, target, packet)) {
    lane.counters.rx_memory_dropped.Add(1);
    return;
  }
  copies.places(shard_).BeginPacket(packet);
  const roce::FrameInfo info{.flow_tag = tag, .checksums_right = ChecksumsAreRight(frame)};
  const DropReason reason = [&] {
    const MemoryUse use(*this, &copies);
    return target.HandleFrame(shard_, bytes, info);
  }();
  Touch(target);
  // Only the frame's reference count changes.
  if (target.host(shard_).IsHeld()) {
    KeepFrame(copies, lane, const_cast<rte_mbuf*>(&frame), Sharing::kOthers);
  }
  target.CountReceived(shard_);
  if (reason != DropReason::kNone) {
    target.CountDrop(shard_);
    lane.counters.Drop(reason);
  }
}

// Frames that other lcores matched for queue pairs of this one.
uint32_t Worker::ReceiveMatched(DeviceLane& lane) {
  rte_mbuf* frames[kBurst];
  const uint32_t count = lane.TakeMatched(shard_, frames);
  for (uint32_t i = 0; i < count; ++i) {
    const DeviceLane::MatchedFrame matched = DeviceLane::MatchOf(*frames[i]);
    roce::FlowKey key;
    QueuePair* qp = lane.Find(shard_, matched.qpn);
    // The queue pair may be destroyed, and its number reused.
    if (qp != nullptr && qp->type() == roce::QpType::kRawPacket &&
        roce::ParseFlowKey(BytesOf(frames[i]), key)) {
      DeliverRaw(lane, *qp, key, *frames[i], matched.tag);
    }
  }
  rte_pktmbuf_free_bulk(frames, count);
  VisitTouched();
  return count;
}

}  // namespace roci::dataplane
