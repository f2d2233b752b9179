// The requester of a queue pair: takes work requests, segments them into request packets, matches
// acknowledgements and responses, recovers from loss (IBTA vol 1, 9.7.3 .. 9.7.5 and 9.9.2).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "memory/segment.h"
#include "memory/types.h"
#include "roce/counters.h"
#include "roce/drop_reason.h"
#include "roce/effects.h"
#include "roce/pacer.h"
#include "roce/packet.h"
#include "roce/qp_context.h"
#include "roce/reorder_window.h"
#include "roce/requester_checks.h"
#include "roce/work.h"

namespace roci::roce {

// One work request in flight. Hot fields first. The owner allocates a ring of them per QP (size a
// power of two); it need not be initialised.
struct SendRecord {
  Psn first_psn;
  uint32_t packets;   // number of PSNs; 0: a local operation, or it failed before it was sent
  uint32_t received;  // READ: responses placed so far
  CompletionStatus local_status;
  bool started;  // its first packet was sent; local operation: executed
  bool failed;   // completes with local_status when it is the oldest
  SendWqe wqe;
};
static_assert(sizeof(SendRecord) <= 128);

struct RequesterDebug {
  Psn oldest_unacknowledged, next_to_send, end_of_sent, next_new;
  uint32_t window = 0;   // PSNs that may be in flight now
  uint32_t records = 0;  // in flight or waiting
  uint32_t rd_atomic_outstanding = 0;
  uint8_t retries_left = 0;
  uint8_t rnr_retries_left = 0;
  bool rnr_waiting = false;
  bool recovering = false;
  bool credit_waiting = false;  // the next request is held back
  bool obeys_credits = false;   // the peer gives credits
  int32_t credits = 0;          // of the peer, less those in use
  TimeNs deadline = kNever;
};

template <class Host>
class Requester {
 public:
  // `records`: size a power of two, at least 1; outlives this object.
  Requester(QpContext& context, std::span<SendRecord> records);
  // See Qp::LendRecords. `record_count`: a power of two, at least 1.
  Requester(QpContext& context, uint32_t record_count);
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  void Reset();
  // RTR -> RTS.
  void Start(Psn sq_psn);
  // To RTS from SQD or SQE: waiting requests may be sent.
  void Resume() { more_work_ = true; }
  void NoteWork() { more_work_ = true; }

  bool NeedsRecords() const { return records_ == nullptr && more_work_; }
  bool HasIdleRecords() const { return head_ == tail_ && records_ != nullptr; }
  void LendRecords(SendRecord* records) { records_ = records; }
  SendRecord* TakeRecordsBack() { return std::exchange(records_, nullptr); }

