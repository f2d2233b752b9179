// The receiving half of a queue pair: validates requests, executes them once, answers (IBTA vol 1,
// 9.7.4, 9.7.5, 9.9.3). Answers are state, not packets: Poll builds them from the latest state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/segment.h"
#include "roce/counters.h"
#include "roce/drop_reason.h"
#include "roce/packet.h"
#include "roce/qp_context.h"
#include "roce/responder_checks.h"
#include "roce/work.h"

namespace roci::roce {

enum class AnswerKind : uint8_t {
  kRead,
  kAtomic,
  kConfirmation,  // of a FLUSH or ATOMIC WRITE: an empty READ response
  kDurable,       // the same, for a FLUSH whose bytes are not durable yet
};

// A READ or atomic of the peer, kept for its answer and for duplicates of it (the "responder
// resources" of IBTA vol 1, 9.7.4). The owner allocates a ring of them per QP (size a power of two)
// and needs not initialise it.
struct ResponderResource {
  uint64_t va;  // READ, FLUSH
  union {
    uint64_t original;    // atomic: the value found
    uint32_t srq_number;  // READ, FLUSH, XRC: whose protection domain is asked
  };
  Key rkey;
  uint32_t length;  // READ and, until it is durable, FLUSH, bytes
  Psn first_psn;
  uint32_t packets;  // PSNs taken
  uint32_t next;     // response to be sent next, 0 .. packets - 1
  uint32_t start;    // first response of this round: a retried READ begins in the middle
  Msn msn;
  AnswerKind kind;
  bool whole_region;  // FLUSH
  bool pending;       // answer not completely sent
  bool replayed;      // was answered completely once
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
  DropReason HandleRequest(Host& host, const Packet& packet);
  // A frame for a raw packet queue pair.
  DropReason HandleFrame(Host& host, std::span<const std::byte> frame, const FrameInfo& info);
  bool Poll(Host& host, TxPacket& out, memory::SegmentList& payload);
  // The payload of response packet `psn`, polled before, could not be read.
  void HandleTransmitFault(Host& host, Psn psn);
  bool CanTransmit() const {
    return (emit_ != end_ || nak_pending_ || ack_pending_) && !waits_for_durable_;
  }
  // What the answer at the head waits for may be over (QpHost::StartDurable).
  void NoteDurable() { waits_for_durable_ = false; }
  bool waits_for_durable() const { return waits_for_durable_; }
  // Whether the answer that comes first has data of a READ.
  bool NextHasData() const {
    return emit_ != end_ && At(emit_).kind == AnswerKind::kRead && At(emit_).length != 0 &&
           !NakPrecedes(At(emit_));
  }
  // There is one, and it has none.
  bool MayAnswerAtOnce() const { return CanTransmit() && !NextHasData(); }

  // See Qp::HandlePlaceFault. Nothing but the NAK is sent any more.
  void HandlePlaceFault(Host& host, const PlaceFault& fault);

  // Completes up to `budget` receives with "flushed"; true if none is left.
  bool Flush(Host& host, uint32_t budget);
  // The receive that the message under way has taken; null if none.
  const RecvWqe* held_receive() const { return has_receive_ ? &receive_ : nullptr; }
  // XRC: the number of the shared receive queue that it came from.
  uint32_t receive_queue_number() const { return srq_number_; }
  // XRC: that shared receive queue is about to go. What was taken from it is not completed, and the
  // rest of the message will find no queue.
  void ForgetReceiveQueue(uint32_t number);
  // Forgets what is to be answered (the app moved the QP to ERR).
  void DropAnswers();

  uint32_t resource_capacity() const { return mask_ + 1; }
  Psn expected_psn() const { return expected_; }
  void Describe(ResponderDebug& out) const;

 private:
  static constexpr uint32_t kNoSrq = ~0u;

  ResponderResource& At(uint32_t index) { return resources_[index & mask_]; }
  const ResponderResource& At(uint32_t index) const { return resources_[index & mask_]; }

  DropReason HandleReliable(Host& host, const Packet& packet);
  DropReason HandleXrc(Host& host, const Packet& packet);
  DropReason HandleUnreliable(Host& host, const Packet& packet);
  DropReason HandleDatagram(Host& host, const Packet& packet);
  DropReason Discard(Host& host, RequestFault fault);
  bool PlaceDatagram(Host& host, const Packet& packet);
  DropReason HandleGap(Host& host);
  void AskForExpected();
  bool MustFollowFlush(const OpcodeInfo& info) const;
  void LeaveGap();
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
  Psn AcknowledgedPsn() const;
  void FailAnswer(Host& host, Psn psn, RequestFault fault);
  void SetNak(Psn psn, uint8_t syndrome);
  void CountNak(Host& host);

  QpContext& context_;
  ResponderResource* resources_;
  uint32_t mask_;
  uint32_t oldest_ = 0;  // oldest resource kept; the three indices run freely
  uint32_t emit_ = 0;    // no resource before this one is pending; == end_: none at all
  uint32_t end_ = 0;
  Psn expected_;
  Msn msn_;
  MessageState message_;
  Psn nak_psn_;
  Psn ack_asked_psn_;  // of the request, new or not, for which an ACK is pending
  uint8_t nak_syndrome_ = 0;
  bool nak_pending_ = false;
  bool ack_pending_ = false;
  bool gap_reported_ = false;     // a NAK for expected_ was given; none again until it arrives
  bool durable_started_ = false;  // for the answer at the head
  bool waits_for_durable_ = false;
  bool discarding_ = false;       // UC: the rest of a damaged message is dropped
  bool has_receive_ = false;      // receive_ belongs to the message under way (or to its retry)
  uint32_t srq_number_ = kNoSrq;  // XRC: of the packet in sequence last seen
  RecvWqe receive_{};
};

}  // namespace roci::roce
