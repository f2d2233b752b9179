// A device's part on one lcore: queue pairs by number, frames staged for sending, counters. Only
// that lcore uses it; any thread may read the counters.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/wire.h"
#include "dataplane/qp/flow_table.h"
#include "dataplane/qp/lane_state.h"
#include "dataplane/qp/multicast_table.h"
#include "dataplane/qp/qpn_space.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

class ShardedDevice;
class QueuePair;

class DeviceLane final : public LaneState {
 public:
  static constexpr uint32_t kBurst = 32;
  static constexpr uint32_t kStage = kBurst;
  static constexpr uint32_t kAnyFrame = UINT32_MAX;
  static constexpr uint32_t kNoFrame = 0;  // the link is down

  struct Config {
    roce::Mac mac;
    std::optional<roce::CongestionParameters> congestion;  // none: congestion control is off
    // One of the two, which outlives the lane.
    Wire* wire = nullptr;
    EthdevPort* ethdev = nullptr;
    uint32_t endpoint = 0;    // of the wire
    uint32_t lcore = 0;       // of the lane
    uint32_t lcore_bits = 0;  // of queue pair numbers
    uint32_t lcore_count = 1;
    rte_ring* raw = nullptr;           // frames from the control thread; null: not the home lane
    rte_ring* matched = nullptr;       // see PassMatched; null: only one lcore
    const uint64_t* now_ns = nullptr;  // the lcore's time of the burst
  };
  DeviceLane(ShardedDevice& lane_device, const Config& config);
  ~DeviceLane();
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  // Every LaneState is part of a DeviceLane.
  static DeviceLane& Of(LaneState& state) { return static_cast<DeviceLane&>(state); }

  // ---- Queue pairs
  QueuePair* Find(const OnShard& shard, roce::Qpn qpn) const;
  QueuePair* Slot(const OnShard&, roce::Qpn qpn) const {
    return table_[QpnSpace::SlotOf(qpn, lcore_bits)];
  }
  void Add(const OnShard& shard, QueuePair& qp);
  // It leaves its multicast groups.
  void Remove(const OnShard& shard, QueuePair& qp);
  // Multicast groups of UD queue pairs, as MulticastTable.
  bool Join(const OnShard& shard, const roce::Gid& group, QueuePair& qp);
  bool Leave(const OnShard& shard, const roce::Gid& group, QueuePair& qp);
  std::span<QueuePair* const> FindMembers(const OnShard& shard, const roce::Gid& group) const {
    return multicast_.Find(shard, group);
  }
  uint32_t queue_pairs() const { return count_.load(std::memory_order_relaxed); }

  // ---- Changes by the control thread
  // Frames longer than `max_frame_bytes` (not counting a VLAN tag) do not leave the host;
  // kAnyFrame: no limit. The rate is for congestion control.
  void UseLink(const OnShard& shard, uint32_t max_frame_bytes, uint32_t line_rate_kbps);
  // Empty (initially): all addresses are accepted.
  void SetLocalAddresses(const OnShard&, std::vector<roce::NetAddress> addresses) {
    local_addresses_ = std::move(addresses);
  }
  const std::vector<roce::NetAddress>& local_addresses(const OnShard&) const {
    return local_addresses_;
  }
  // Routes all frames through `tap` until it is idle.
  void AttachTap(const OnShard& shard, LinkTap& tap);
  // Whether the link is set down: then no frame comes in, by `tap`. (UseLink keeps frames from
  // leaving.)
  void SetDown(const OnShard& shard, bool is_down, LinkTap& tap);
  // The part of this lane that a tap calls.
  LaneView view() const;
  // Null: no captures, faults and impairments.
  const LinkTap* tap(const OnShard&) const { return tap_; }

