#include "dataplane/qp/completion_queue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "absl/status/status.h"
#include "dataplane/base/async_event.h"
#include "dataplane/qp/async_events.h"
#include "dataplane/shard/session.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {
namespace {

size_t RingBytes(uint32_t capacity) {
  return CompletionQueue::kEntriesOffset + size_t{capacity} * sizeof(roci_abi_cqe);
}

uint32_t GenerationOf(uint32_t index, uint32_t capacity_shift) {
  return (index >> capacity_shift) + 1;
}

}  // namespace

static_assert(CompletionQueue::kEntriesOffset == sizeof(roci_abi_cq));

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(Session& session,
                                                                         CompletionEvents& events,
                                                                         uint32_t entries,
                                                                         uint64_t user_handle,
                                                                         int channel) {
  absl::StatusOr<SharedMemory> memory = CreateRing(entries);
  if (!memory.ok()) return memory.status();
  std::unique_ptr<CompletionQueue> cq(new CompletionQueue(session, events, user_handle, channel));
  cq->memory_ = *std::move(memory);
  cq->UseRing(std::bit_ceil(entries));
  return cq;
}

absl::StatusOr<SharedMemory> CompletionQueue::CreateRing(uint32_t entries) {
  if (entries < 1 || entries > kMaxEntries) {
    return absl::InvalidArgumentError("completion queue: number of entries");
  }
  return SharedMemory::Create("roci-cq", RingBytes(std::bit_ceil(entries)));
}

void CompletionQueue::UseRing(uint32_t capacity) {
  header_ = reinterpret_cast<roci_abi_cq*>(memory_.data());
  entries_ = reinterpret_cast<roci_abi_cqe*>(memory_.data() + kEntriesOffset);
  capacity_ = capacity;
  capacity_shift_ = static_cast<uint32_t>(std::countr_zero(capacity));
}

// The ring looks full: believe the app's index if it is possible.
bool CompletionQueue::MakeRoom() {
  if (overflowed_) return false;
  const uint32_t consumer = std::atomic_ref(header_->consumer).load(std::memory_order_acquire);
  if (producer_ - consumer < capacity_) {
    consumer_ = consumer;
    return true;
  }
  if (ignore_overrun_) return false;
  overflowed_ = true;
  events_->overflowed_.push_back(this);
  std::atomic_ref(header_->overflowed).store(1, std::memory_order_relaxed);
  if (session_.SendAsyncEvent(user_handle_, kEventCqError)) {
    async_events_.store(async_events() + 1, std::memory_order_relaxed);
  }
  return false;
}

void CompletionQueue::PublishWithheld() {
  if (!has_withheld_) return;
  has_withheld_ = false;
  roci_abi_cqe& entry = entries_[withheld_index_ & (capacity_ - 1)];
  std::memcpy(static_cast<void*>(&entry), &withheld_, offsetof(roci_abi_cqe, generation));
  entry.tag_context = withheld_.tag_context;
  std::atomic_ref(entry.generation).store(withheld_.generation, std::memory_order_release);
}

void CompletionQueue::WriteEntry(roci_abi_cqe filled, bool solicited, uint64_t now_ns) {
  if (producer_ - consumer_ >= capacity_ && !MakeRoom()) return;
  filled.timestamp_ns = now_ns;
  filled.generation = 0;
  roci_abi_cqe& entry = has_withheld_ ? entries_[producer_ & (capacity_ - 1)] : withheld_;
  entry = filled;
  std::atomic_ref(entry.generation)
      .store(GenerationOf(producer_, capacity_shift_), std::memory_order_release);
  if (!has_withheld_) {
    has_withheld_ = true;
    withheld_index_ = producer_;
    events_->Withhold(*this);
  }
  ++producer_;
  solicited_ |= solicited;
  if (touched_) return;
  touched_ = true;
  events_->Touch(*this);
}

