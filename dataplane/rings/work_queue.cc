#include "dataplane/rings/work_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "dataplane/rings/receive_entry.h"
#include "roce/qp_attributes.h"
#include "roce/requester_checks.h"
#include "verbs_provider/abi/send_opcodes.h"

namespace roci::dataplane {
namespace {

using abi::SendFields;
using abi::SendOpcode;
using roce::CompletionStatus;
using roce::FetchResult;
using roce::WorkOpcode;

static_assert(abi::kQpRc == uint32_t{static_cast<uint8_t>(roce::QpType::kRc)} &&
              abi::kQpUc == uint32_t{static_cast<uint8_t>(roce::QpType::kUc)} &&
              abi::kQpUd == uint32_t{static_cast<uint8_t>(roce::QpType::kUd)} &&
              abi::kQpRawPacket == uint32_t{static_cast<uint8_t>(roce::QpType::kRawPacket)} &&
              abi::kQpXrcSend == uint32_t{static_cast<uint8_t>(roce::QpType::kXrcSend)});

// What gate 2 needs to know of an operation; see abi::SendOpcode.
struct OperationRule {
  WorkOpcode opcode = WorkOpcode::kSend;
  SendFields fields = SendFields::kNone;
  bool may_be_inline = false;
  uint8_t local_bytes = SendOpcode::kAnyLength;
};

// Indexed by roci_abi_send_opcode.
constexpr std::array<OperationRule, abi::kSendOpcodeCount> kOperations = [] {
  std::array<OperationRule, abi::kSendOpcodeCount> table{};
  for (size_t i = 0; i < table.size(); ++i) {
    const SendOpcode& row = abi::kSendOpcodes[i];
    table[i].fields = row.fields;
    table[i].may_be_inline = row.may_be_inline;
    table[i].local_bytes = row.local_bytes;
  }
  table[ROCI_ABI_WR_RDMA_WRITE].opcode = WorkOpcode::kRdmaWrite;
  table[ROCI_ABI_WR_RDMA_WRITE_WITH_IMM].opcode = WorkOpcode::kRdmaWriteWithImm;
  table[ROCI_ABI_WR_SEND].opcode = WorkOpcode::kSend;
  table[ROCI_ABI_WR_SEND_WITH_IMM].opcode = WorkOpcode::kSendWithImm;
  table[ROCI_ABI_WR_RDMA_READ].opcode = WorkOpcode::kRdmaRead;
  table[ROCI_ABI_WR_ATOMIC_CMP_AND_SWP].opcode = WorkOpcode::kCompareSwap;
  table[ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD].opcode = WorkOpcode::kFetchAdd;
  table[ROCI_ABI_WR_LOCAL_INV].opcode = WorkOpcode::kLocalInvalidate;
  table[ROCI_ABI_WR_BIND_MW].opcode = WorkOpcode::kBindMw;
  table[ROCI_ABI_WR_SEND_WITH_INV].opcode = WorkOpcode::kSendWithInvalidate;
  table[ROCI_ABI_WR_FLUSH].opcode = WorkOpcode::kFlush;
  table[ROCI_ABI_WR_ATOMIC_WRITE].opcode = WorkOpcode::kAtomicWrite;
  table[ROCI_ABI_WR_REG_LIST].opcode = WorkOpcode::kRegisterList;
  return table;
}();

// Whether each operation of the rings is one of the transport, and each of those has one. Without a
// WorkOpcode of its own, an operation would be a SEND, which more types have.
constexpr bool MatchesTransport() {
  uint32_t seen = 0;  // bit per WorkOpcode
  for (uint32_t i = 0; i < abi::kSendOpcodeCount; ++i) {
    if (abi::kSendOpcodes[i].qp_types == 0) continue;
    const uint32_t bit = 1u << static_cast<uint32_t>(kOperations[i].opcode);
    if ((seen & bit) != 0) return false;
    seen |= bit;
  }
  return seen == (1u << roce::kWorkOpcodeCount) - 1;
}
static_assert(MatchesTransport());
static_assert(ROCI_ABI_MAX_MESSAGE_BYTES == roce::kMaxMessageBytes);
static_assert(abi::kQpRc == static_cast<uint32_t>(roce::QpType::kRc) &&
              abi::kQpUc == static_cast<uint32_t>(roce::QpType::kUc) &&
              abi::kQpUd == static_cast<uint32_t>(roce::QpType::kUd) &&
              abi::kQpRawPacket == static_cast<uint32_t>(roce::QpType::kRawPacket) &&
              abi::kQpXrcSend == static_cast<uint32_t>(roce::QpType::kXrcSend));

roce::Sge ReadElement(const std::byte* at) {
  roci_abi_sge sge;
  CopyOnce(sge, at);
  return ToSge(sge);
}

struct SendEntry {
  roci_abi_send_wqe head;
  roci_abi_sge first;
};
static_assert(sizeof(SendEntry) == 80);

// The length is that of the range at the peer. The peer checks type and level, and refuses unknown
// values.
CompletionStatus TakeFlush(const roci_abi_send_wqe& head, roce::SendWqe& out) {
  constexpr uint32_t kMaxType = 0xF;  // limits of the fields in the FETH
  constexpr uint32_t kMaxLevel = 3;
  if (head.u.flush.length > roce::kMaxMessageBytes) return CompletionStatus::kLocalLengthError;
  if (head.u.flush.type > kMaxType || head.u.flush.level > kMaxLevel) {
    return CompletionStatus::kLocalQpOperationError;
  }
  out.length = static_cast<uint32_t>(head.u.flush.length);
  out.flush = {.placement_type = static_cast<uint8_t>(head.u.flush.type),
               .selectivity_level = static_cast<uint8_t>(head.u.flush.level)};
  return CompletionStatus::kSuccess;
}

CompletionStatus TakeFields(SendFields fields, const roci_abi_send_wqe& head, roce::SendWqe& out) {
  switch (fields) {
    case SendFields::kNone:
      break;
    case SendFields::kAtomic:
      out.atomic = {.compare_add = head.u.atomic.compare_add, .swap = head.u.atomic.swap};
      break;
    case SendFields::kInvalidate:
      out.invalidate_key = head.invalidate_key;
      break;
    case SendFields::kBind:
      out.bind = {.start = head.remote_va,
                  .length = head.u.bind.length,
                  .window = head.u.bind.window,
                  .access = head.u.bind.access,
                  .region_key = head.u.bind.region_key,
                  .new_key = head.u.bind.new_key};
      break;
    case SendFields::kList:
      out.list = {.iova = head.remote_va,
                  .runs = head.u.list.runs,
                  .list = head.u.list.list,
                  .access = head.u.list.access,
                  .new_key = head.u.list.new_key};
      break;
    case SendFields::kFlush:
      return TakeFlush(head, out);
  }
  return CompletionStatus::kSuccess;
}

// Copies the fields that need no check. The datagram's fields are a union, with a meaning on UD
// only.
void TakeHead(const roci_abi_send_wqe& head, roce::SendWqe& out) {
  out.remote_va = head.remote_va;
  out.rkey = roce::Key(head.rkey);
  out.immediate = head.immediate;
  out.is_inline = (head.flags & ROCI_ABI_SEND_INLINE) != 0;
  out.signaled = (head.flags & ROCI_ABI_SEND_SIGNALED) != 0;
  out.solicited = (head.flags & ROCI_ABI_SEND_SOLICITED) != 0;
  out.fence = (head.flags & ROCI_ABI_SEND_FENCE) != 0;
  out.fill_checksums = (head.flags & ROCI_ABI_SEND_IP_CHECKSUM) != 0;
  out.datagram = {.address_handle = head.u.ud.address_handle,
                  .remote_qpn = head.u.ud.remote_qpn,
                  .remote_qkey = head.u.ud.remote_qkey};
  out.remote_srq_number = head.remote_srqn;
}

uint64_t SumOfElements(const std::byte* elements, uint32_t count) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i)
    sum += ReadElement(elements + i * sizeof(roci_abi_sge)).length;
  return sum;
}

