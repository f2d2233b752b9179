#include "dataplane/qp/completion_events.h"

#include <algorithm>
#include <array>
#include <span>

#include "dataplane/qp/async_events.h"
#include "dataplane/qp/completion_queue.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

void CompletionEvents::MakeRoom(const OnShard&, size_t queues) {
  waiting_.reserve(contexts_ + 1);
  MakeRoomForQueues(queues_ + queues);
}

void CompletionEvents::MakeRoomForQueues(size_t queues) {
  touched_.reserve(queues);
  withheld_.reserve(queues);
  delayed_.reserve(queues);
  held_.reserve(queues);
  stalled_.reserve(queues);
  overflowed_.reserve(queues);
}

void CompletionEvents::Register(const OnShard&) {
  MakeRoomForQueues(queues_ + 1);
  ++queues_;
}

void CompletionEvents::Unregister(const OnShard&, CompletionQueue& cq) {
  --queues_;
  cq.PublishWithheld();
  std::erase(withheld_, &cq);
  if (cq.event_state().stalled_) std::erase(stalled_, &cq);
  cq.event_state().stalled_ = false;
  // Without a look through lists that it is not in, which may be long.
  if (cq.event_state().touched_) std::erase(touched_, &cq);
  if (cq.event_state().delayed_) std::erase(delayed_, &cq);
  CountDelayed();
  if (cq.overflowed()) std::erase(overflowed_, &cq);
  if (cq.event_state().held_) LetGo(cq);
}

void CompletionEvents::Adopt(const OnShard& shard, CompletionQueue& cq) {
  Register(shard);
  cq.Join(*this);
  if (cq.event_state().delayed_) delayed_.push_back(&cq);
  CountDelayed();
  cq.event_state().touched_ = true;  // for an event that was held back
  touched_.push_back(&cq);
}

void CompletionEvents::PublishWithheld() {
  for (CompletionQueue* cq : withheld_) {
    Claim(*cq);
    cq->PublishWithheld();
  }
  withheld_.clear();
}

// Disarms the queue before its entries become visible: a program that sees the entry and arms the
// queue again at once gets both events. Moderated events wait for Consider.
void CompletionEvents::Claim(CompletionQueue& cq) {
  CompletionEventState& state = cq.event_state();
  if (!state.moderation_.none() || !IsWanted(cq)) return;
  cq.Disarm();
  state.solicited_ = false;
  ++state.claimed_;
}

bool CompletionEvents::IsWanted(const CompletionQueue& cq, bool solicited) {
  const CompletionEventState& state = cq.event_state();
  if (state.channel_ == nullptr) return false;
  const uint32_t arm = cq.arm();
  return arm == ROCI_ABI_CQ_ARM_ANY ||
         (arm == ROCI_ABI_CQ_ARM_SOLICITED && (state.solicited_ || solicited));
}

bool CompletionEvents::IsRaisedBy(const OnShard&, const CompletionQueue& cq, bool solicited,
                                  bool is_first) {
  const CompletionEventState& state = cq.event_state();
  if (state.stalled_ || !IsWanted(cq, solicited)) return false;
  if (state.moderation_.none()) {
    const bool was_wanted = cq.arm() == ROCI_ABI_CQ_ARM_ANY ? !is_first : state.solicited_;
    return !was_wanted;
  }
  // The entry that makes the count full, or wakes a program that waits for a solicited one then.
  const uint32_t waiting = cq.producer() - state.unannounced_;
  if (state.moderation_.count == 0 || waiting + 1 < state.moderation_.count) return false;
  return waiting + 1 == state.moderation_.count || is_first || !IsWanted(cq);
}

// The queue leaves the lists of this burst, and seems to be in them to Write.
void CompletionEvents::Stall(const OnShard&, CompletionQueue& cq, uint64_t until_ns) {
  CompletionEventState& state = cq.event_state();
  if (state.stalled_) return;
  std::erase(withheld_, &cq);
  std::erase(touched_, &cq);
  state.stalled_ = true;
  state.stalled_until_ns_ = until_ns;
  stalled_.push_back(&cq);
  next_deadline_ = std::min(next_deadline_, until_ns);
}

void CompletionEvents::EndStall(const OnShard& shard, CompletionQueue& cq) {
  CompletionEventState& state = cq.event_state();
  if (!state.stalled_) return;
  state.stalled_ = false;
  std::erase(stalled_, &cq);
  withheld_.push_back(&cq);
  touched_.push_back(&cq);
  Publish(shard);
}

// Puts stalled queues that are due into the lists of this burst, and notes when the next is due.
void CompletionEvents::EndStalls(uint64_t now_ns) {
  std::erase_if(stalled_, [&](CompletionQueue* cq) {
    CompletionEventState& state = cq->event_state();
    if (state.stalled_until_ns_ > now_ns) {
      next_deadline_ = std::min(next_deadline_, state.stalled_until_ns_);
      return false;
    }
    state.stalled_ = false;
    withheld_.push_back(cq);
    touched_.push_back(cq);
    return true;
  });
}

void CompletionEvents::Flush(const OnShard& shard, uint64_t now_ns) {
  if (touched_.empty()) return;
  Publish(shard);
  // The entries are visible before `arm` is read; the program stores `arm` before it polls a last
  // time. So the lcore sees `arm`, or the program sees the entries.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (CompletionQueue* cq : touched_) {
    CompletionEventState& state = cq->event_state();
    state.touched_ = false;
    cq->PublishProducer();
    if (state.claimed_ != 0) {
      SendClaimed(*cq);
    } else {
      Consider(*cq, now_ns);
    }
  }
  touched_.clear();
}

