// The responder of a queue pair: validates requests, executes each once, answers (IBTA vol 1,
// 9.7.4, 9.7.5, 9.9.3). Pending answers are kept as state; Poll builds packets from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "memory/segment.h"
#include "roce/counters.h"
#include "roce/drop_reason.h"
#include "roce/effects.h"
#include "roce/packet.h"
#include "roce/qp_context.h"
#include "roce/reorder_window.h"
#include "roce/responder_checks.h"
#include "roce/work.h"

namespace roci::roce {

enum class AnswerKind : uint8_t {
  kRead,
  kAtomic,
  kConfirmation,  // of a FLUSH or ATOMIC WRITE: an empty READ response
  kDurable,       // of a FLUSH whose bytes are not durable yet; becomes kConfirmation
};

// A READ or atomic of the peer, kept for its answer and for its duplicates (the "responder
// resources" of IBTA vol 1, 9.7.4). The owner allocates a ring of them per QP (size a power of
// two); it need not be initialised.
struct ResponderResource {
  uint64_t va;  // READ, FLUSH
  union {
    uint64_t original;    // atomic: the value found
    uint32_t srq_number;  // READ and FLUSH of XRC: the queue whose protection domain applies
  };
  Key rkey;
  uint32_t length;  // READ and, until it is durable, FLUSH, bytes
  Psn first_psn;
  uint32_t packets;  // number of PSNs
  uint32_t next;     // response to be sent next, 0 .. packets - 1
  uint32_t start;    // first response of this attempt: a retried READ may begin in the middle
  Msn msn;
  AnswerKind kind;
  bool whole_region;  // FLUSH
  bool pending;       // answer not sent completely
  bool replayed;      // the answer was sent completely once
};
static_assert(sizeof(ResponderResource) <= 48);

struct ResponderDebug {
  Psn expected_psn;
  Msn msn;
  uint32_t resources_pending = 0;
  bool ack_pending = false;
  bool nak_pending = false;
  bool gap_reported = false;
  bool in_message = false;
  bool waits_for_durable = false;
  bool awaits_receives = false;
};

template <class Host>
class Responder {
 public:
  // `resources`: size a power of two, at least 1; outlives this object.
  Responder(QpContext& context, std::span<ResponderResource> resources);
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  void Reset();
  // INIT -> RTR.
  void Start(Psn rq_psn);

  // A request packet (is_request true) of this QP's transport.
  PacketEffects HandleRequest(Host& host, TimeNs now, const Packet& packet);
  // A frame for a raw packet queue pair.
  DropReason HandleFrame(Host& host, std::span<const std::byte> frame, const FrameInfo& info);
  bool Poll(Host& host, TxPacket& out, memory::SegmentList& payload);
  // The payload of response packet `psn`, polled before, could not be read.
  void HandleTransmitFault(Host& host, Psn psn);
  bool CanTransmit() const {
    return (emit_ != end_ || nak_pending_ || ack_pending_ || replaying_) && !waits_for_durable_;
  }
  // The write-back of the oldest answer may have ended (QpHost::StartDurable).
  void NoteDurable() { waits_for_durable_ = false; }
  bool waits_for_durable() const { return waits_for_durable_; }
  // The peer was told that no receive is posted. With the next one, NoteReceives is due.
  bool awaits_receives() const { return awaits_receives_; }
  // The program may have posted receives.
  void NoteReceives(Host& host);
  // Whether the next answer carries data of a READ.
  bool NextHasData() const {
    if (replaying_) [[unlikely]]
      return true;
    return emit_ != end_ && At(emit_).kind == AnswerKind::kRead && At(emit_).length != 0 &&
           !NakPrecedes(At(emit_));
  }
  // See Qp::AnswerQueue.
  std::optional<uint32_t> AnswerQueue() const {
    return NextHasData() ? std::optional<uint32_t>(At(emit_).srq_number) : std::nullopt;
  }
  // ReorderState::request_deadline may have passed.
  void HandleTimeout(TimeNs now);
  // Early packets are kept.
  bool awaits_kept() const { return awaits_kept_; }
  // No kept packet is needed any more.
  void ForgetKept();

  // Whether an answer is pending and carries no data.
  bool MayAnswerAtOnce() const { return CanTransmit() && !NextHasData(); }

  // See Qp::HandlePlaceFault. Only the NAK is sent afterwards.
  void HandlePlaceFault(Host& host, const PlaceFault& fault);

  // Completes up to `budget` receives with "flushed"; true if none is left.
  bool Flush(Host& host, uint32_t budget);
  // The receive of the message in progress; null: none.
  const RecvWqe* held_receive() const { return has_receive_ ? &receive_ : nullptr; }
  // XRC: the number of its shared receive queue.
  uint32_t receive_queue_number() const { return srq_number_; }
  // XRC: that shared receive queue is being destroyed. A receive taken from it is not completed;
  // the rest of the message fails with RequestFault::kReceiveQueue.
  void ForgetReceiveQueue(uint32_t number);
  // Discards pending answers (the program moved the QP to ERR).
  void DropAnswers();

  uint32_t resource_capacity() const { return mask_ + 1; }
  Psn expected_psn() const { return expected_; }
  void Describe(ResponderDebug& out) const;

 private:
  static constexpr uint32_t kNoSrq = ~0u;

