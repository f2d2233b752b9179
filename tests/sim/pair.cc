// Frames between two simulated nodes: encoded, damaged, parsed, handled.
#include "tests/sim/pair.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "memory/copy.h"
#include "roce/parse.h"
#include "roce/qp_inl.h"

template class roci::roce::Qp<roci::sim::SimHost>;

namespace roci::sim {
namespace {

roce::QpConfig Config(size_t node, uint32_t qpn, const Connection& connection) {
  roce::QpConfig config;
  config.type = connection.types[node];
  config.uses_srq = node == 1 && connection.shares_receives;
  config.qpn = roce::Qpn(qpn);
  config.limits = connection.limits;
  config.limits.selective_repeat = connection.repeats_selectively[node];
  return config;
}

roce::Gid Address(int node, bool ipv6) {
  const auto last = static_cast<uint8_t>(node + 1);
  if (!ipv6) return roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, last}});
  roce::Gid gid;
  gid.bytes[0] = 0xFD;
  gid.bytes[15] = last;
  return gid;
}

constexpr uint32_t kFirstQpn = 0x100;

}  // namespace

// The rates are so high that sending a packet takes less than the shortest timeout.
Pair::Node::Node(const roce::QpConfig& config, const Connection& connection, Arena* memory)
    : arena(memory),
      host(memory, config.qpn.value()),
      records(connection.records),
      resources(config.limits.max_dest_rd_atomic),
      port{.parameters = {.line_rate_kbps = 10'000'000, .min_rate_kbps = 1'000'000}},
      congestion(&port),
      qp(config, records, resources, connection.controls_congestion ? &congestion : nullptr,
         config.limits.reorder_wait_ns != 0 ? &reorder : nullptr) {
  host.set_room_to_keep(connection.room_to_keep);
}

Pair::Pair(const Connection& connection, Arena* left, Arena* right)
    : nodes_{Node(Config(0, kFirstQpn, connection), connection, left),
             Node(Config(1, kFirstQpn + 1, connection), connection, right)},
      watch_(connection, {&nodes_[0].host, &nodes_[1].host}),
      buffer_(roce::kMaxFrameBytes) {
  Connect(0, connection);
  Connect(1, connection);
}

void Pair::Connect(int node, const Connection& connection) {
  Node& self = nodes_[static_cast<size_t>(node)];
  roce::Path path;
  path.src_mac.bytes = {2, 0, 0, 0, 0, static_cast<uint8_t>(node + 1)};
  path.dst_mac.bytes = {2, 0, 0, 0, 0, static_cast<uint8_t>(2 - node)};
  path.src_gid = Address(node, connection.ipv6);
  path.dst_gid = Address(1 - node, connection.ipv6);
  path.udp_src_port = 0xC123;
  if (connection.controls_congestion) path.traffic_class = roce::kEcnCapable;
  self.frame = roce::FrameTemplate(path);

  roce::QpAttributes attributes;
  attributes.port = 1;
  attributes.access_flags = connection.access_flags;
  attributes.path_mtu = connection.mtu;
  attributes.dest_qpn = roce::Qpn(kFirstQpn + 1 - static_cast<uint32_t>(node));
  attributes.rq_psn = connection.first_psn[static_cast<size_t>(1 - node)];
  attributes.sq_psn = connection.first_psn[static_cast<size_t>(node)];
  attributes.max_rd_atomic = connection.max_rd_atomic;
  attributes.max_dest_rd_atomic = MaxDestRdAtomic(connection);
  attributes.min_rnr_timer = connection.min_rnr_timer;
  attributes.timeout = connection.timeout;
  attributes.retry_count = connection.retry_count;
  attributes.rnr_retry = connection.rnr_retry;
  const auto modify = [&](roce::QpState state, uint32_t mask) {
    attributes.state = state;
    if (self.qp.Modify(self.host, attributes, mask | roce::kAttrState) != roce::ModifyResult::kOk)
      abort();
  };
  const roce::QpType type = connection.types[static_cast<size_t>(node)];
  const uint32_t responder =
      type == roce::QpType::kXrcSend ? 0 : roce::kAttrMaxDestRdAtomic | roce::kAttrMinRnrTimer;
  const uint32_t requester =
      type == roce::QpType::kXrcRecv
          ? 0
          : roce::kAttrRetryCount | roce::kAttrRnrRetry | roce::kAttrMaxRdAtomic;
  modify(roce::QpState::kInit, roce::kAttrPkeyIndex | roce::kAttrPort | roce::kAttrAccessFlags);
  modify(roce::QpState::kRtr, roce::kAttrAddressVector | roce::kAttrPathMtu | roce::kAttrDestQpn |
                                  roce::kAttrRqPsn | responder);
  modify(roce::QpState::kRts, roce::kAttrTimeout | roce::kAttrSqPsn | requester);
  if (connection.rate_limit_kbps == 0) return;
  attributes.rate_limit_kbps = connection.rate_limit_kbps;
  attributes.rate_burst_bytes = connection.rate_burst_bytes;
  modify(roce::QpState::kRts, roce::kAttrRateLimit);
}

