// The data path of a port: receiving, looping back, sending.
#include "dataplane/port/ethdev_port.h"

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <cstring>

#include "dataplane/port/packet_sockets.h"
#include "dataplane/port/scattered.h"
#include "dataplane/port/wire.h"

namespace roci::dataplane {
namespace {

// Puts a VLAN tag back that the port has stripped. The kernel strips tags unasked, and some PMDs
// pass that on.
void RestoreTag(rte_mbuf* frame) {
  if (rte_vlan_insert(&frame) == 0) return;
  // No room for the tag. The frame must not pass as untagged: made empty, it is dropped and counted
  // as a truncated frame.
  frame->data_len = 0;
  frame->pkt_len = 0;
}

}  // namespace

// An lcore polls every queue whose number is its own, modulo the number of lcores, counted from the
// home lcore. It starts with another queue each time, so that no queue starves.
uint32_t EthdevPort::ReceiveFromQueues(uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  const uint32_t first = FirstQueueOf(lcore);
  if (first >= queues_.rx || !is_started_.load(std::memory_order_acquire)) return 0;
  const uint32_t own = (queues_.rx - first + lcores_ - 1) / lcores_;
  uint32_t received = 0;
  const uint32_t turn = turns_[lcore].number++;
  for (uint32_t i = 0; i < own && received < count; ++i) {
    const uint32_t queue = first + (turn + i) % own * lcores_;
    received += ReceiveFrom(queue, frames + received, count - received);
  }
  MakeUsual(lcore, frames, received);
  return received;
}

uint32_t EthdevPort::ReceiveFrom(uint32_t queue, rte_mbuf** frames, uint32_t count) {
  if (packet_ != nullptr) return packet_->Receive(queue, frames, count);
  return rte_eth_rx_burst(port_, static_cast<uint16_t>(queue), frames,
                          static_cast<uint16_t>(count));
}

bool EthdevPort::PendingAt(uint32_t queue) const {
  if (packet_ != nullptr) return packet_->Pending(queue);
  return rte_eth_rx_queue_count(port_, static_cast<uint16_t>(queue)) > 0;
}

uint32_t EthdevPort::SendBy(uint32_t queue, rte_mbuf** frames, uint32_t count) {
  if (packet_ != nullptr) return packet_->Send(queue, frames, count);
  return rte_eth_tx_burst(port_, static_cast<uint16_t>(queue), frames,
                          static_cast<uint16_t>(count));
}

// Linearizes frames and restores VLAN tags. Frames that keep several segments are dropped and
// counted by the worker.
void EthdevPort::MakeUsual(uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const bool has_tag = (frames[i]->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
    if (frames[i]->nb_segs == 1 && !has_tag) [[likely]]
      continue;
    if (frames[i]->nb_segs != 1) {
      if (!Linearize(frames[i], services_.frames().mempool())) continue;
      turns_[lcore].linearized.Add(1);
    }
    if (has_tag) RestoreTag(frames[i]);
  }
}

EthdevPort::Received EthdevPort::Receive(uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  // Each ring gets at most half of the remaining room, so that it does not starve the next source.
  const uint32_t share = FirstQueueOf(lcore) < queues_.rx ? 2 : 1;
  const auto take = [&](rte_ring* ring, uint32_t taken) {
    return rte_ring_sc_dequeue_burst(ring, reinterpret_cast<void**>(frames + taken),
                                     (count - taken) / share, nullptr);
  };
  const uint32_t handed_off = to_lcore_[lcore] != nullptr ? take(to_lcore_[lcore], 0) : 0;
  uint32_t taken = handed_off;
  if (lcore == home_lcore_) taken += take(from_self_, taken);
  taken += ReceiveFromQueues(lcore, frames + taken, count - taken);
  return {taken, handed_off};
}

bool EthdevPort::Pending(uint32_t lcore) const {
  if (to_lcore_[lcore] != nullptr && rte_ring_empty(to_lcore_[lcore]) == 0) return true;
  // If the PMD cannot tell, the lcore polls again after its poll interval.
  const bool asks = tells_pending_ && is_started_.load(std::memory_order_acquire);
  for (uint32_t queue = FirstQueueOf(lcore); asks && queue < queues_.rx; queue += lcores_) {
    if (PendingAt(queue)) return true;
  }
  return lcore == home_lcore_ && (rte_ring_empty(from_self_) == 0 ||
                                  (from_others_ != nullptr && rte_ring_empty(from_others_) == 0));
}

// One read where the driver can tell about a single descriptor; drivers count by a walk.
bool EthdevPort::IsBacklogged(uint32_t lcore) {
  for (uint32_t at = FirstQueueOf(lcore); at < queues_.rx; at += lcores_) {
    const auto queue = static_cast<uint16_t>(at);
    if (tells_descriptors_) {
      const auto mark = static_cast<uint16_t>(backlog_mark_);
      if (rte_eth_rx_descriptor_status(port_, queue, mark) == RTE_ETH_RX_DESC_DONE) return true;
    } else if (rx_waits_.CountOf(queue) > backlog_mark_) {
      return true;
    }
  }
  return false;
}

void EthdevPort::SetRxInterrupts(uint32_t lcore, bool on) {
  if (!is_started_.load(std::memory_order_acquire)) return;
  for (uint32_t queue = FirstQueueOf(lcore); queue < queues_.rx; queue += lcores_) {
    rx_waits_.SetInterrupt(static_cast<uint16_t>(queue), on);
  }
}

bool EthdevPort::HandOffToLcore(rte_mbuf* frame, uint32_t to_lcore) {
  if (rte_ring_enqueue(to_lcore_[to_lcore], frame) != 0) return false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  services_.WakeIfSleeping(to_lcore);
  return true;
}

uint32_t EthdevPort::TurnRound(uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  const uint32_t taken =
      rte_ring_mp_enqueue_burst(from_self_, reinterpret_cast<void**>(frames), count, nullptr);
  if (lcore != home_lcore_) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    services_.WakeIfSleeping(home_lcore_);
  }
  return taken;
}