void FillPost(const std::byte* slot, bool is_send, uint8_t max_sge, TracePost& out) {
  if (!is_send) {
    roci_abi_recv_wqe head;
    CopyOnce(head, slot);
    out.opcode = TracePost::kReceive;
    out.wr_id = head.wr_id;
    out.num_sge = head.num_sge;
    out.length = SumOfElements(slot + sizeof(head), std::min<uint32_t>(head.num_sge, max_sge));
    return;
  }
  roci_abi_send_wqe head;
  CopyOnce(head, slot);
  const bool is_inline = (head.flags & ROCI_ABI_SEND_INLINE) != 0;
  out.wr_id = head.wr_id;
  out.opcode = head.opcode;
  out.flags = head.flags;
  out.rkey = head.rkey;
  out.remote_va = head.remote_va;
  out.immediate = head.immediate;
  out.num_sge = head.num_sge;
  out.length = is_inline
                   ? head.inline_length
                   : SumOfElements(slot + sizeof(head), std::min<uint32_t>(head.num_sge, max_sge));
}

}  // namespace

void WorkQueue::Reset() {
  next_ = 0;
  seen_ = 0;
  left_out_ = 0;
  broken_ = false;
  if (header_ == nullptr) return;
  restarts_ = std::atomic_ref(header_->restarts).load(std::memory_order_relaxed);
  std::atomic_ref(header_->producer).store(0, std::memory_order_relaxed);
  std::atomic_ref(header_->consumer).store(0, std::memory_order_relaxed);
}