void Pair::Fail(int node, Random& random) {
  Node& self = nodes_[static_cast<size_t>(node)];
  roce::QpAttributes attributes;
  attributes.state = roce::QpState::kErr;
  if (self.qp.Modify(self.host, attributes, roce::kAttrState) != roce::ModifyResult::kOk) {
    abort();
  }
  Transmit(node, random);
}

void Pair::SetFaults(const LinkFaults& faults) {
  for (Node& node : nodes_) node.out.set_faults(faults);
}

void Pair::Tamper(int node, std::function<bool(roce::Packet&)> tamper) {
  nodes_[static_cast<size_t>(node)].tamper = std::move(tamper);
}

void Pair::Work(int node, Random& random) {
  Node& self = nodes_[static_cast<size_t>(node)];
  self.qp.HandleWork(self.host);
  watch_.NoteWork(node);
  Transmit(node, random);
}

bool Pair::Step(Random& random, roce::TimeNs until) {
  roce::TimeNs next = until;
  for (const Node& node : nodes_) {
    next = std::min({next, node.out.NextDelivery(), node.qp.NextTimeout(), node.sync_end});
    if (node.waits_for_link) next = std::min(next, node.out.free_at());
  }
  if (next == until) {
    if (until != roce::kNever) now_ = std::max(now_, until);
    return false;
  }
  now_ = std::max(now_, next);
  for (int node = 0; node < 2; ++node) {
    Node& self = nodes_[static_cast<size_t>(node)];
    if (self.out.NextDelivery() <= now_) {
      Deliver(1 - node, random);
      return true;
    }
    if (self.qp.NextTimeout() <= now_) {
      self.qp.HandleTimeout(self.host, now_);
      Transmit(node, random);
      return true;
    }
    if (self.waits_for_link && self.out.free_at() <= now_) {
      Transmit(node, random);
      return true;
    }
    if (self.sync_end <= now_) {
      self.sync_end = roce::kNever;
      self.host.EndSync();
      self.qp.NoteDurable();
      Transmit(node, random);
      return true;
    }
  }
  return true;
}

// Sometimes handles several frames before the responses are sent, as in a burst.
void Pair::Deliver(int to, Random& random) {
  Node& from = nodes_[static_cast<size_t>(1 - to)];
  Node& self = nodes_[static_cast<size_t>(to)];
  const uint64_t burst = random.Between(1, 4);
  for (uint64_t i = 0; i < burst && from.out.NextDelivery() <= now_; ++i) {
    const std::vector<std::byte> frame = from.out.Take();
    if (roce::ParsePacket(frame, packet_) != roce::DropReason::kNone) {
      ++dropped_;
      continue;
    }
    if (packet_.dest_qpn != self.qp.qpn()) abort();  // the ICRC detects a damaged number
    if (self.tamper && !self.tamper(packet_)) continue;
    const roce::EarlyAction turn = Handle(to);
    if (turn == roce::EarlyAction::kKeep) Keep(to, frame);
    if (turn == roce::EarlyAction::kOfferKept) OfferKept(to);
  }
  Transmit(to, random);
}

