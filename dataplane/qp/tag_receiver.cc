#include "dataplane/qp/tag_receiver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "dataplane/qp/queue_pair_host.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/tag_completion.h"
#include "dataplane/qp/verbs_context.h"

namespace roci::dataplane {

using memory::MemoryStatus;
using roce::CompletionOpcode;
using roce::CompletionStatus;
using roce::FetchResult;
using roce::TagOperation;

SendQueue TagReceiver::MakeSendQueue() {
  return SendQueue(&queue_, slots_.data(), kSendEntries, kStride, ROCI_ABI_MAX_TAG_SGE,
                   roce::kRendezvousBytes, roce::QpType::kRc);
}

// A message with malformed headers goes to the program as one without a tag.
TagReceiver::Kind TagReceiver::Classify(const roce::Packet* packet) {
  if (packet == nullptr || packet->info->operation != roce::Operation::kSend) return Kind::kPlain;
  const std::span<const std::byte> bytes = packet->payload;
  if (bytes.size() < roce::TagHeader::kBytes) return Kind::kNoTag;
  header_ = roce::TagHeader::Load(bytes.data());
  switch (static_cast<TagOperation>(header_.operation)) {
    case TagOperation::kEager:
      return Kind::kEager;
    case TagOperation::kRendezvous:
      if (bytes.size() < roce::kRendezvousBytes) return Kind::kNoTag;
      rendezvous_ = roce::RendezvousHeader::Load(bytes.data() + roce::TagHeader::kBytes);
      // The program handles a request that is too long.
      return bytes.size() <= ROCI_ABI_MAX_RNDV_HEADER &&
                     rendezvous_.length <= roce::kMaxMessageBytes
                 ? Kind::kRendezvous
                 : Kind::kUnexpected;
    default:
      return Kind::kNoTag;
  }
}

FetchResult TagReceiver::FetchRecv(QueuePairHost& host, const roce::Packet* packet,
                                   roce::RecvWqe& out, CompletionStatus& bad_status) {
  TagQueue& tags = *srq_.tags();
  // Buffers posted before the message arrived may match it.
  if (!tags.Serve(host.OnThisShard(), host.now_ns())) srq_.Fail(host.OnThisShard());
  const Kind kind = Classify(packet);
  if (kind != Kind::kEager && kind != Kind::kRendezvous) {
    return FetchUntagged(host, kind, out, bad_status);
  }
  if (kind == Kind::kRendezvous && !HasRoom()) return FetchResult::kEmpty;
  const TaggedBuffer* buffer = tags.list(host.OnThisShard()).Match(header_.tag);
  if (buffer == nullptr) return FetchUntagged(host, Kind::kUnexpected, out, bad_status);
  kind_ = kind;
  TakeBuffer(*buffer, packet->info->IsLast(), host, out);
  return FetchResult::kOk;
}

// Counts with the first packet: a buffer that the program posts before the last packet might be
// meant for this message.
FetchResult TagReceiver::FetchUntagged(QueuePairHost& host, Kind kind, roce::RecvWqe& out,
                                       CompletionStatus& bad_status) {
  const FetchResult result = srq_.Fetch(host.OnThisShard(), out, bad_status);
  if (result == FetchResult::kEmpty) return result;
  kind_ = result == FetchResult::kOk ? kind : Kind::kPlain;
  if (kind_ == Kind::kUnexpected) srq_.tags()->list(host.OnThisShard()).NoteUnexpected();
  return result;
}

void TagReceiver::TakeBuffer(const TaggedBuffer& buffer, bool is_last, QueuePairHost& host,
                             roce::RecvWqe& out) {
  slot_ = buffer.slot();
  reported_match_ = false;
  out.wr_id = buffer.wr_id;
  out.slot = slot_;
  out.num_sge = kTagged;
  if (kind_ == Kind::kEager) {
    out.capacity = roce::TagHeader::kBytes + buffer.capacity;
    if (is_last) return;
    reported_match_ = true;
    roci_abi_cqe entry{};
    entry.wr_id = buffer.wr_id;
    entry.flags = ROCI_ABI_CQE_TAG_MATCH;
    return WriteTagged(host, entry, /*solicited=*/false);
  }
  out.capacity = ROCI_ABI_MAX_RNDV_HEADER;
  if (buffer.capacity >= rendezvous_.length) return;
  kind_ = Kind::kTooShort;
  // The buffer is too short for the headers too: the message fails.
  if (buffer.capacity < roce::kRendezvousBytes) out.capacity = 0;
}

// A tagged buffer gets the data without the tag header; if it is too short for a rendezvous, it
// gets the headers. The rest of the message is dropped.
MemoryStatus TagReceiver::ScatterRecv(QueuePairHost& host, const roce::RecvWqe& wqe,
                                      uint32_t offset, uint32_t length, memory::SegmentList& out) {
  const uint32_t begin = kind_ == Kind::kEager        ? roce::TagHeader::kBytes
                         : kind_ == Kind::kRendezvous ? ~0u
                                                      : 0;
  const uint32_t end = kind_ == Kind::kTooShort ? roce::kRendezvousBytes : ~0u;
  while (length != 0) {
    const bool is_data = offset >= begin && offset < end;
    const uint32_t limit = is_data ? end : offset < begin ? begin : ~0u;
    const uint32_t part = std::min(length, limit - offset);
    MemoryStatus status = MemoryStatus::kOk;
    if (is_data) {
      status = host.ResolveTagged(srq_.tags()->list(host.OnThisShard()).At(wqe.slot),
                                  offset - begin, part, out);
    } else if (!out.Append(memory::Segment::Direct(sink_.data(), part, nullptr))) {
      status = MemoryStatus::kTooManySegments;
    }
    if (status != MemoryStatus::kOk) return status;
    offset += part;
    length -= part;
  }
  return MemoryStatus::kOk;
}

void TagReceiver::CompleteRecv(QueuePairHost& host, const roce::Completion& completion) {
  const Kind kind = std::exchange(kind_, Kind::kNone);
  roce::Completion reported = completion;
  switch (kind) {
    case Kind::kEager:
    case Kind::kRendezvous:
    case Kind::kTooShort:
      kind_ = kind;
      CompleteTagged(host, completion);
      kind_ = Kind::kNone;
      return;
    case Kind::kUnexpected:
      // The program counts only unexpected messages that complete.
      if (completion.status != CompletionStatus::kSuccess) {
        srq_.tags()->list(host.OnThisShard()).TakeBackUnexpected();
      }
      reported.opcode = CompletionOpcode::kTagRecv;
      break;
    case Kind::kNoTag:
      reported.opcode = CompletionOpcode::kTagNoTag;
      break;
    default:
      break;
  }
  host.CompleteUntagged(reported);
}

void TagReceiver::CompleteTagged(QueuePairHost& host, const roce::Completion& completion) {
  const bool is_good = completion.status == CompletionStatus::kSuccess;
  roci_abi_cqe entry{};
  entry.wr_id = completion.wr_id;
  entry.status = static_cast<uint8_t>(completion.status);
  entry.immediate = completion.immediate;
  entry.flags = static_cast<uint16_t>(reported_match_ ? 0 : ROCI_ABI_CQE_TAG_MATCH);
  if (completion.has_immediate) entry.flags |= ROCI_ABI_CQE_WITH_IMM;
  if (completion.has_invalidate) entry.flags |= ROCI_ABI_CQE_WITH_INV;
  if (kind_ == Kind::kEager && is_good) {
    entry.flags |= ROCI_ABI_CQE_TAG_DATA_VALID;
    entry.byte_length = completion.byte_length - roce::TagHeader::kBytes;
  } else if (kind_ == Kind::kTooShort && is_good) {
    entry.status = static_cast<uint8_t>(CompletionStatus::kTagRendezvousIncomplete);
    entry.byte_length = roce::kRendezvousBytes;
  } else if (kind_ == Kind::kRendezvous && is_good) {
    entry.byte_length = rendezvous_.length;
  }
  WriteTagged(host, entry, completion.solicited);
  if (kind_ == Kind::kRendezvous && is_good) BeginRendezvous(host);
  srq_.tags()->Release(host.OnThisShard(), slot_);
}

std::byte* TagReceiver::NextSlot() {
  return slots_.data() + size_t{queue_.producer & (kSendEntries - 1)} * kStride;
}

// The SGEs of the tagged buffer, cut to `length` bytes.
uint8_t TagReceiver::TrimElements(const QueuePairHost& host, uint32_t length,
                                  roci_abi_sge* out) const {
  const TaggedBuffer& buffer = srq_.tags()->list(host.OnThisShard()).At(slot_);
  uint8_t count = 0;
  for (uint32_t i = 0; i < buffer.num_sge && length != 0; ++i) {
    const roce::Sge& sge = buffer.sges[i];
    const uint32_t part = std::min(length, sge.length);
    out[count++] = {sge.va, part, sge.lkey.value()};
    length -= part;
  }
  return count;
}

// Posts the READ and the final note to the sender, which repeats its headers with another
// operation.
void TagReceiver::BeginRendezvous(QueuePairHost& host) {
  struct ReadEntry {
    roci_abi_send_wqe head;
    roci_abi_sge sges[ROCI_ABI_MAX_TAG_SGE];
  };
  static_assert(sizeof(ReadEntry) == kStride);
  ReadEntry read{};
  read.head.opcode = ROCI_ABI_WR_RDMA_READ;
  read.head.flags = ROCI_ABI_SEND_SIGNALED;
  read.head.remote_va = rendezvous_.va;
  read.head.rkey = rendezvous_.rkey;
  read.head.num_sge = TrimElements(host, rendezvous_.length, read.sges);
  std::memcpy(NextSlot(), &read, sizeof(read));
  ++queue_.producer;

  roci_abi_send_wqe note{};
  note.opcode = ROCI_ABI_WR_SEND;
  note.flags = ROCI_ABI_SEND_SIGNALED | ROCI_ABI_SEND_FENCE | ROCI_ABI_SEND_INLINE;
  note.inline_length = roce::kRendezvousBytes;
  std::byte* slot = NextSlot();
  std::memcpy(slot, &note, sizeof(note));
  roce::TagHeader header = header_;
  header.operation = static_cast<uint8_t>(TagOperation::kFinished);
  header.Store(slot + sizeof(note));
  rendezvous_.Store(slot + sizeof(note) + roce::TagHeader::kBytes);
  std::atomic_ref(queue_.producer).store(queue_.producer + 1, std::memory_order_release);

  wr_ids_[begun_++ % kMaxRendezvous] = srq_.tags()->list(host.OnThisShard()).At(slot_).wr_id;
  // The lcore collects doorbells after receiving, in this round.
  host.context().doorbells(host.OnThisShard()).Ring(host.handle());
}

void TagReceiver::CompleteSend(QueuePairHost& host, const roce::Completion& completion) {
  if (read_ != begun_ && completion.opcode == CompletionOpcode::kRdmaRead) {
    const uint64_t wr_id = wr_ids_[read_++ % kMaxRendezvous];
    return CompleteData(host, wr_id, completion.byte_length, completion.status);
  }
  if (noted_ != begun_) ++noted_;
  // The data has been read, but the sender is not told.
  if (completion.status != CompletionStatus::kSuccess &&
      completion.status != CompletionStatus::kWorkRequestFlushed) {
    host.RaiseEvent(roce::QpEvent::kFatal);
  }
}

void TagReceiver::CompleteData(QueuePairHost& host, uint64_t wr_id, uint32_t bytes,
                               CompletionStatus status) {
  roci_abi_cqe entry{};
  entry.wr_id = wr_id;
  entry.status = static_cast<uint8_t>(status);
  if (status == CompletionStatus::kSuccess) {
    entry.flags = ROCI_ABI_CQE_TAG_DATA_VALID;
    entry.byte_length = bytes;
  }
  WriteTagged(host, entry, /*solicited=*/false);
}

// Keeps its order behind earlier payloads and completions.
void TagReceiver::WriteTagged(QueuePairHost& host, roci_abi_cqe entry, bool solicited) {
  if (host.copy_state().fault().failed() && entry.status == 0) {
    FailTagCompletion(entry, host.copy_state().fault().later_status());
  }
  entry.opcode = static_cast<uint8_t>(CompletionOpcode::kTagRecv);
  entry.qpn = host.qpn().value();
  entry.qp_handle = srq_.handle();
  if ((entry.flags & ROCI_ABI_CQE_TAG_MATCH) != 0) {
    entry.tag_low = static_cast<uint32_t>(header_.tag);
    entry.tag_high = static_cast<uint32_t>(header_.tag >> 32);
    entry.tag_context = header_.context;
  }
  entry.flags |= ROCI_ABI_CQE_TAG;
  if (host.IsHeld() && host.HeldPlaces().DeferEntry(host, *srq_.cq(), entry, solicited)) return;
  srq_.cq()->WriteEntry(host.OnThisShard(), entry, solicited || entry.status != 0, host.now_ns());
}

bool TagReceiver::Abandon(QueuePairHost& host) {
  const Kind kind = std::exchange(kind_, Kind::kNone);
  const bool is_tagged =
      kind == Kind::kEager || kind == Kind::kRendezvous || kind == Kind::kTooShort;
  if (kind == Kind::kUnexpected) srq_.tags()->list(host.OnThisShard()).TakeBackUnexpected();
  if (is_tagged) {
    CompleteData(host, srq_.tags()->list(host.OnThisShard()).At(slot_).wr_id, 0,
                 CompletionStatus::kWorkRequestFlushed);
    srq_.tags()->Release(host.OnThisShard(), slot_);
  }
  while (read_ != begun_) {
    CompleteData(host, wr_ids_[read_++ % kMaxRendezvous], 0, CompletionStatus::kWorkRequestFlushed);
  }
  noted_ = begun_;
  return !is_tagged;
}

}  // namespace roci::dataplane