bool CompletionQueue::SwapRing(SharedMemory& ring, uint32_t capacity, uint32_t consumer) {
  PublishWithheld();
  const uint32_t unconsumed = producer_ - consumer;
  if (unconsumed > capacity_ || unconsumed > capacity) return false;
  const roci_abi_cqe* old_entries = entries_;
  const uint32_t old_mask = capacity_ - 1;
  const uint32_t arm = std::atomic_ref(header_->arm).load(std::memory_order_relaxed);
  std::swap(memory_, ring);
  UseRing(capacity);
  for (uint32_t i = 0; i < unconsumed; ++i) {
    entries_[i] = old_entries[(consumer + i) & old_mask];
    entries_[i].generation = GenerationOf(i, capacity_shift_);
  }
  header_->arm = arm;
  header_->producer = unconsumed;
  header_->overflowed = overflowed_;
  producer_ = unconsumed;
  unannounced_ -= consumer;
  // A dead queue stays full for ever.
  consumer_ = overflowed_ ? producer_ - capacity_ : 0;
  return true;
}

void CompletionEvents::Register() {
  const size_t queues = queues_ + 1;
  touched_.reserve(queues);
  withheld_.reserve(queues);
  delayed_.reserve(queues);
  held_.reserve(queues);
  overflowed_.reserve(queues);
  ++queues_;
}

void CompletionEvents::Unregister(CompletionQueue& cq) {
  --queues_;
  cq.PublishWithheld();
  std::erase(withheld_, &cq);
  std::erase(touched_, &cq);
  std::erase(delayed_, &cq);
  CountOwed();
  std::erase(overflowed_, &cq);
  LetGo(cq);
}

void CompletionEvents::Adopt(CompletionQueue& cq) {
  Register();
  cq.events_ = this;
  if (cq.delayed_) delayed_.push_back(&cq);
  CountOwed();
  cq.touched_ = true;  // for an event that was held back
  touched_.push_back(&cq);
}

void CompletionEvents::PublishWithheld() {
  for (CompletionQueue* cq : withheld_) {
    Claim(*cq);
    cq->PublishWithheld();
  }
  withheld_.clear();
}

// An app that has seen the entry may at once ask for the event of the next one, and gets both: what
// it had asked for before is taken before the entry is seen. Moderated events wait for Consider.
void CompletionEvents::Claim(CompletionQueue& cq) {
  if (!cq.moderation_.none() || !IsWanted(cq)) return;
  std::atomic_ref(cq.header_->arm).exchange(ROCI_ABI_CQ_ARM_NONE, std::memory_order_seq_cst);
  cq.solicited_ = false;
  ++cq.claimed_;
}

bool CompletionEvents::IsWanted(const CompletionQueue& cq) {
  if (cq.channel_ < 0) return false;
  const uint32_t arm = std::atomic_ref(cq.header_->arm).load(std::memory_order_relaxed);
  return arm == ROCI_ABI_CQ_ARM_ANY || (arm == ROCI_ABI_CQ_ARM_SOLICITED && cq.solicited_);
}

void CompletionEvents::Flush(uint64_t now_ns) {
  if (touched_.empty()) return;
  Publish();
  // The entries are visible before `arm` is read; the app stores `arm` before it looks for entries
  // a last time. One of both sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (CompletionQueue* cq : touched_) {
    cq->touched_ = false;
    std::atomic_ref(cq->header_->producer).store(cq->producer_, std::memory_order_relaxed);
    if (cq->claimed_ != 0) {
      SendClaimed(*cq);
    } else {
      Consider(*cq, now_ns);
    }
  }
  touched_.clear();
}

// Whoever armed the queue since, and did not see the entries yet, is woken by these as well.
void CompletionEvents::SendClaimed(CompletionQueue& cq) {
  for (; cq.claimed_ != 0; --cq.claimed_) Send(cq);
}

// Sends the event of a queue with new entries if the app has asked for it and it is time.
void CompletionEvents::Consider(CompletionQueue& cq, uint64_t now_ns) {
  const bool wanted = IsWanted(cq);
  if (wanted && !cq.moderation_.none()) [[unlikely]] {
    const bool enough =
        cq.moderation_.count != 0 && cq.producer_ - cq.unannounced_ >= cq.moderation_.count;
    const bool due = cq.held_ && cq.deadline_ns_ <= now_ns;
    if (!enough && !due) return HoldBack(cq, now_ns);
  }
  cq.solicited_ = false;
  cq.unannounced_ = cq.producer_;
  if (cq.held_) [[unlikely]]
    LetGo(cq);
  if (!wanted) return;
  std::atomic_ref(cq.header_->arm).exchange(ROCI_ABI_CQ_ARM_NONE, std::memory_order_seq_cst);
  Send(cq);
}

