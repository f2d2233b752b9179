// Frames from senders through a queue to a receiver, and responses back on an idle path.
#include "tests/sim/incast.h"

#include <algorithm>
#include <cstdlib>

#include "memory/copy.h"
#include "roce/parse.h"
#include "roce/qp.h"
#include "tests/sim/marks.h"

namespace roci::sim {
namespace {

constexpr uint32_t kMessageBytes = 32'768;
constexpr uint32_t kPosted = 8;  // messages that each sender keeps outstanding
constexpr uint32_t kRecords = 16;
constexpr uint32_t kFirstNear = 0x100;
constexpr uint32_t kFirstFar = 0x200;
constexpr uint64_t kPerFrameBytes = 24;  // FCS, preamble, gap
constexpr uint64_t kNsPerByteOf1Kbps = 8'000'000;

roce::QpConfig Config(uint32_t qpn) {
  roce::QpConfig config;
  config.qpn = roce::Qpn(qpn);
  return config;
}

roce::Gid Address(uint32_t number, bool is_near) {
  const auto low = static_cast<uint8_t>(is_near ? number + 1 : 1);
  return roce::Gid::FromIpv4(roce::Ipv4{{10, 0, static_cast<uint8_t>(is_near ? 0 : 1), low}});
}

}  // namespace

Incast::Node::Node(Arena* arena, const roce::QpConfig& config, roce::CongestionPort* port)
    : congestion(port),
      host(arena, config.qpn.value()),
      records(kRecords),
      resources(config.limits.max_dest_rd_atomic),
      qp(config, records, resources, port != nullptr ? &congestion : nullptr) {}

Incast::Incast(const IncastConfig& config)
    : config_(config), random_(config.seed), buffer_(roce::kMaxFrameBytes) {
  near_arena_.Reset(random_);
  far_arena_.Reset(random_);
  roce::CongestionPort port{.parameters = config.congestion};
  port.parameters.line_rate_kbps = config.rate_kbps;
  const auto add_port = [&]() -> roce::CongestionPort* {
    if (!config.congestion_control) return nullptr;
    return ports_.emplace_back(std::make_unique<roce::CongestionPort>(port)).get();
  };
  roce::CongestionPort* far_port = add_port();
  for (uint32_t i = 0; i < config.senders; ++i) {
    ends_.push_back(std::make_unique<End>(&near_arena_, &far_arena_, Config(kFirstNear + i),
                                          Config(kFirstFar + i), add_port(), far_port));
    Connect(ends_[i]->near, i, true);
    Connect(ends_[i]->far, i, false);
    At(now_ + random_.Below(config.start_within_ns + 1), What::kStart, i);
  }
}

void Incast::Connect(Node& node, uint32_t number, bool is_near) {
  roce::Path path;
  path.src_gid = Address(number, is_near);
  path.dst_gid = Address(number, !is_near);
  path.udp_src_port = 0xC123;
  if (config_.congestion_control) path.traffic_class = roce::kEcnCapable;
  node.frame = roce::FrameTemplate(path);
  roce::QpAttributes attributes;
  attributes.port = 1;
  attributes.access_flags = roce::kQpAccessRemoteWrite;
  attributes.path_mtu = config_.mtu;
  attributes.dest_qpn = roce::Qpn((is_near ? kFirstFar : kFirstNear) + number);
  attributes.timeout = config_.timeout;
  attributes.retry_count = 7;
  attributes.rnr_retry = 7;
  const auto modify = [&](roce::QpState state, uint32_t mask) {
    attributes.state = state;
    if (node.qp.Modify(node.host, attributes, mask | roce::kAttrState) != roce::ModifyResult::kOk) {
      abort();
    }
  };
  modify(roce::QpState::kInit, roce::kAttrPkeyIndex | roce::kAttrPort | roce::kAttrAccessFlags);
  modify(roce::QpState::kRtr, roce::kAttrAddressVector | roce::kAttrPathMtu | roce::kAttrDestQpn |
                                  roce::kAttrRqPsn | roce::kAttrMaxDestRdAtomic |
                                  roce::kAttrMinRnrTimer);
  modify(roce::QpState::kRts, roce::kAttrTimeout | roce::kAttrSqPsn | roce::kAttrRetryCount |
                                  roce::kAttrRnrRetry | roce::kAttrMaxRdAtomic);
}

uint32_t Incast::allowed_kbps(uint32_t sender) const {
  roce::QpDebug debug;
  ends_[sender]->near.qp.Describe(now_, debug);
  return debug.throttled_to_kbps != 0 ? debug.throttled_to_kbps : config_.rate_kbps;
}

uint64_t Incast::TransmissionNs(size_t bytes) const {
  return (bytes + kPerFrameBytes) * kNsPerByteOf1Kbps / config_.rate_kbps;
}

void Incast::At(roce::TimeNs time, What what, uint32_t end, Frame frame) {
  events_.emplace(std::pair(time, sequence_++), Event{what, end, std::move(frame)});
}

void Incast::RunUntil(roce::TimeNs end) {
  for (;;) {
    roce::TimeNs next = end;
    if (!events_.empty()) next = std::min(next, events_.begin()->first.first);
    for (const auto& each : ends_) {
      next = std::min({next, each->near.qp.NextTimeout(), each->far.qp.NextTimeout()});
    }
    if (next >= end) break;
    now_ = std::max(now_, next);
    HandleTimeouts();
    while (!events_.empty() && events_.begin()->first.first <= now_) {
      Event event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      Handle(std::move(event));
    }
  }
  now_ = std::max(now_, end);
}

void Incast::HandleTimeouts() {
  for (uint32_t i = 0; i < ends_.size(); ++i) {
    for (Node* node : {&ends_[i]->near, &ends_[i]->far}) {
      if (node->qp.NextTimeout() <= now_) node->qp.HandleTimeout(node->host, now_);
    }
    Pump(i);
  }
}

void Incast::Handle(Event event) {
  switch (event.what) {
    case What::kStart:
      ends_[event.end]->started = true;
      return Work(*ends_[event.end]), Pump(event.end);
    case What::kLinkFree:
      return Pump(event.end);
    case What::kAtSwitch:
      return Enqueue(event.end, std::move(event.frame));
    case What::kPortFree:
      port_busy_ = false;
      return ServePort();
    case What::kAtReceiver:
      return Receive(event.end, event.frame);
    case What::kAtSender:
      return Answer(event.end, event.frame);
    case What::kPause:
      paused_ = true;
      return;
    case What::kResume:
      paused_ = false;
      for (uint32_t i = 0; i < ends_.size(); ++i) Pump(i);
      return;
  }
}

// Posts WRITEs until kPosted are outstanding.
void Incast::Work(End& end) {
  end.completed = end.near.host.send_completions().size();
  for (size_t posted = end.near.host.sends().size(); posted < end.completed + kPosted; ++posted) {
    PostedSend post;
    post.wqe.opcode = roce::WorkOpcode::kRdmaWrite;
    post.wqe.signaled = true;
    post.wqe.length = kMessageBytes;
    post.wqe.num_sge = 1;
    post.wqe.remote_va = far_arena_.va(kTarget);
    post.wqe.rkey = roce::Key(far_arena_.key(kTarget));
    post.sges = {{.va = near_arena_.va(kSource),
                  .length = kMessageBytes,
                  .lkey = roce::Key(near_arena_.key(kSource))}};
    end.near.host.PostSend(std::move(post));
  }
  end.near.qp.HandleWork(end.near.host);
}

// Sends the next frame if the sender's link is free: it carries one frame at a time.
void Incast::Pump(uint32_t index) {
  End& end = *ends_[index];
  if (!end.started || paused_ || end.link_free_at > now_) return;
  Frame frame;
  if (!Poll(end.near, frame)) return;
  end.link_free_at = now_ + TransmissionNs(frame.size());
  At(end.link_free_at, What::kLinkFree, index);
  At(end.link_free_at + config_.delay_ns, What::kAtSwitch, index, std::move(frame));
}

bool Incast::Poll(Node& node, Frame& out) {
  roce::TxPacket packet;
  memory::SegmentList payload;
  if (!node.qp.HasTransmit()) return false;
  const roce::Polled polled = node.qp.PollTransmit(node.host, now_, packet, payload);
  if (!polled) return false;
  const roce::FrameTemplate frame =
      polled.kind == roce::Polled::Kind::kCnp
          ? node.frame.ForNotifications(config_.congestion.cnp_dscp,
                                        config_.congestion.cnp_priority)
          : node.frame;
  std::byte* place = roce::StartFrame(frame, packet, 0, buffer_.data());
  if (memory::CopyOut(payload, {place, packet.payload_length}) != memory::MemoryStatus::kOk) {
    abort();
  }
  const uint32_t length = roce::FinishFrame(frame, packet, buffer_.data());
  out.assign(buffer_.begin(), buffer_.begin() + length);
  return true;
}

// Random early detection (RED).
bool Incast::IsMarked() {
  if (queued_bytes_ <= config_.mark_from_bytes) return false;
  if (queued_bytes_ >= config_.mark_all_bytes) return true;
  const uint64_t span = config_.mark_all_bytes - config_.mark_from_bytes;
  return random_.Below(span * 1000) <
         (queued_bytes_ - config_.mark_from_bytes) * config_.mark_permille;
}

void Incast::Enqueue(uint32_t index, Frame frame) {
  if (queued_bytes_ + frame.size() > config_.buffer_bytes) {
    ++lost_;
    return;
  }
  if (IsMarked() && MarkFrame(frame)) ++marked_;
  queued_bytes_ += frame.size();
  longest_queue_bytes_ = std::max(longest_queue_bytes_, queued_bytes_);
  queue_.emplace_back(index, std::move(frame));
  if (config_.pause_from_bytes != 0 && !asked_to_pause_ &&
      queued_bytes_ > config_.pause_from_bytes) {
    asked_to_pause_ = true;
    ++pauses_;
    At(now_ + config_.delay_ns, What::kPause, 0);
  }
  ServePort();
}

void Incast::ServePort() {
  if (port_busy_ || queue_.empty()) return;
  auto [index, frame] = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= frame.size();
  if (asked_to_pause_ && queued_bytes_ <= config_.pause_from_bytes / 2) {
    asked_to_pause_ = false;
    At(now_ + config_.delay_ns, What::kResume, 0);
  }
  port_busy_ = true;
  const roce::TimeNs sent = now_ + TransmissionNs(frame.size());
  At(sent, What::kPortFree, 0);
  At(sent + config_.delay_ns, What::kAtReceiver, index, std::move(frame));
}

void Incast::Receive(uint32_t index, const Frame& frame) {
  End& end = *ends_[index];
  if (roce::ParsePacket(frame, packet_) != roce::DropReason::kNone) abort();
  roce::QpAttributes before;
  end.far.qp.Query(before);
  const bool is_new = packet_.psn == before.rq_psn;
  const roce::DropReason reason = end.far.qp.HandlePacket(end.far.host, now_, packet_).reason;
  if (is_new && reason == roce::DropReason::kNone) end.received_bytes += packet_.payload.size();
  for (Frame answer; Poll(end.far, answer);) {
    At(now_ + 2 * config_.delay_ns, What::kAtSender, index, std::move(answer));
  }
}

void Incast::Answer(uint32_t index, const Frame& frame) {
  End& end = *ends_[index];
  if (roce::ParsePacket(frame, packet_) != roce::DropReason::kNone) abort();
  end.near.qp.HandlePacket(end.near.host, now_, packet_);
  Work(end);
  Pump(index);
}

}  // namespace roci::sim
