// Random RC requests and their oracle.
#include "tests/sim/workload.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/scatter_lists.h"

namespace roci::sim {
namespace {
using roce::CompletionOpcode;
using roce::CompletionStatus;
using roce::WorkOpcode;

CompletionOpcode ExpectedOpcode(WorkOpcode opcode) {
  switch (opcode) {
    case WorkOpcode::kRdmaWrite:
    case WorkOpcode::kRdmaWriteWithImm:
      return CompletionOpcode::kRdmaWrite;
    case WorkOpcode::kRdmaRead:
      return CompletionOpcode::kRdmaRead;
    case WorkOpcode::kCompareSwap:
      return CompletionOpcode::kCompareSwap;
    case WorkOpcode::kFetchAdd:
      return CompletionOpcode::kFetchAdd;
    default:
      return CompletionOpcode::kSend;
  }
}

std::string At(const char* what, size_t index) {
  return std::string(what) + " " + std::to_string(index);
}

}  // namespace

Workload::Workload(const WorkloadShape& shape, SimHost* self, Arena* self_arena, SimHost* peer,
                   Arena* peer_arena)
    : shape_(shape), self_(self), self_arena_(self_arena), peer_(peer), peer_arena_(peer_arena) {
  const auto target = peer_arena->bytes(kTarget);
  target_oracle_.assign(target.begin(), target.end());
  const auto words = peer_arena->bytes(kAtomics);
  atomics_oracle_.resize(words.size() / 8);
  std::memcpy(atomics_oracle_.data(), words.data(), words.size());
}

uint32_t Workload::RandomLength(Random& random) const {
  switch (random.Below(6)) {
    case 0:
      return static_cast<uint32_t>(random.Below(5));
    case 1:
      return static_cast<uint32_t>(random.Below(129));
    case 2:
    case 3: {  // around a multiple of the path MTU
      const uint64_t base = random.Between(1, 4) * shape_.mtu_bytes;
      const uint64_t length = base - 4 + random.Below(9);
      return static_cast<uint32_t>(std::min<uint64_t>(length, shape_.max_message_bytes));
    }
    default:
      return static_cast<uint32_t>(random.Below(shape_.max_message_bytes + 1));
  }
}

void Workload::Post(Random& random) {
  while (!pending_recvs_.empty() && random.Chance(600)) {
    peer_->PostRecv(std::move(pending_recvs_.front()));
    pending_recvs_.pop_front();
  }
  while (posted_ < shape_.requests && posted_ - completed_ < shape_.outstanding &&
         random.Chance(700)) {
    if (!PostRequest(random)) break;
  }
}

bool Workload::PostRequest(Random& random) {
  PostedSend post;
  post.wqe.wr_id = random.Next();
  Expected expected{};
  bool ready = false;
  const uint64_t kind = random.Below(10);
  if (kind < 3) {
    ready = PrepareSend(random, post, expected);
  } else if (kind < 6) {
    ready = PrepareWrite(random, post, expected);
  } else if (kind < 8) {
    ready = PrepareRead(random, post, expected);
  } else {
    ready = PrepareAtomic(random, post, expected);
  }
  if (!ready) return false;
  const bool last =
      posted_ + 1 == shape_.requests || posted_ + 1 - completed_ == shape_.outstanding;
  post.wqe.signaled = last || random.Chance(700);
  post.wqe.fence |= random.Chance(150);
  expected.opcode = post.wqe.opcode;
  expected.signaled = post.wqe.signaled;
  expected.length = post.wqe.length;
  FinishSges(post.wqe, post.sges);
  expected_.push_back(std::move(expected));
  self_->PostSend(std::move(post));
  ++posted_;
  return true;
}

// Takes the message from the source region, which never changes, and returns its bytes.
std::vector<std::byte> Workload::AddSource(Random& random, PostedSend& post, uint32_t length) {
  std::vector<std::byte> bytes;
  const auto source = self_arena_->bytes(kSource);
  for (uint32_t piece : Split(random, length)) {
    const uint64_t at = random.Below(source.size() - piece + 1);
    AppendSge(post.sges, self_arena_->va(kSource) + at, piece, self_arena_->key(kSource));
    bytes.insert(bytes.end(), source.begin() + static_cast<ptrdiff_t>(at),
                 source.begin() + static_cast<ptrdiff_t>(at + piece));
  }
  post.wqe.length = length;
  if (length <= 512 && random.Chance(300)) {
    post.wqe.is_inline = true;
    post.inline_bytes = bytes;
    post.sges.clear();
  }
  return bytes;
}

// Forwards the result of an outstanding READ or atomic. The fence makes the request wait for it
// (IBTA vol 1, 10.8.3.3). The buffer stays in use until this request is complete.
std::vector<std::byte> Workload::AddForwarded(Random& random, PostedSend& post, size_t from,
                                              Expected& expected) {
  expected.landing = expected_[from].landing;
  expected.landing_bytes = expected_[from].landing_bytes;
  const auto size = static_cast<uint32_t>(expected.landing_bytes.size());
  const auto at = static_cast<uint32_t>(random.Below(size));
  post.wqe.length = static_cast<uint32_t>(random.Between(1, size - at));
  post.wqe.fence = true;
  AppendSplit(random, post.sges, self_arena_->va(kLanding) + expected.landing.begin + at,
              post.wqe.length, self_arena_->key(kLanding));
  const auto first = expected.landing_bytes.begin() + at;
  return {first, first + post.wqe.length};
}

// Chooses the bytes of a SEND or WRITE.
std::vector<std::byte> Workload::AddMessage(Random& random, PostedSend& post, Expected& expected) {
  if (completed_ < expected_.size() && random.Chance(300)) {
    const size_t from = completed_ + random.Below(expected_.size() - completed_);
    if (!expected_[from].landing_bytes.empty()) {
      return AddForwarded(random, post, from, expected);
    }
  }
  return AddSource(random, post, RandomLength(random));
}

bool Workload::QueueRecv(Random& random, const PostedSend& post,
                         const std::vector<std::byte>& bytes, uint32_t extra, bool is_write) {
  const uint64_t capacity = (is_write ? 0 : bytes.size()) + extra;
  const uint64_t region = peer_arena_->size(kReceive);
  // Buffers are reused cyclically. A buffer whose receive is still outstanding must not be reused.
  uint64_t at = next_recv_offset_;
  if (at + capacity > region) at = 0;
  const Range buffer{at, at + capacity};
  for (size_t i = seen_recvs_; i < expected_recvs_.size(); ++i) {
    if (expected_recvs_[i].buffer.Overlaps(buffer)) return false;
  }
  next_recv_offset_ = buffer.end;
  PostedRecv recv;
  recv.wqe.wr_id = 1000 + expected_recvs_.size();
  recv.wqe.capacity = capacity;
  AppendSplit(random, recv.sges, peer_arena_->va(kReceive) + at, static_cast<uint32_t>(capacity),
              peer_arena_->key(kReceive));
  FinishSges(recv.wqe, recv.sges);
  pending_recvs_.push_back(std::move(recv));
  std::optional<uint32_t> immediate;
  if (post.wqe.opcode != WorkOpcode::kSend) immediate = post.wqe.immediate;
  expected_recvs_.push_back(ExpectedRecv{bytes, buffer, immediate, is_write, post.wqe.solicited});
  return true;
}

bool Workload::PrepareSend(Random& random, PostedSend& post, Expected& expected) {
  const std::vector<std::byte> bytes = AddMessage(random, post, expected);
  post.wqe.opcode = WorkOpcode::kSend;
  if (random.Chance(400)) {
    post.wqe.opcode = WorkOpcode::kSendWithImm;
    post.wqe.immediate = static_cast<uint32_t>(random.Next());
  }
  post.wqe.solicited = random.Chance(300);
  return QueueRecv(random, post, bytes,
                   random.Chance(500) ? static_cast<uint32_t>(random.Below(64)) : 0, false);
}

bool Workload::PrepareWrite(Random& random, PostedSend& post, Expected& expected) {
  const std::vector<std::byte> bytes = AddMessage(random, post, expected);
  const uint64_t at = random.Below(target_oracle_.size() - bytes.size() + 1);
  if (ReadOutstandingOver(Range{at, at + bytes.size()})) return false;
  post.wqe.opcode = WorkOpcode::kRdmaWrite;
  post.wqe.solicited = random.Chance(300);
  if (random.Chance(300)) {
    post.wqe.opcode = WorkOpcode::kRdmaWriteWithImm;
    post.wqe.immediate = static_cast<uint32_t>(random.Next());
    if (!QueueRecv(random, post, bytes, static_cast<uint32_t>(random.Below(64)), true)) {
      return false;
    }
  }
  post.wqe.remote_va = peer_arena_->va(kTarget) + at;
  post.wqe.rkey = roce::Key(peer_arena_->key(kTarget));
  std::copy(bytes.begin(), bytes.end(), target_oracle_.begin() + static_cast<ptrdiff_t>(at));
  return true;
}

bool Workload::ReadOutstandingOver(const Range& target) const {
  for (size_t i = completed_; i < expected_.size(); ++i) {
    if (expected_[i].peer_read.Overlaps(target)) return true;
  }
  return false;
}

std::optional<Workload::Range> Workload::AllocateLanding(uint32_t length) const {
  uint64_t at = 0;
  for (size_t i = completed_; i < expected_.size(); ++i)
    at = std::max(at, expected_[i].landing.end);
  at = (at + 7) & ~uint64_t{7};
  if (at + length > self_arena_->size(kLanding)) return std::nullopt;
  return Range{at, at + length};
}

void Workload::AddLanding(Random& random, PostedSend& post, const Range& range) {
  post.wqe.length = static_cast<uint32_t>(range.end - range.begin);
  AppendSplit(random, post.sges, self_arena_->va(kLanding) + range.begin, post.wqe.length,
              self_arena_->key(kLanding));
}

bool Workload::PrepareRead(Random& random, PostedSend& post, Expected& expected) {
  const uint32_t length = RandomLength(random);
  const std::optional<Range> landing = AllocateLanding(length);
  if (!landing) return false;
  expected.landing = *landing;
  post.wqe.opcode = WorkOpcode::kRdmaRead;
  AddLanding(random, post, *landing);
  if (length <= peer_arena_->size(kReadOnly) && random.Chance(300)) {
    const uint64_t at = random.Below(peer_arena_->size(kReadOnly) - length + 1);
    const auto bytes = peer_arena_->bytes(kReadOnly).subspan(at, length);
    expected.landing_bytes.assign(bytes.begin(), bytes.end());
    post.wqe.remote_va = peer_arena_->va(kReadOnly) + at;
    post.wqe.rkey = roce::Key(peer_arena_->key(kReadOnly));
    return true;
  }
  const uint64_t at = random.Below(target_oracle_.size() - length + 1);
  expected.peer_read = Range{at, at + length};
  expected.landing_bytes.assign(target_oracle_.begin() + static_cast<ptrdiff_t>(at),
                                target_oracle_.begin() + static_cast<ptrdiff_t>(at + length));
  post.wqe.remote_va = peer_arena_->va(kTarget) + at;
  post.wqe.rkey = roce::Key(peer_arena_->key(kTarget));
  return true;
}

bool Workload::PrepareAtomic(Random& random, PostedSend& post, Expected& expected) {
  const std::optional<Range> landing = AllocateLanding(8);
  if (!landing) return false;
  expected.landing = *landing;
  AddLanding(random, post, *landing);
  const size_t word = random.Below(std::min<size_t>(atomics_oracle_.size(), 4));
  uint64_t& value = atomics_oracle_[word];
  expected.landing_bytes.resize(8);
  std::memcpy(expected.landing_bytes.data(), &value, 8);
  post.wqe.remote_va = peer_arena_->va(kAtomics) + word * 8;
  post.wqe.rkey = roce::Key(peer_arena_->key(kAtomics));
  if (random.Chance(500)) {
    post.wqe.opcode = WorkOpcode::kFetchAdd;
    post.wqe.atomic.compare_add = random.Next();
    value += post.wqe.atomic.compare_add;
    return true;
  }
  post.wqe.opcode = WorkOpcode::kCompareSwap;
  post.wqe.atomic.compare_add = random.Chance(600) ? value : random.Next();
  post.wqe.atomic.swap = random.Next();
  if (post.wqe.atomic.compare_add == value) value = post.wqe.atomic.swap;
  return true;
}

std::optional<std::string> Workload::Check() {
  for (; seen_completions_ < self_->send_completions().size(); ++seen_completions_) {
    const roce::Completion& completion = self_->send_completions()[seen_completions_];
    if (auto wrong = CheckSend(completion)) return wrong;
  }
  for (; seen_recvs_ < peer_->recv_completions().size(); ++seen_recvs_) {
    const roce::Completion& completion = peer_->recv_completions()[seen_recvs_];
    if (completion.status != CompletionStatus::kSuccess) continue;
    if (auto wrong = CheckRecv(completion)) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> Workload::CheckSend(const roce::Completion& completion) {
  if (first_error_) {
    return completion.status == CompletionStatus::kWorkRequestFlushed
               ? std::nullopt
               : std::optional(
                     At("completion after an error is not a flush: slot", completion.slot));
  }
  if (completion.status != CompletionStatus::kSuccess) {
    first_error_ = completion;
    return std::nullopt;
  }
  // Completions are in order: requests between the previous one and this one must be unsignalled.
  if (completion.slot < completed_ || completion.slot >= expected_.size()) {
    return At("send completion out of order or twice: slot", completion.slot);
  }
  for (size_t i = completed_; i < completion.slot; ++i) {
    if (expected_[i].signaled) return At("signalled request without completion: slot", i);
  }
  const Expected& expected = expected_[completion.slot];
  const PostedSend& post = self_->sends()[completion.slot];
  if (!completion.signaled) {  // the host gets it only to free the slot
    if (expected.signaled)
      return At("signalled request completed as unsignalled: slot", completion.slot);
  } else if (!expected.signaled) {
    return At("completion for an unsignalled request: slot", completion.slot);
  }
  if (completion.wr_id != post.wqe.wr_id) return At("wrong wr_id: slot", completion.slot);
  if (completion.opcode != ExpectedOpcode(expected.opcode))
    return At("wrong opcode: slot", completion.slot);
  const bool brings_bytes = completion.opcode != CompletionOpcode::kSend &&
                            completion.opcode != CompletionOpcode::kRdmaWrite;
  if (brings_bytes && completion.byte_length != expected.length)
    return At("wrong byte_len: request", completion.slot);
  return CheckDataUpTo(completion.slot);
}

std::optional<std::string> Workload::CheckDataUpTo(size_t last) {
  for (; completed_ <= last; ++completed_) {
    const Expected& expected = expected_[completed_];
    const auto landed =
        self_arena_->bytes(kLanding).subspan(expected.landing.begin, expected.landing_bytes.size());
    if (!std::equal(landed.begin(), landed.end(), expected.landing_bytes.begin())) {
      return At("wrong bytes returned by READ or atomic: slot", completed_);
    }
  }
  return std::nullopt;
}

std::optional<std::string> Workload::CheckRecv(const roce::Completion& completion) {
  if (seen_recvs_ >= expected_recvs_.size()) return std::string("receive completion for nothing");
  const ExpectedRecv& expected = expected_recvs_[seen_recvs_];
  if (completion.slot != seen_recvs_) return At("receive out of order: slot", completion.slot);
  if (completion.wr_id != 1000 + seen_recvs_)
    return At("wrong receive wr_id: slot", completion.slot);
  if (completion.byte_length != expected.bytes.size())
    return At("wrong byte_len: slot", completion.slot);
  if (completion.has_immediate != expected.immediate.has_value() ||
      (expected.immediate && completion.immediate != *expected.immediate)) {
    return At("wrong immediate: slot", completion.slot);
  }
  if (completion.solicited != expected.solicited)
    return At("solicited or not: slot", completion.slot);
  if (completion.opcode !=
      (expected.is_write ? CompletionOpcode::kRecvRdmaWithImm : CompletionOpcode::kRecv)) {
    return At("wrong receive opcode: slot", completion.slot);
  }
  if (expected.is_write) return std::nullopt;
  const auto got =
      peer_arena_->bytes(kReceive).subspan(expected.buffer.begin, expected.bytes.size());
  if (!std::equal(got.begin(), got.end(), expected.bytes.begin())) {
    return At("wrong bytes received: slot", completion.slot);
  }
  return std::nullopt;
}

bool Workload::Done() const {
  return posted_ == shape_.requests && pending_recvs_.empty() && completed_ == expected_.size() &&
         seen_recvs_ == expected_recvs_.size();
}

std::optional<std::string> Workload::CheckFinal() {
  const auto target = peer_arena_->bytes(kTarget);
  if (!std::equal(target.begin(), target.end(), target_oracle_.begin())) {
    const auto at = std::mismatch(target.begin(), target.end(), target_oracle_.begin()).first;
    return At("target differs from the oracle at byte", static_cast<size_t>(at - target.begin()));
  }
  const auto words = peer_arena_->bytes(kAtomics);
  if (std::memcmp(words.data(), atomics_oracle_.data(), words.size()) != 0) {
    return std::string("atomics were not applied exactly once and in order");
  }
  return std::nullopt;
}

}  // namespace roci::sim