void CompletionEvents::HoldBack(CompletionQueue& cq, uint64_t now_ns) {
  if (cq.held_) return;
  cq.held_ = true;
  const uint64_t period_ns = cq.moderation_.period_ns;
  cq.deadline_ns_ = period_ns != 0 ? now_ns + period_ns : kNever;
  next_deadline_ = std::min(next_deadline_, cq.deadline_ns_);
  held_.push_back(&cq);
}

void CompletionEvents::LetGo(CompletionQueue& cq) {
  cq.held_ = false;
  if (std::erase(held_, &cq) != 0 && held_.empty()) next_deadline_ = kNever;
}

void CompletionEvents::Expire(uint64_t now_ns) {
  std::array<CompletionQueue*, kRetriesPerCall> due;
  size_t count = 0;
  uint64_t next = kNever;
  for (CompletionQueue* cq : held_) {
    if (cq->deadline_ns_ <= now_ns && count < due.size()) {
      due[count++] = cq;
    } else {
      next = std::min(next, cq->deadline_ns_);
    }
  }
  for (size_t i = 0; i < count; ++i) Consider(*due[i], now_ns);
  next_deadline_ = next;
}

void CompletionEvents::Moderate(CompletionQueue& cq, const EventModeration& moderation,
                                uint64_t now_ns) {
  const bool held = cq.held_;
  LetGo(cq);
  cq.moderation_ = moderation;
  if (held) {
    Consider(cq, now_ns);
  } else {
    cq.unannounced_ = cq.producer_;
  }
}

// One event per disarming. Where the pipe has no room it is owed.
void CompletionEvents::Send(CompletionQueue& cq) {
  const roci_abi_comp_event event{cq.user_handle_};
  const bool held = cq.channel_ == held_channel_;
  if (!held && write(cq.channel_, &event, sizeof(event)) == sizeof(event)) {
    cq.comp_events_.store(cq.comp_events() + 1, std::memory_order_relaxed);
    sent.Add(1);
  } else if ((held || errno == EAGAIN) && !cq.delayed_) {
    cq.delayed_ = true;
    delayed_.push_back(&cq);
    CountOwed();
    delayed.Add(1);
  }
}

// A few at a time: an app that does not read its channel must not take the lcore from others.
void CompletionEvents::Retry() {
  std::array<CompletionQueue*, kRetriesPerCall> owed;
  const size_t count = std::min(delayed_.size(), owed.size());
  std::copy_n(delayed_.begin(), count, owed.begin());
  delayed_.erase(delayed_.begin(), delayed_.begin() + static_cast<ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) {
    owed[i]->delayed_ = false;
    Send(*owed[i]);
  }
  for (size_t i = std::min(waiting_.size(), kRetriesPerCall); i > 0; --i) {
    AsyncEvents* events = waiting_.front();
    waiting_.erase(waiting_.begin());
    lost.Add(events->Retry());
    if (events->waiting()) waiting_.push_back(events);
  }
  CountOwed();
}

void CompletionEvents::CountOwed() { owed_ = delayed_.size() + waiting_.size(); }

void CompletionEvents::Register(AsyncEvents& events) {
  waiting_.reserve(sessions_ + 1);
  ++sessions_;
  if (events.waiting()) AwaitRoom(events);
}

void CompletionEvents::Unregister(AsyncEvents& events) {
  --sessions_;
  std::erase(waiting_, &events);
  CountOwed();
}

void CompletionEvents::AwaitRoom(AsyncEvents& events) {
  if (std::find(waiting_.begin(), waiting_.end(), &events) == waiting_.end()) {
    waiting_.push_back(&events);
  }
  CountOwed();
}

}  // namespace roci::dataplane