  ResponderResource& At(uint32_t index) { return resources_[index & mask_]; }
  const ResponderResource& At(uint32_t index) const { return resources_[index & mask_]; }

  PacketEffects HandleReliable(Host& host, TimeNs now, const Packet& packet);
  PacketEffects HandleXrc(Host& host, TimeNs now, const Packet& packet);
  DropReason HandleUnreliable(Host& host, const Packet& packet);
  DropReason HandleDatagram(Host& host, const Packet& packet);
  DropReason Discard(Host& host, RequestFault fault);
  bool PlaceDatagram(Host& host, const Packet& packet);
  PacketEffects HandleGap(Host& host, TimeNs now, const Packet& packet);
  PacketEffects HandleEarly(Host& host, TimeNs now, const Packet& packet);
  EarlyAction ContinueKept(TimeNs now);
  void SetReorderDeadline(TimeNs now);
  void AskForExpected();
  void AskForMissing(TimeNs now);
  void NoteRepeated(TimeNs now);
  void ForgetPeer();
  bool AsksSelectively() const;
  bool MustReplay(const ResponderResource& resource, const Packet& packet, uint32_t skip) const;
  DropReason AddReplay(uint32_t index, uint32_t start, uint32_t end);
  bool BuildReplay(Host& host, TxPacket& out, memory::SegmentList& payload);
  bool IsNotReady() const;
  bool MustFollowFlush(const OpcodeInfo& info) const;
  EarlyAction LeaveGap(TimeNs now);
  DropReason HandleDuplicate(Host& host, const Packet& packet);
  DropReason ReplayRead(const Packet& packet);
  DropReason ReplayAtomic(const Packet& packet);
  DropReason ReplayConfirmation(const Packet& packet);
  void Rearm(ResponderResource& resource, uint32_t index, uint32_t next);

  RequestFault Execute(Host& host, const Packet& packet);
  RequestFault ExecuteSend(Host& host, const Packet& packet);
  RequestFault ExecuteWrite(Host& host, const Packet& packet);
  RequestFault ExecuteRead(Host& host, const Packet& packet);
  RequestFault ExecuteAtomic(Host& host, const Packet& packet);
  RequestFault ExecuteAtomicWrite(Host& host, const Packet& packet);
  RequestFault ExecuteFlush(Host& host, const Packet& packet);
  RequestFault CheckFlush(Host& host, const Packet& packet) const;
  RequestFault TakeReceive(Host& host, const Packet* packet);
  RequestFault PlaceReceived(Host& host, const Packet& packet);
  RequestFault PlaceWritten(Host& host, const Packet& packet);
  RequestFault FinishSend(Host& host, const Packet& packet);
  void FinishWrite(Host& host, const Packet& packet);
  void FinishMessage();
  void CompleteReceive(Host& host, const Packet& packet, CompletionOpcode opcode,
                       uint32_t byte_length);
  void FailReceive(Host& host, CompletionStatus status);
  DropReason Fault(Host& host, RequestFault fault);

  bool HasFreeResource() const;
  ResponderResource& AddResource(const Packet& packet, uint32_t length);
  bool FindResource(Psn psn, uint32_t& index) const;
  uint32_t NextPending(uint32_t index) const;

  bool NakPrecedes(const ResponderResource& resource) const;
  bool AckPrecedesNak() const;
  bool BuildResourceAnswer(Host& host, TxPacket& out, memory::SegmentList& payload);
  bool MakeDurable(Host& host);
  bool FinishDurable(Host& host, ResponderResource& resource, DurableState state);
  bool BuildReadResponse(Host& host, ResponderResource& resource, TxPacket& out,
                         memory::SegmentList& payload);
  void BuildAcknowledge(TxPacket& out, Psn psn, Aeth aeth) const;
  uint8_t GiveCredits(Host& host);
  Psn AcknowledgedPsn() const;
  void FailAnswer(Host& host, Psn psn, RequestFault fault);
  void SetNak(Psn psn, uint8_t syndrome);
  void CountNak(Host& host);

  QpContext& context_;
  ResponderResource* resources_;
  uint32_t mask_;
  uint32_t oldest_ = 0;  // oldest resource kept; the three indices run freely
  uint32_t emit_ = 0;    // oldest pending resource; == end_: none
  uint32_t end_ = 0;
  Psn expected_;
  Msn msn_;
  MessageState message_;
  Psn nak_psn_;
  Psn ack_asked_psn_;  // of the request (new or duplicate) for which an ACK is pending
  uint8_t nak_syndrome_ = 0;
  bool nak_pending_ = false;
  bool nak_is_selective_ = false;
  bool replaying_ = false;  // ReorderState::replays is not empty
  bool ack_pending_ = false;
  bool gap_reported_ = false;     // a NAK for expected_ was sent; the next one after it arrives
  bool durable_started_ = false;  // for the oldest answer
  bool waits_for_durable_ = false;
  bool awaits_receives_ = false;
  bool awaits_kept_ = false;      // early packets are kept
  bool acks_kept_ = false;        // an ACK is due when they are executed
  bool all_kept_ = false;         // with gap_reported_: no packet behind the gap was dropped
  bool discarding_ = false;       // UC: the rest of a damaged message is dropped
  bool has_receive_ = false;      // receive_ belongs to the message in progress (or to its retry)
  uint32_t srq_number_ = kNoSrq;  // XRC: of the last packet in sequence
  RecvWqe receive_{};
};

}  // namespace roci::roce
