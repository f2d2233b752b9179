#include "dataplane/rings/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace roci::dataplane {
namespace {

void FillLost(uint64_t records, uint64_t time_ns, TraceRecord& out) {
  std::memset(static_cast<void*>(&out), 0, sizeof(out));
  out.kind = TraceKind::kLost;
  out.time_ns = time_ns;
  out.lost.records = records;
}

}  // namespace

bool TraceRing::HasRoom(uint32_t records) {
  if (kEntries - (producer_ - consumed_seen_) >= records) return true;
  consumed_seen_ = consumed_.load(std::memory_order_acquire);
  return kEntries - (producer_ - consumed_seen_) >= records;
}

TraceRecord* TraceRing::Next(uint64_t now_ns, bool from_reserve) {
  const uint64_t lost = lost_.load(std::memory_order_relaxed);
  const bool tells = told_.load(std::memory_order_relaxed) != lost;
  if (!HasRoom(1 + (tells ? 1 : 0) + (from_reserve ? 0 : kReserved))) [[unlikely]] {
    lost_ns_.store(now_ns, std::memory_order_relaxed);
    lost_.store(lost + 1, std::memory_order_release);
    return nullptr;
  }
  if (tells) [[unlikely]]
    PublishLost(lost);
  return &records_[producer_ % kEntries];
}

void TraceRing::PublishLost(uint64_t lost) {
  const uint64_t told = told_.exchange(lost, std::memory_order_release);
  if (told == lost) return;  // the control thread was faster
  FillLost(lost - told, lost_ns_.load(std::memory_order_relaxed), records_[producer_ % kEntries]);
  Publish();
}

void TraceRing::Take(uint64_t before_ns, std::vector<TraceRecord>& out) {
  uint32_t next = consumed_.load(std::memory_order_relaxed);
  const uint32_t end = produced_.load(std::memory_order_acquire);
  for (; next != end; ++next) {
    const TraceRecord& record = records_[next % kEntries];
    if (record.time_ns >= before_ns) break;
    out.push_back(record);
  }
  consumed_.store(next, std::memory_order_release);
  TakeLost(next, before_ns, out);
}

// If the lcore tells of these losses meanwhile, since it has records again, `told_` has changed.
void TraceRing::TakeLost(uint32_t next, uint64_t before_ns, std::vector<TraceRecord>& out) {
  // `told_` is read before `lost_`, so that told <= lost.
  uint64_t told = told_.load(std::memory_order_acquire);
  const uint64_t lost = lost_.load(std::memory_order_acquire);
  if (told == lost || produced_.load(std::memory_order_acquire) != next) return;
  const uint64_t time_ns = lost_ns_.load(std::memory_order_relaxed);
  if (time_ns >= before_ns) return;
  if (!told_.compare_exchange_strong(told, lost, std::memory_order_relaxed)) return;
  FillLost(lost - told, time_ns, out.emplace_back());
}

bool LaneTrace::Names(uint32_t qpn) const {
  return settings_.qpns.empty() ||
         std::ranges::find(settings_.qpns, roce::Qpn(qpn)) != settings_.qpns.end();
}

TraceRecord* LaneTrace::Start(TraceKind kind, uint32_t qpn, bool from_reserve) {
  TraceRecord* const record = ring_.Next(*now_ns_, from_reserve);
  if (record == nullptr) return nullptr;
  std::memset(static_cast<void*>(record), 0, sizeof(*record));
  record->time_ns = *now_ns_;
  record->qpn = qpn;
  record->kind = kind;
  record->device = device_;
  record->lcore = lcore_;
  return record;
}

void LaneTrace::AddPacket(uint32_t qpn, std::span<const std::byte> transport, uint32_t bytes,
                          bool is_sent, bool is_marked) {
  TraceRecord* const record = Begin(TraceKind::kPacket, qpn);
  if (record == nullptr) return;
  TracePacket& packet = record->packet;
  std::memcpy(packet.headers.data(), transport.data(),
              std::min({transport.size(), size_t{bytes}, packet.headers.size()}));
  packet.bytes = static_cast<uint16_t>(bytes);
  packet.is_sent = is_sent;
  packet.is_marked = is_marked;
  Publish();
}

void LaneTrace::AddEvent(uint32_t qpn, uint32_t type) {
  TraceRecord* const record = Begin(TraceKind::kEvent, qpn);
  if (record == nullptr) return;
  record->event.type = type;
  Publish();
}

void LaneTrace::AddState(uint32_t qpn, roce::QpState from, roce::QpState to) {
  TraceRecord* const record = Begin(TraceKind::kState, qpn);
  if (record == nullptr) return;
  record->state.from = static_cast<uint8_t>(from);
  record->state.to = static_cast<uint8_t>(to);
  Publish();
}

void LaneTrace::AddEnd(uint32_t qpn, roce::QpState from) {
  const bool is_awaited = !settings_.qpns.empty();
  if (!(is_awaited ? Names(qpn) : settings_.Wants(TraceKind::kState))) return;
  TraceRecord* const record = Start(TraceKind::kState, qpn, /*from_reserve=*/is_awaited);
  if (record == nullptr) return;
  record->state.from = static_cast<uint8_t>(from);
  record->state.to = TraceState::kDestroyed;
  Publish();
}

TraceRings::TraceRings(uint32_t lcores) {
  for (uint32_t i = 0; i < lcores; ++i) rings_.push_back(std::make_unique<TraceRing>());
}

void TraceRings::Take(uint64_t before_ns, std::vector<TraceRecord>& out) {
  for (const auto& ring : rings_) ring->Take(before_ns, out);
}

DeviceTrace::DeviceTrace(TraceRings& rings, TraceSettings asked, uint8_t device)
    : settings(std::move(asked)) {
  for (uint32_t i = 0; i < rings.lcores(); ++i) {
    lanes.push_back(
        std::make_unique<LaneTrace>(rings.of_lcore(i), settings, device, static_cast<uint8_t>(i)));
  }
}

}  // namespace roci::dataplane
