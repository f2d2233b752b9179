// Definitions of ReorderWindow.
#include "roce/reorder_window.h"

#include <algorithm>
#include <utility>

namespace roci::roce {
namespace {

// A READ request takes as many PSNs as its responses. An early one that took more could
// not be told from a duplicate.
constexpr uint32_t kMostPsnsOfPacket = 1u << 22;

}  // namespace

ReorderWindow::Arrival ReorderWindow::Note(Psn due, Psn psn, uint32_t packets, TimeNs now) {
  Advance(due);
  const uint32_t ahead = StepsForward(due_, psn);
  if (ahead >= kPackets || packets > kMostPsnsOfPacket) return Arrival::kNoRoom;
  const uint32_t end = StepsForward(due_, end_);
  if (ahead >= end) {
    const Gap gap{.first = end_, .packets = ahead - end, .since = now};
    if (ahead > end && !Open(gap_count_, gap)) return Arrival::kNoRoom;
    end_ = psn + packets;
    return Arrival::kNew;
  }
  for (uint32_t i = 0; i < gap_count_; ++i) {
    const uint32_t offset = OffsetOf(gaps_[i]);
    if (ahead < offset) break;
    if (ahead < offset + gaps_[i].packets) return Fill(i, psn, packets);
  }
  return Arrival::kDuplicate;
}

void ReorderWindow::Expect(Psn due, Psn end, TimeNs now) {
  Advance(due);
  const uint32_t known = StepsForward(due_, end_);
  const uint32_t ahead = std::min(StepsForward(due_, end), kPackets);
  if (ahead <= known) return;
  if (Open(gap_count_, {.first = end_, .packets = ahead - known, .since = now})) {
    end_ = due_ + ahead;
  }
}

ReorderWindow::Arrival ReorderWindow::Fill(uint32_t index, Psn psn, uint32_t packets) {
  Gap& gap = gaps_[index];
  const uint32_t before = StepsForward(gap.first, psn);
  if (before + packets > gap.packets) return Arrival::kNoRoom;
  const uint32_t behind = gap.packets - before - packets;
  if (before != 0 && behind != 0) {
    Gap rest = gap;
    rest.first = psn + packets;
    rest.packets = behind;
    if (!Open(index + 1, rest)) return Arrival::kNoRoom;
    gap.packets = before;
  } else if (before != 0) {
    gap.packets = before;
  } else if (behind != 0) {
    gap.first = psn + packets;
    gap.packets = behind;
  } else {
    Close(index);
  }
  return Arrival::kNew;
}

void ReorderWindow::Advance(Psn due) {
  const uint32_t steps = StepsForward(due_, due);
  if (steps >= StepsForward(due_, end_)) {
    gap_count_ = 0;
    due_ = end_ = due;
    return;
  }
  while (gap_count_ != 0 && OffsetOf(gaps_[0]) + gaps_[0].packets <= steps) Close(0);
  if (gap_count_ != 0 && OffsetOf(gaps_[0]) < steps) {
    gaps_[0].packets -= steps - OffsetOf(gaps_[0]);
    gaps_[0].first = due;
  }
  due_ = due;
}

bool ReorderWindow::HasArrived(Psn psn) const {
  const uint32_t ahead = StepsForward(due_, psn);
  if (ahead >= StepsForward(due_, end_)) return false;
  return std::none_of(gaps_.begin(), gaps_.begin() + gap_count_,
                      [psn](const Gap& gap) { return InWindow(psn, gap.first, gap.packets); });
}

TimeNs ReorderWindow::NextAsk(uint64_t wait_ns) const {
  TimeNs next = kNever;
  for (const Gap& gap : gaps()) {
    next = std::min(next, gap.asks == 0 ? gap.since + wait_ns : gap.ask_again_at);
  }
  return next;
}

void ReorderWindow::Ask(TimeNs now, uint64_t wait_ns, uint64_t repeat_ns) {
  for (Gap& gap : gaps()) {
    if (now < (gap.asks == 0 ? gap.since + wait_ns : gap.ask_again_at)) continue;
    if (std::exchange(gap.is_coming, false) || gap.asks == 0) gap.asked_at = now;
    ++gap.asks;
    gap.ask_again_at = now + std::max(repeat_ns, now - gap.asked_at);
    gap.is_wanted = true;
  }
}

void ReorderWindow::NoteComing(TimeNs now, TimeNs again_at) {
  Gap& gap = gaps_[0];
  gap.since = now;
  gap.is_coming = true;
  gap.asks = 1;
  gap.ask_again_at = std::max(gap.ask_again_at, again_at);
}

bool ReorderWindow::HasWanted() const {
  return std::ranges::any_of(gaps(), [](const Gap& gap) { return gap.is_wanted; });
}

MissingEth ReorderWindow::TakeWanted() {
  MissingEth missing;
  for (Gap& gap : gaps()) {
    if (!gap.is_wanted) continue;
    gap.is_wanted = false;
    const uint32_t begin = OffsetOf(gap);
    const uint32_t end = std::min(begin + gap.packets, MissingEth::kPsns);
    for (uint32_t i = begin; i < end; ++i) missing.Add(i);
  }
  return missing;
}

// False: there are too many gaps.
bool ReorderWindow::Open(uint32_t index, const Gap& gap) {
  if (gap_count_ == kMostGaps) return false;
  std::copy_backward(gaps_.begin() + index, gaps_.begin() + gap_count_,
                     gaps_.begin() + gap_count_ + 1);
  gaps_[index] = gap;
  ++gap_count_;
  return true;
}

void ReorderWindow::Close(uint32_t index) {
  std::copy(gaps_.begin() + index + 1, gaps_.begin() + gap_count_, gaps_.begin() + index);
  --gap_count_;
}

}  // namespace roci::roce