// Handles the parsed packet.
roce::EarlyAction Pair::Handle(int to) {
  Node& self = nodes_[static_cast<size_t>(to)];
  const roce::QpState before = self.qp.state();
  const roce::PacketEffects effects = self.qp.HandlePacket(self.host, now_, packet_);
  if (effects.early == roce::EarlyAction::kKeep ||
      effects.reason == roce::DropReason::kKeptDuplicate) {
    watch_.NoteKept(to, now_, packet_, effects.early == roce::EarlyAction::kKeep ? 1 : 0);
  } else {
    watch_.NoteHandled(to, now_, packet_, before, self.qp);
  }
  return effects.early;
}

void Pair::Keep(int to, const std::vector<std::byte>& frame) {
  Node& self = nodes_[static_cast<size_t>(to)];
  self.kept.push_back({packet_.info->is_request, self.qp.DuePsn(packet_), frame});
  self.host.NoteKept(1);
}

void Pair::OfferKept(int to) {
  Node& self = nodes_[static_cast<size_t>(to)];
  while (const std::optional<std::vector<std::byte>> frame = TakeDue(self)) {
    if (roce::ParsePacket(*frame, packet_) != roce::DropReason::kNone) abort();
    watch_.NoteKept(to, now_, packet_, -1);
    packet_.traffic_class &= static_cast<uint8_t>(~roce::kEcnMask);  // counted when it came
    if (Handle(to) == roce::EarlyAction::kKeep) abort();
  }
}

// The kept packet that comes first, of those that are due.
std::optional<std::vector<std::byte>> Pair::TakeDue(Node& self) {
  auto first = self.kept.end();
  for (auto kept = self.kept.begin(); kept != self.kept.end(); ++kept) {
    if (!self.qp.IsDue(kept->is_request, kept->turn)) continue;
    if (first == self.kept.end() || roce::Distance(kept->turn, first->turn) > 0) first = kept;
  }
  if (first == self.kept.end()) return std::nullopt;
  std::vector<std::byte> frame = std::move(first->frame);
  self.kept.erase(first);
  self.host.NoteKept(-1);
  return frame;
}

void Pair::DropKept(int node) {
  Node& self = nodes_[static_cast<size_t>(node)];
  for (const Kept& kept : self.kept) {
    if (roce::ParsePacket(kept.frame, packet_) != roce::DropReason::kNone) abort();
    watch_.NoteKept(node, now_, packet_, -1);
    self.host.NoteKept(-1);
  }
  self.kept.clear();
}

void Pair::Transmit(int node, Random& random) {
  Node& self = nodes_[static_cast<size_t>(node)];
  roce::TxPacket packet;
  memory::SegmentList payload;
  self.waits_for_link = false;
  for (;;) {
    if (self.out.free_at() > now_) {
      self.waits_for_link = self.qp.HasTransmit();
      break;
    }
    const roce::Polled polled = self.qp.PollTransmit(self.host, now_, packet, payload);
    if (!polled) break;
    const roce::FrameTemplate frame =
        polled.kind == roce::Polled::Kind::kCnp ? self.frame.ForNotifications(48, 6) : self.frame;
    std::byte* place = roce::StartFrame(frame, packet, 0, buffer_.data());
    if (memory::CopyOut(payload, {place, packet.payload_length}) != memory::MemoryStatus::kOk) {
      abort();  // the memory of a simulated program never faults here
    }
    const uint32_t length = roce::FinishFrame(frame, packet, buffer_.data());
    watch_.NoteSent(node, now_, {buffer_.data(), length}, self.qp);
    self.out.Send(now_, {buffer_.begin(), buffer_.begin() + length}, random);
  }
  if (!self.waits_for_link) watch_.NoteQuiet(node, now_, self.qp);
  if (!self.qp.Upkeep().awaits_kept) DropKept(node);
  if (self.host.wants_sync() && self.sync_end == roce::kNever) {
    self.sync_end = now_ + random.Between(100, longest_sync_ns_);
  }
}

}  // namespace roci::sim