bool WorkQueue::Refresh() {
  if (capacity_ == 0 || broken_) return false;
  const uint32_t producer = std::atomic_ref(header_->producer).load(std::memory_order_acquire);
  // The program leaves out indices only if all its published entries were taken. So a new value of
  // `restarts` takes effect with the next new value of `producer`, not before.
  if (producer == next_) {
    seen_ = producer;
    return false;
  }
  const uint32_t restarts = std::atomic_ref(header_->restarts).load(std::memory_order_relaxed);
  const bool starts_over = restarts != restarts_;
  if (starts_over) LeaveOut(restarts, producer);
  if (producer - next_ > capacity_) [[unlikely]] {
    broken_ = true;
    return false;
  }
  const uint32_t known = starts_over ? next_ : seen_;
  seen_ = producer;
  if (*trace_ != nullptr) [[unlikely]]
    TracePosts(known);
  return seen_ != next_;
}

// The entries are foreign and not checked yet: they are shown as the program wrote them.
void WorkQueue::TracePosts(uint32_t from) const {
  if (!(*trace_)->Wants(TraceKind::kPost, qpn_) || seen_ - from > capacity_) return;
  for (uint32_t i = from; i != seen_; ++i) {
    TraceRecord* const record = (*trace_)->Begin(TraceKind::kPost, qpn_);
    if (record == nullptr) continue;
    FillPost(Slot(i), is_send_, max_sge_, record->post);
    (*trace_)->Publish();
  }
}

// With wrong values of the program, its own entries are not taken; there is no other harm.
void WorkQueue::LeaveOut(uint32_t restarts, uint32_t producer) {
  restarts_ = restarts;
  const uint32_t start = std::atomic_ref(header_->start).load(std::memory_order_relaxed);
  const uint32_t steps = start - next_;
  if (steps > producer - next_) return;
  next_ = start;
  left_out_ += steps;
}

SendQueue::SendQueue(roci_abi_queue* header, std::byte* slots, uint32_t capacity, uint32_t stride,
                     uint8_t max_sge, uint32_t max_inline, roce::QpType type,
                     uint32_t lacking_opcodes)
    : WorkQueue(header, slots, capacity, stride, max_sge),
      max_inline_(max_inline),
      allowed_opcodes_(abi::SendOpcodesOf(static_cast<uint32_t>(type)).served() & ~lacking_opcodes),
      allowed_flags_(abi::SendFlagsOf(static_cast<uint32_t>(type))) {
  is_send_ = true;
  assert(capacity == 0 ||
         (stride >= 2 * kCacheLineBytes && stride >= sizeof(roci_abi_send_wqe) + max_inline &&
          stride >= sizeof(roci_abi_send_wqe) + max_sge * sizeof(roci_abi_sge)));
}

