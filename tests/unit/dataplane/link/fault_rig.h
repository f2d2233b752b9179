// Packets and a tap for tests of exact faults.
#pragma once

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/link/fault.h"
#include "dataplane/link/frame_filter.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/port/wire.h"
#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"

namespace roci::testing::faults {

using dataplane::Fault;
using dataplane::FaultFate;
using dataplane::FaultFrame;
using dataplane::FaultLane;
using dataplane::FaultSettings;
using dataplane::FaultTable;
using dataplane::LinkDirection;
using dataplane::LinkTap;
using dataplane::PacketPart;
using Bytes = std::vector<std::byte>;

inline const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();
inline constexpr uint32_t kQpn = 5;
inline constexpr uint32_t kOwnQpn = 9;
inline constexpr uint32_t kQpnElsewhere = 11;  // of another lcore of the device
inline constexpr uint8_t kControl = dataplane::Wire::kFromControl;
inline constexpr size_t kPayloadBytes = 8;

inline Bytes Datagram(uint32_t qpn, const Bytes& payload) {
  roce::Path path;
  path.src_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = roce::Opcode::kUdSendOnly;
  tx.dest_qpn = roce::Qpn(qpn);
  tx.payload_length = static_cast<uint32_t>(payload.size());
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 0, frame.data());
  return frame;
}

inline Bytes Packet(roce::Opcode opcode, uint32_t psn, uint32_t qpn = kQpn, bool is_ipv6 = false) {
  roce::Path path;
  path.src_gid = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.traffic_class = 2;
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = opcode;
  tx.dest_qpn = roce::Qpn(qpn);
  tx.psn = roce::Psn(psn);
  const bool has_payload = roce::InfoOf(opcode).payload == roce::PayloadRule::kAny;
  const Bytes payload(has_payload ? kPayloadBytes : 0, std::byte{0x5A});
  tx.payload_length = static_cast<uint32_t>(payload.size());
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 0, frame.data());
  return frame;
}

inline bool IcrcIsRight(const Bytes& frame) {
  roce::Packet packet;
  return roce::ParsePacket(frame, packet) == roce::DropReason::kNone;
}

inline uint64_t FieldOf(const Bytes& frame, std::string_view name) {
  return roce::ReadField(dataplane::FromBth(frame), *roce::FindPacketField(name)).value_or(~0ull);
}

inline FaultFrame FrameOf(Bytes& bytes, LinkDirection direction = LinkDirection::kOut) {
  return {.bytes = bytes,
          .transport_offset = bytes.size() - dataplane::FromBth(bytes).size(),
          .direction = direction};
}

// As LinkTap calls it, which passes packets only.
inline FaultFate Apply(FaultLane& lane, Bytes& bytes, uint64_t now_ns = 0) {
  FaultFate fate;
  FaultFrame frame = FrameOf(bytes);
  frame.now_ns = now_ns;
  if (frame.transport_offset != bytes.size()) lane.Apply(frame, fate);
  return fate;
}

// 'X': a packet with this PSN is dropped.
inline char FateOf(FaultLane& lane, uint32_t psn, uint64_t now_ns) {
  Bytes frame = Packet(roce::Opcode::kRcSendOnly, psn);
  return Apply(lane, frame, now_ns).is_dropped ? 'X' : '.';
}

// Which of these packets are hit, by their PSNs.
inline std::vector<uint32_t> HitPsns(const FaultSettings& settings,
                                     const std::vector<uint32_t>& psns,
                                     roce::Opcode opcode = roce::Opcode::kRcSendOnly) {
  Fault fault(settings, 0);
  FaultLane lane(fault);
  std::vector<uint32_t> hit;
  for (const uint32_t psn : psns) {
    Bytes frame = Packet(opcode, psn);
    const FaultFate fate = Apply(lane, frame);
    if (fate.is_dropped) hit.push_back(psn);
  }
  EXPECT_EQ(fault.Snapshot().hit, hit.size());
  return hit;
}

inline FaultSettings Drop() {
  FaultSettings settings;
  settings.actions.drops = true;
  return settings;
}

using Psns = std::vector<uint32_t>;

// A tap with one fault; frames are named by their PSNs.
class FaultTapTest : public ::testing::Test {
 protected:
  explicit FaultTapTest(LinkDirection direction = LinkDirection::kOut) : direction_(direction) {}