  // ---- Receiving. The caller frees the frames. The first `handed_off` frames have passed the lane
  // of another lcore.
  EthdevPort::Received Receive(const OnShard& shard, rte_mbuf** frames) {
    const EthdevPort::Received received =
        wire != nullptr ? EthdevPort::Received{wire->Receive(endpoint, lcore, frames, kBurst), 0}
                        : ethdev->Receive(lcore, frames, kBurst);
    if (tap_ != nullptr) [[unlikely]]
      return ReceiveThroughTap(shard, frames, received);
    return received;
  }
  bool ReceivePending(const OnShard&) const {
    return wire != nullptr ? wire->Pending(endpoint, lcore) : ethdev->Pending(lcore);
  }
  // After a full burst: whether the port has a backlog of frames (EthdevPort::IsBacklogged).
  bool IsBacklogged(const OnShard&) const {
    return ethdev != nullptr && ethdev->backlog_mark() != 0 && ethdev->IsBacklogged(lcore);
  }
  // Waiting for frames of a port, as EthdevPort does. (A wire wakes its lcores.)
  bool HasPort() const { return ethdev != nullptr; }
  std::optional<std::vector<RxWait>> RxWaits(const OnShard&) const {
    return ethdev->RxWaitsOf(lcore);
  }
  void SetRxInterrupts(const OnShard&, bool on) { ethdev->SetRxInterrupts(lcore, on); }
  // Whether a sleeping lcore polls the port at intervals instead. Any thread.
  void SetPolled(bool polled) { is_polled_.store(polled, std::memory_order_relaxed); }
  bool is_polled() const { return is_polled_.load(std::memory_order_relaxed); }

  // ---- Sending
  bool IsFull(const OnShard&) const { return staged_ + reserved() >= kStage; }
  // Takes ownership of the frame. The stage must not be full. `to` is an lcore as in
  // Wire::Transmit. The frame's `hash.usr` is the number of the queue pair that sends it.
  void Stage(const OnShard&, rte_mbuf* frame, uint32_t to) {
    frames_[staged_] = frame;
    to_lcore_[staged_] = static_cast<uint8_t>(to);
    ++staged_;
  }
  // Passes the staged frames to the port, in order. True: the stage is not full afterwards.
  bool FlushStage(const OnShard& shard);
  // With a tap, called once per round: sends held frames that are due. True: there were some.
  bool ServeTap(const OnShard& shard);
  // Fills in the checksums of the first `bytes` of a raw frame that is staged next. The port
  // computes them if it can and no tap looks at the frame before.
  void FillChecksums(const OnShard&, rte_mbuf& frame, uint32_t bytes);
  uint32_t staged(const OnShard&) const { return staged_; }
  // Stages frames from the control thread and returns their number. Home lane only.
  uint32_t StageRaw(const OnShard& shard);
  bool RawPending(const OnShard&) const;

  // ---- Frames that a flow rule matched on another lcore, for a raw packet queue pair of this one.
  // (Frames that no rule has seen yet go by EthdevPort::HandOffToLcore.)
  struct MatchedFrame {
    roce::Qpn qpn;
    uint32_t tag;
  };
  // Any lcore. Takes ownership of the frame. False: the ring is full; the caller keeps the frame.
  bool PassMatched(rte_mbuf* frame, roce::Qpn qpn, uint32_t tag);
  static MatchedFrame MatchOf(const rte_mbuf& frame);
  // The caller frees the frames.
  uint32_t TakeMatched(const OnShard&, rte_mbuf** frames);
  bool MatchedPending(const OnShard&) const;

  // ---- Fixed at creation, see Config. Any thread.
  ShardedDevice& device;
  Wire* const wire;
  EthdevPort* const ethdev;
  const uint32_t endpoint;
  const uint32_t lcore;
  const uint32_t lcore_bits;
  const uint32_t lcore_count;
  rte_ring* const raw;
  rte_ring* const matched;

  FlowTable flows;  // the rules of all lcores

 private:
  static const QueuePair* FindFor(const void* lane, roce::Qpn qpn);
  void CompleteChecksums();
  bool SendStage(const OnShard& shard);
  void GiveUpStage();
  bool CannotPass(const rte_mbuf& frame) const;
  void DropWhatCannotPass();
  EthdevPort::Received ReceiveThroughTap(const OnShard&, rte_mbuf** frames,
                                         EthdevPort::Received received);

  MulticastTable multicast_;
  const uint64_t* now_ns_;
  LinkTap* tap_ = nullptr;
  uint32_t max_frame_bytes_ = kAnyFrame;
  bool is_set_down_ = false;
  uint32_t staged_ = 0;
  uint64_t blocked_since_ns_ = 0;
  std::array<rte_mbuf*, kStage> frames_;
  std::array<uint8_t, kStage> to_lcore_;
  std::vector<roce::NetAddress> local_addresses_;
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> is_polled_{false};
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<QueuePair*[], Free> table_;  // from calloc: untouched pages cost no memory
};

}  // namespace roci::dataplane
