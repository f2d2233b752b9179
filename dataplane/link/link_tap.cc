#include "dataplane/link/link_tap.h"

#include <rte_mbuf.h>

#include <algorithm>

namespace roci::dataplane {

DelayQueue::~DelayQueue() {
  for (const Held& held : heap_) rte_pktmbuf_free(held.frame);
}

bool DelayQueue::Push(rte_mbuf* frame, uint8_t to, uint64_t due_ns) {
  if (!HasRoom()) return false;
  heap_.push_back({due_ns, serial_++, frame, to});
  std::push_heap(heap_.begin(), heap_.end(), Later);
  return true;
}

rte_mbuf* DelayQueue::Pop(uint64_t now_ns, uint8_t* to) {
  if (heap_.empty() || heap_.front().due_ns > now_ns) return nullptr;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  const Held held = heap_.back();
  heap_.pop_back();
  *to = held.to;
  return held.frame;
}

LinkTap::LinkTap(uint32_t lcore, const uint64_t* now, rte_mempool* pool)
    : lcore_(lcore), now_ns_(now), pool_(pool) {
  captures_.reserve(kMaxCaptures);
  for (auto& rules : rules_) rules.reserve(kMaxRules);
}

void LinkTap::RemoveCapture(const OnShard&, CaptureTap& capture) {
  std::erase(captures_, &capture);
}

void LinkTap::RemoveRule(const OnShard&, Impairment& rule) {
  for (auto& rules : rules_) std::erase(rules, &rule);
}

bool LinkTap::IsIdle() const {
  return captures_.empty() && rules_[0].empty() && rules_[1].empty() && queues_[0].empty() &&
         queues_[1].empty();
}

uint32_t LinkTap::Receive(rte_mbuf** frames, uint32_t count, uint32_t capacity) {
  Capture(LinkDirection::kIn, frames, count);
  count = Impair(LinkDirection::kIn, frames, nullptr, 0, count);
  uint8_t unused;
  while (count < capacity) {
    rte_mbuf* due = QueueOf(LinkDirection::kIn).Pop(*now_ns_, &unused);
    if (due == nullptr) break;
    frames[count++] = due;
  }
  return count;
}

uint32_t LinkTap::Send(rte_mbuf** frames, uint8_t* to, uint32_t staged, uint32_t capacity) {
  uint32_t count = Impair(LinkDirection::kOut, frames, to, passed_, staged);
  while (count < capacity) {
    rte_mbuf* due = QueueOf(LinkDirection::kOut).Pop(*now_ns_, &to[count]);
    if (due == nullptr) break;
    frames[count++] = due;
  }
  Capture(LinkDirection::kOut, frames + passed_, count - passed_);
  return count;
}

// Keeps the frames of [begin, end) that pass now. Returns the new end.
uint32_t LinkTap::Impair(LinkDirection direction, rte_mbuf** frames, uint8_t* to, uint32_t begin,
                         uint32_t end) {
  if (RulesOf(direction).empty()) return end;
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
  const FrameArrival arrival{
      .now_ns = *now_ns_, .bytes = frame->pkt_len, .has_room = QueueOf(direction).HasRoom()};
  FrameFate fate;
  for (Impairment* rule : RulesOf(direction)) {
    rule->Apply({rte_pktmbuf_mtod(frame, std::byte*), frame->data_len}, arrival, fate);
    if (!fate.lost) continue;
    rte_pktmbuf_free(frame);
    return false;
  }
  const uint64_t due_ns = *now_ns_ + fate.hold_ns();
  rte_mbuf* copy = fate.duplicated ? rte_pktmbuf_copy(frame, pool_, 0, UINT32_MAX) : nullptr;
  if (fate.hold_ns() != 0) Hold(direction, frame, to, due_ns);
  if (copy != nullptr) Hold(direction, copy, to, due_ns);
  return fate.hold_ns() == 0;
}

void LinkTap::Hold(LinkDirection direction, rte_mbuf* frame, uint8_t to, uint64_t due_ns) {
  if (QueueOf(direction).Push(frame, to, due_ns)) return;
  RulesOf(direction).front()->counters().queue_full.Add(1);
  rte_pktmbuf_free(frame);
}

void LinkTap::Capture(LinkDirection direction, rte_mbuf** frames, uint32_t count) {
  if (count == 0) return;
  for (CaptureTap* capture : captures_) {
    capture->Take(lcore_, frames, count, direction, *now_ns_);
  }
}

}  // namespace roci::dataplane