  void Use(const FaultSettings& settings) {
    table_.reset();
    fault_.emplace(settings, 0);
    lane_.emplace(*fault_);
    UseLanes({&*lane_});
  }
  void UseLanes(std::vector<FaultLane*> lanes) {
    std::vector<FaultTable::Entry> entries;
    for (FaultLane* lane : lanes) entries.push_back({lane, lane->match().filter.qpns});
    auto table = std::make_unique<FaultTable>(entries);
    tap_.UseFaults(kShard, lanes.front()->match().direction, table.get());
    table_ = std::move(table);
  }
  void UseNone() { tap_.UseFaults(kShard, direction_, nullptr); }

  // A lane with one queue pair, connected to kQpn.
  dataplane::LaneView View() {
    return {
        .lane = this,
        .origin_of = [](const void* self, roce::Qpn qpn) -> const dataplane::QueuePairOrigin* {
          if (qpn != roce::Qpn(kOwnQpn)) return nullptr;
          return &static_cast<const FaultTapTest*>(self)->origin_;
        },
        .peer_of = [](const void*,
                      roce::Qpn qpn) { return roce::Qpn(qpn == roce::Qpn(kOwnQpn) ? kQpn : 0); },
        .lcore_of = [](const void*,
                       roce::Qpn qpn) { return qpn == roce::kGsiQpn ? kControl : uint8_t{0}; },
        .is_elsewhere = [](const void*, roce::Qpn qpn) { return qpn == roce::Qpn(kQpnElsewhere); }};
  }

  // Passes the frames through the tap. Returns those that come out now.
  std::vector<Bytes> Pass(LinkDirection direction, const std::vector<Bytes>& in) {
    std::vector<rte_mbuf*> frames(64);
    std::vector<uint8_t> to(64);
    for (size_t i = 0; i < in.size(); ++i) frames[i] = MakeFrame(in[i]);
    const auto count = static_cast<uint32_t>(in.size());
    const uint32_t left = direction == LinkDirection::kOut
                              ? tap_.Send(frames.data(), to.data(), count, 64)
                              : tap_.Receive(frames.data(), count, 64);
    tap_.Sent(0);
    last_to_.assign(to.begin(), to.begin() + left);
    std::vector<Bytes> out;
    for (uint32_t i = 0; i < left; ++i) {
      const auto* const first = rte_pktmbuf_mtod(frames[i], const std::byte*);
      out.emplace_back(first, first + frames[i]->data_len);
      rte_pktmbuf_free(frames[i]);
    }
    return out;
  }

  // Sends frames with these PSNs in one burst. Returns the PSNs that come out.
  Psns Send(const Psns& psns) {
    std::vector<rte_mbuf*> frames(64);
    std::vector<uint8_t> to(64);
    for (size_t i = 0; i < psns.size(); ++i) {
      frames[i] = MakeFrame(Packet(roce::Opcode::kRcSendOnly, psns[i]));
    }
    const uint32_t count =
        tap_.Send(frames.data(), to.data(), static_cast<uint32_t>(psns.size()), 64);
    tap_.Sent(0);
    Psns out;
    for (uint32_t i = 0; i < count; ++i) {
      const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frames[i], const std::byte*),
                                             frames[i]->data_len);
      out.push_back(static_cast<uint32_t>(FieldOf({bytes.begin(), bytes.end()}, "bth.psn")));
      last_bytes_ = frames[i]->pkt_len;
      rte_pktmbuf_free(frames[i]);
    }
    return out;
  }

  static rte_mbuf* MakeFrame(const Bytes& bytes) {
    rte_mbuf* frame = rte_pktmbuf_alloc(TestDataplane().frames().mempool());
    frame->hash.usr = kOwnQpn;
    std::memcpy(rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return frame;
  }

  const LinkDirection direction_;
  uint64_t now_ns_ = 0;
  dataplane::QueuePairOrigin origin_;  // of kOwnQpn
  LinkTap tap_{0, &now_ns_, TestDataplane().frames().mempool(), View()};
  std::optional<Fault> fault_;
  std::optional<FaultLane> lane_;
  std::unique_ptr<FaultTable> table_;
  size_t last_bytes_ = 0;
  std::vector<uint8_t> last_to_;  // the lcores of the frames that Pass returned
};

}  // namespace roci::testing::faults