FetchResult SendQueue::Fetch(roce::SendWqe& out, CompletionStatus& bad_status) {
  if (next_ == seen_ && !Refresh()) return FetchResult::kEmpty;
  const std::byte* slot = Slot(next_);
  // Prefetches only a slot that the program has written.
  if (next_ + 1 != seen_) {
    __builtin_prefetch(Slot(next_ + 1));
    __builtin_prefetch(Slot(next_ + 1) + kCacheLineBytes);
  }
  SendEntry entry;
  CopyOnce(entry, slot);
  out.slot = next_++;
  out.wr_id = entry.head.wr_id;
  out.num_sge = 0;
  out.length = 0;
  const bool allowed =
      entry.head.opcode < kOperations.size() && (allowed_opcodes_ >> entry.head.opcode & 1) != 0;
  const OperationRule operation =
      kOperations[allowed ? entry.head.opcode : uint8_t{ROCI_ABI_WR_SEND}];
  out.opcode = operation.opcode;
  TakeHead(entry.head, out);
  if (!allowed || (entry.head.flags & ~allowed_flags_) != 0) [[unlikely]] {
    bad_status = CompletionStatus::kLocalQpOperationError;
    return FetchResult::kBad;
  }
  bad_status = out.is_inline ? TakeInline(entry.head, operation.may_be_inline, out)
                             : TakeElements(entry.head, entry.first, out);
  if (operation.local_bytes != SendOpcode::kAnyLength && out.length != operation.local_bytes &&
      bad_status == CompletionStatus::kSuccess) [[unlikely]] {
    bad_status = CompletionStatus::kLocalLengthError;
  }
  if (operation.fields != SendFields::kNone && bad_status == CompletionStatus::kSuccess)
      [[unlikely]] {
    bad_status = TakeFields(operation.fields, entry.head, out);
  }
  return bad_status == CompletionStatus::kSuccess ? FetchResult::kOk : FetchResult::kBad;
}

CompletionStatus SendQueue::TakeInline(const roci_abi_send_wqe& head, bool may_be_inline,
                                       roce::SendWqe& out) const {
  if (!may_be_inline || head.inline_length > max_inline_) [[unlikely]] {
    return CompletionStatus::kLocalLengthError;
  }
  out.length = head.inline_length;
  return CompletionStatus::kSuccess;
}

CompletionStatus SendQueue::TakeElements(const roci_abi_send_wqe& head, const roci_abi_sge& first,
                                         roce::SendWqe& out) const {
  if (head.num_sge > max_sge_) [[unlikely]]
    return CompletionStatus::kLocalQpOperationError;
  out.num_sge = head.num_sge;
  uint64_t total = 0;
  if (head.num_sge >= 1) [[likely]] {
    out.first_sge = ToSge(first);
    total = first.length;
  }
  for (uint32_t i = 1; i < head.num_sge; ++i) total += ReadSge(out, i).length;
  if (total > roce::kMaxMessageBytes) [[unlikely]] {
    return CompletionStatus::kLocalLengthError;
  }
  out.length = static_cast<uint32_t>(total);
  return CompletionStatus::kSuccess;
}

roce::Sge SendQueue::ReadSge(const roce::SendWqe& wqe, uint32_t i) const {
  return ReadElement(Slot(wqe.slot) + sizeof(roci_abi_send_wqe) + i * sizeof(roci_abi_sge));
}

FetchResult RecvQueue::Fetch(roce::RecvWqe& out, CompletionStatus& bad_status) {
  if (next_ == seen_ && !Refresh()) return FetchResult::kEmpty;
  const std::byte* slot = Slot(next_);
  __builtin_prefetch(Slot(next_ + 1));
  out.slot = next_++;
  return TakeReceive(slot, max_sge_, out, bad_status);
}

uint32_t RecvQueue::Recount() {
  Refresh();
  if (broken_) return 0;
  const uint32_t left = seen_ - next_;
  reread_at_ = left - left / 4;
  return left;
}

roce::Sge RecvQueue::ReadSge(const roce::RecvWqe& wqe, uint32_t i) const {
  return ReadReceiveSge(Slot(wqe.slot), i);
}

}  // namespace roci::dataplane