  // A response packet (is_request false) of this QP's transport.
  PacketEffects HandleResponse(Host& host, TimeNs now, const Packet& packet);
  void HandleTimeout(Host& host, TimeNs now);
  // Early packets are kept.
  bool awaits_kept() const { return awaits_kept_; }
  // No kept packet is needed any more.
  void ForgetKept();
  // Whether nothing is missing before `end`, the ResponseEnd of a kept packet.
  bool IsDue(Psn end) const;
  bool Poll(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  // After a Poll that has built a packet, of this object or of the responder: describes the packet.
  Polled LastSent() const;
  // Request packet `psn`, polled before, could not be sent; its request fails with `status`.
  void HandleTransmitFault(Host& host, Psn psn, CompletionStatus status);
  // Part of the response to the READ or atomic in progress could not be placed.
  void HandlePlaceFault(Host& host);
  bool CanTransmit() const;
  // Requests of an unreliable queue pair that were sent and not yet reported.
  bool HasReport() const { return !context_.IsReliable() && head_ != cursor_; }
  void Report(Host& host) {
    if (HasReport()) ReportSent(host);
  }

  // Completes up to `budget` requests with "flushed", oldest first; true if none is left.
  bool Flush(Host& host, uint32_t budget);
  // Every started request is complete (for SQD, IBTA vol 1, 10.3.1.5).
  bool IsDrained() const { return head_ == tail_ || !At(head_).started; }

  // Number of fetched and incomplete requests: upper bound of the completions that one packet
  // causes.
  uint32_t unfinished() const { return tail_ - head_; }

  TimeNs deadline() const { return std::min(deadline_, pacer_.wake_time()); }
  // Sets the rate limit of the attributes (Pacer::Set).
  void SetRate(uint32_t kbps, uint32_t burst_bytes) { pacer_.Set(kbps, burst_bytes); }
  Psn next_psn() const { return next_psn_; }
  void Describe(RequesterDebug& out) const;

 private:
  SendRecord& At(uint32_t index) { return records_[index & mask_]; }
  const SendRecord& At(uint32_t index) const { return records_[index & mask_]; }
  uint32_t InFlight() const { return StepsForward(una_, send_psn_); }
  bool WindowOpen() const { return InFlight() < window_; }
  bool MayStart(const SendRecord& record) const;
  bool HasCredit(const SendRecord& record) const {
    return !obeys_credits_ || record.started || FreeCredits() > 0 ||
           !TakesReceive(record.wqe.opcode);
  }
  int32_t FreeCredits() const { return static_cast<int32_t>(receive_limit_ - receives_started_); }
  // Whether the next packet is a probe whose answer is missing.
  bool AwaitsProbe() const { return probing_ && InFlight() != 0; }
  void HoldBack(Host& host, TimeNs now);
  void AwaitCredit(TimeNs now);
  void StartProbe();
  bool TakeCredits(Aeth aeth);
  void StopHolding();
  void StopObeying();

  void ReportSent(Host& host);
  bool WantsAck(bool is_last);

  bool FetchNext(Host& host);
  static memory::MemoryStatus ExecuteLocal(Host& host, const SendWqe& wqe);
  bool PassLocal(Host& host, SendRecord& record);
  void CompleteLocals(Host& host);
  bool BuildPacket(Host& host, TimeNs now, SendRecord& record, TxPacket& out,
                   memory::SegmentList& payload);
  bool BuildSegmented(Host& host, const WorkInfo& info, SendRecord& record, TxPacket& out,
                      memory::SegmentList& payload);
  void BuildFlush(const WorkInfo& info, const SendRecord& record, TxPacket& out);
  uint32_t BuildRead(const WorkInfo& info, const SendRecord& record, TxPacket& out);
  bool BuildFrame(Host& host, SendRecord& record, TxPacket& out, memory::SegmentList& payload);
  void BuildAtomic(const WorkInfo& info, const SendRecord& record, TxPacket& out);
  void NoteSent(Host& host, TimeNs now, SendRecord& record, uint32_t psns);

  DropReason HandleAnswer(Host& host, TimeNs now, const Packet& packet);
  bool FindMissing(Psn& psn) const;
  bool MustKeep(Host& host, TimeNs now, const Packet& packet, PacketEffects& effects);
  EarlyAction ContinueKept(TimeNs now);
  void SetReorderDeadline(TimeNs now, Psn missing);
  void GiveUpMissing(Host& host, TimeNs now);
  DropReason HandleStale(const Packet& packet);
  DropReason HandleAcknowledge(Host& host, TimeNs now, Psn psn, Aeth aeth);
  DropReason HandleReadResponse(Host& host, TimeNs now, const Packet& packet);
  DropReason HandleConfirmation(Host& host, TimeNs now, const Packet& packet);
  DropReason HandleAtomicResponse(Host& host, TimeNs now, const Packet& packet);
  void FinishHead(Host& host, TimeNs now);
  DropReason HandleNak(Host& host, TimeNs now, Psn psn, uint8_t code);
  DropReason HandleRnrNak(Host& host, TimeNs now, Psn psn, uint8_t timer_code);
  bool AcknowledgeBefore(Host& host, TimeNs now, Psn end);
  bool HeadAwaits(WorkClass work_class, Psn psn) const;
  bool PlaceResponse(Host& host, const SendWqe& wqe, uint32_t offset,
                     std::span<const std::byte> bytes);
  void Progress(Host& host, TimeNs now, uint32_t packets);

  bool MayBeAsked(const Packet& packet) const;
  DropReason HandleSelectiveNak(Host& host, TimeNs now, const Packet& packet);
  void StartRepeating();
  void Repeat(Psn first, const MissingEth& missing);
  // Everything unacknowledged is about to be sent again.
  bool GoesBack() const { return !repeating_ && send_psn_ == una_; }
  void Reread(const MissingEth& missing);
  MissingEth OnlyAnswered(const MissingEth& missing) const;
  uint32_t PartToReread() const;
  void AskForResponses(Host& host, TimeNs now);
  void SetSelectiveDeadline(TimeNs now);
  void ProbeTail();
  bool TakeAnswerToProbe();
  void SeekRepeat();
  void MoveTo(Psn psn);
  void SkipAcknowledged();
  void NarrowOnce();

  bool TakeLoss(Host& host, QpCounter reason);
  DropReason ImplyNak(Host& host);
  void Retry(Host& host, QpCounter reason);
  void Rewind();
  void ArmTimer(TimeNs now);
  void LengthenTimer();
  void ShortenTimer(TimeNs now);
  void NarrowWindow();
  void SetWindow(uint32_t window);
  void WidenWindow(uint32_t packets);

  void CompleteHead(Host& host, CompletionStatus status);
  void Complete(Host& host, const SendRecord& record, CompletionStatus status);
  void FailRecord(Host& host, uint32_t index, CompletionStatus status);
  void FailHead(Host& host, CompletionStatus status);
  void FailAt(Host& host, Psn psn, CompletionStatus status);

  QpContext& context_;
  SendRecord* records_ = nullptr;  // null: not lent; then none is in use
  uint32_t mask_;
  uint32_t head_ = 0;    // oldest incomplete record; the three indices run freely
  uint32_t cursor_ = 0;  // record of the next packet
  uint32_t tail_ = 0;    // next free record
  Psn una_;              // oldest unacknowledged PSN; in a READ: response expected next
  Psn send_psn_;         // PSN of the next packet
  Psn sent_end_;         // end of the PSNs sent so far (READ: with its responses)
  Psn next_psn_;         // first PSN of the next new request
  uint16_t rd_atomic_outstanding_ = 0;
  uint16_t durable_outstanding_ = 0;  // FLUSHes for persistence among them
  uint32_t window_ = 1;               // most unacknowledged PSNs in flight; at most the limit
  uint32_t doubling_end_ = 0;         // slow start threshold: below it, + 1 per acknowledged PSN
  uint32_t widening_ = 0;             // above it: PSNs acknowledged since the window last grew
  uint32_t ack_every_ = 1;            // packets of a long message per requested ACK
  uint32_t since_ack_request_ = 0;
  uint8_t retries_left_ = 0;
  uint8_t rnr_retries_left_ = 0;
  bool more_work_ = false;    // the send queue may have more WQEs
  bool rnr_waiting_ = false;  // deadline_ is the end of the wait
  uint8_t timer_shift_ = 0;   // the timeout is the attribute's times 2^timer_shift_
  bool recovering_ = false;   // retransmitting; further NAKs are of the same loss until progress
  bool awaits_kept_ = false;  // early packets are kept
  bool repeating_ = false;    // send_psn_ is one of ReorderState::repeats or rereads
  bool probed_tail_ = false;  // while recovering_: only the last packet was sent again
  // End-to-end credits (9.7.7.2). The numbers run freely and count requests that take a receive.
  uint32_t receives_started_ = 0;
  uint32_t receives_done_ = 0;  // completed
  uint32_t receive_limit_ = 0;  // most that may be started
  uint32_t messages_done_ = 0;  // completed messages of all kinds
  bool obeys_credits_ = false;
  bool held_back_ = false;  // the request at cursor_ has no credit
  bool credit_waiting_ =
      false;              // nothing is in flight; deadline_ is the end of the wait for credits
  bool probing_ = false;  // a request without credit is sent, packet by packet
  bool expects_updates_ = true;  // the peer sends unsolicited credit updates
  TimeNs deadline_ = kNever;
  Pacer pacer_;
};

}  // namespace roci::roce