// Sends a multicast frame and loops a copy back, as the group may have members here.
uint32_t EthdevPort::SendToGroup(uint32_t lcore, rte_mbuf* frame) {
  rte_mbuf* copy = rte_pktmbuf_copy(frame, services_.frames().mempool(), 0, UINT32_MAX);
  const uint32_t sent = Send(lcore, &frame, 1);
  if (copy != nullptr && (sent == 0 || TurnRound(lcore, &copy, 1) == 0)) rte_pktmbuf_free(copy);
  return sent;
}

EthdevPort::Way EthdevPort::WayOf(const rte_mbuf* frame, uint8_t lcore) const {
  if (link_brings_back_) return Way::kOut;
  const auto* mac = rte_pktmbuf_mtod(frame, const uint8_t*);
  if (std::memcmp(mac, mac_.bytes.data(), mac_.bytes.size()) == 0) return Way::kBack;
  const bool is_group = (*mac & 1) != 0 && lcore < Wire::kRawPacket;
  return is_group ? Way::kBoth : Way::kOut;
}

uint64_t EthdevPort::ChecksumsOf(const rte_mbuf& frame) const {
  return WayOf(&frame, Wire::kRawPacket) == Way::kOut ? offloads_.tx : 0;
}

bool EthdevPort::Prepare(uint32_t lcore, rte_mbuf& frame) const {
  rte_mbuf* one = &frame;
  const uint32_t queue = queue_per_lcore_ ? lcore : 0;
  return rte_eth_tx_prepare(port_, static_cast<uint16_t>(queue), &one, 1) == 1;
}

uint32_t EthdevPort::Transmit(uint32_t lcore, rte_mbuf** frames, const uint8_t* lcores,
                              uint32_t count) {
  uint32_t i = 0;
  while (i < count) {
    const Way way = WayOf(frames[i], lcores[i]);
    if (way == Way::kBoth) [[unlikely]] {
      if (SendToGroup(lcore, frames[i]) == 0) break;
      ++i;
      continue;
    }
    uint32_t run = 1;
    while (i + run < count && WayOf(frames[i + run], lcores[i + run]) == way) ++run;
    const uint32_t taken =
        way == Way::kBack ? TurnRound(lcore, frames + i, run) : Send(lcore, frames + i, run);
    i += taken;
    if (taken < run) break;
  }
  return i;
}

uint32_t EthdevPort::Send(uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  if (!is_started_.load(std::memory_order_acquire)) [[unlikely]]
    return 0;
  if (queue_per_lcore_) return SendBy(lcore, frames, count);
  if (lcore == home_lcore_) return SendBy(0, frames, count);
  const uint32_t taken =
      rte_ring_mp_enqueue_burst(from_others_, reinterpret_cast<void**>(frames), count, nullptr);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  services_.WakeIfSleeping(home_lcore_);
  return taken;
}

// Frames that the port does not take wait in `held_`, before those in the ring.
uint32_t EthdevPort::ServeOthers() {
  if (from_others_ == nullptr || !is_started_.load(std::memory_order_acquire)) return 0;
  if (held_count_ == 0) {
    held_count_ = rte_ring_sc_dequeue_burst(from_others_, reinterpret_cast<void**>(held_.data()),
                                            static_cast<unsigned>(held_.size()), nullptr);
  }
  if (held_count_ == 0) return 0;
  const uint32_t sent = SendBy(0, held_.data(), held_count_);
  std::copy(held_.begin() + sent, held_.begin() + held_count_, held_.begin());
  held_count_ -= sent;
  return sent;
}

}  // namespace roci::dataplane