// These events also wake a thread of the program that armed the queue since and saw no entries yet.
void CompletionEvents::SendClaimed(CompletionQueue& cq) {
  CompletionEventState& state = cq.event_state();
  for (; state.claimed_ != 0; --state.claimed_) Send(cq);
}

// Sends the event of a queue with new entries if the queue is armed and moderation allows it.
void CompletionEvents::Consider(CompletionQueue& cq, uint64_t now_ns) {
  CompletionEventState& state = cq.event_state();
  const bool wanted = IsWanted(cq);
  if (wanted && !state.moderation_.none()) [[unlikely]] {
    const bool enough = state.moderation_.count != 0 &&
                        cq.producer() - state.unannounced_ >= state.moderation_.count;
    const bool due = state.held_ && state.deadline_ns_ <= now_ns;
    if (!enough && !due) return HoldBack(cq, now_ns);
  }
  state.solicited_ = false;
  state.unannounced_ = cq.producer();
  if (state.held_) [[unlikely]]
    LetGo(cq);
  if (!wanted) return;
  cq.Disarm();
  Send(cq);
}

void CompletionEvents::HoldBack(CompletionQueue& cq, uint64_t now_ns) {
  CompletionEventState& state = cq.event_state();
  if (state.held_) return;
  state.held_ = true;
  const uint64_t period_ns = state.moderation_.period_ns;
  state.deadline_ns_ = period_ns != 0 ? now_ns + period_ns : kNever;
  next_deadline_ = std::min(next_deadline_, state.deadline_ns_);
  held_.push_back(&cq);
}

void CompletionEvents::LetGo(CompletionQueue& cq) {
  cq.event_state().held_ = false;
  if (std::erase(held_, &cq) != 0 && held_.empty() && stalled_.empty()) next_deadline_ = kNever;
}

void CompletionEvents::Expire(const OnShard&, uint64_t now_ns) {
  std::array<CompletionQueue*, kRetriesPerCall> due;
  size_t count = 0;
  uint64_t next = kNever;
  for (CompletionQueue* cq : held_) {
    const uint64_t deadline_ns = cq->event_state().deadline_ns_;
    if (deadline_ns <= now_ns && count < due.size()) {
      due[count++] = cq;
    } else {
      next = std::min(next, deadline_ns);
    }
  }
  for (size_t i = 0; i < count; ++i) Consider(*due[i], now_ns);
  next_deadline_ = next;
  if (!stalled_.empty()) EndStalls(now_ns);
}

void CompletionEvents::Moderate(const OnShard&, CompletionQueue& cq,
                                const EventModeration& moderation, uint64_t now_ns) {
  CompletionEventState& state = cq.event_state();
  const bool held = state.held_;
  LetGo(cq);
  state.moderation_ = moderation;
  if (held) {
    Consider(cq, now_ns);
  } else {
    state.unannounced_ = cq.producer();
  }
}

// Sends one event. If the socket has no room, the event waits for Retry.
void CompletionEvents::Send(CompletionQueue& cq) {
  CompletionEventState& state = cq.event_state();
  const roci_abi_comp_event event{state.user_handle_};
  const auto result = state.channel_->Write(std::as_bytes(std::span(&event, 1)), slow);
  if (result == EventSocket::Result::kWritten) {
    state.sent_.store(state.sent() + 1, std::memory_order_relaxed);
    sent.Add(1);
  } else if (result == EventSocket::Result::kFull && !state.delayed_) {
    state.delayed_ = true;
    delayed_.push_back(&cq);
    CountDelayed();
    delayed.Add(1);
  }
}

void CompletionEvents::Return(const OnShard&, CompletionQueue& cq) {
  CompletionEventState& state = cq.event_state();
  if (state.channel_ == nullptr || state.sent() == 0) return;  // there was none
  state.sent_.store(state.sent() - 1, std::memory_order_relaxed);
  Send(cq);
}

// A few at a time: a program that does not read its channel must not take the lcore from others.
void CompletionEvents::Retry(const OnShard& shard) {
  std::array<CompletionQueue*, kRetriesPerCall> owed;
  const size_t count = std::min(delayed_.size(), owed.size());
  std::copy_n(delayed_.begin(), count, owed.begin());
  delayed_.erase(delayed_.begin(), delayed_.begin() + static_cast<ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) {
    owed[i]->event_state().delayed_ = false;
    Send(*owed[i]);
  }
  for (size_t i = std::min(waiting_.size(), kRetriesPerCall); i > 0; --i) {
    AsyncEvents* events = waiting_.front();
    waiting_.erase(waiting_.begin());
    lost.Add(events->Retry(shard));
    if (events->waiting(shard)) waiting_.push_back(events);
  }
  CountDelayed();
}

void CompletionEvents::CountDelayed() { delayed_count_ = delayed_.size() + waiting_.size(); }

void CompletionEvents::Register(const OnShard& shard, AsyncEvents& events) {
  ++contexts_;
  if (events.waiting(shard)) AwaitRoom(shard, events);
}

void CompletionEvents::Unregister(const OnShard&, AsyncEvents& events) {
  --contexts_;
  std::erase(waiting_, &events);
  CountDelayed();
}

void CompletionEvents::AwaitRoom(const OnShard&, AsyncEvents& events) {
  if (std::find(waiting_.begin(), waiting_.end(), &events) == waiting_.end()) {
    waiting_.push_back(&events);
  }
  CountDelayed();
}

}  // namespace roci::dataplane
