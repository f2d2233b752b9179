// A queue pair as a pure state machine: packets, work requests and time are inputs; packets,
// completions and events are outputs. It reads no clock, allocates nothing and uses no socket.
//
// To instantiate it for a host (roce/host.h), one .cc file of the owner includes roce/qp_inl.h and
// has the line
//   template class roci::roce::Qp<MyHost>;
// All other files include only this one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "memory/segment.h"
#include "roce/dcqcn.h"
#include "roce/drop_reason.h"
#include "roce/effects.h"
#include "roce/packet.h"
#include "roce/qp_attributes.h"
#include "roce/qp_context.h"
#include "roce/requester.h"
#include "roce/responder.h"
#include "roce/work.h"

namespace roci::roce {

// Work requests flushed per queue and call. A deep queue is flushed in several calls, so that an
// error of one QP does not delay the other QPs of the lcore.
inline constexpr uint32_t kFlushBudget = 128;
// Enough for the deepest queue.
inline constexpr uint32_t kFlushCalls = 256;

// State that `roci show qps` prints in addition to the attributes.
struct QpDebug {
  RequesterDebug requester;
  ResponderDebug responder;
  bool flushing = false;
  bool selective_repeat = false;   // what is missing is asked for alone
  uint32_t throttled_to_kbps = 0;  // by congestion control; 0: not throttled
};

// Not thread-safe: one thread makes all calls. The owner provides all storage, which outlives the
// object. After every call that takes a Host, or a burst of them, the owner sees to Upkeep(), and,
// unless the call returns it, checks HasTransmit().
template <class Host>
class Qp {
 public:
  // `records` and `resources`: sizes are powers of two, at least 1. The number of records limits
  // the work requests in flight, and so the completions that one acknowledgement causes.
  // `congestion`: in its initial state, for connected types; null: no congestion control.
  // `reorder`: in its initial state, for reliable types; null: no packet is kept.
  Qp(const QpConfig& config, std::span<SendRecord> records, std::span<ResponderResource> resources,
     Dcqcn* congestion = nullptr, ReorderState* reorder = nullptr);
  // Without records: the owner lends them (LendRecords) while they are needed. `record_count`: as
  // the number of records above.
  Qp(const QpConfig& config, uint32_t record_count, std::span<ResponderResource> resources,
     Dcqcn* congestion = nullptr, ReorderState* reorder = nullptr);
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  // ibv_modify_qp. Any result but kOk and kMustFlush: nothing changed. The values have passed
  // CheckAttributeValues(). With kAttrCurState, the current state must be attributes.cur_state. To
  // RESET: requests in flight are discarded without completions; the owner empties its rings. To
  // ERR: both queues are flushed; with many requests posted, HandleTimeout continues the flush
  // (NextTimeout() is then in the past). From SQE to RTS: all requests are flushed first.
  // kMustFlush: kFlushBudget of them were, and the state is still SQE; call again. After
  // kFlushCalls such calls the transition leaves requests of a program that keeps posting, and they
  // are sent.
  ModifyResult Modify(Host& host, const QpAttributes& attributes, uint32_t mask);
  void Query(QpAttributes& out) const;
  // The peer has agreed to repeat selectively (ECE). In RTR, and of RC with a ReorderState only.
  // RESET returns to what the limits say.
  void UseSelectiveRepeat();

  // `packet` is addressed to this QP. The owner has checked its P_Key and addresses.
  PacketEffects HandlePacket(Host& host, TimeNs now, const Packet& packet);

  // Whether a packet that was kept (EarlyAction::kKeep), with this DuePsn, may be offered again:
  // all before it have been handled.
  bool IsDue(bool is_request, Psn due) const;
  // Kept packets are offered in this order, requests and responses each.
  static Psn DuePsn(const Packet& packet) {
    return packet.info->is_request ? packet.psn : ResponseEnd(packet);
  }

  // Raw packet queue pairs only: a whole Ethernet frame without FCS that matched a flow rule of
  // this queue pair. It is dropped without a receive, or if it is longer than the next receive.
  DropReason HandleFrame(Host& host, std::span<const std::byte> frame, const FrameInfo& info);

  // Either queue may have new WQEs.
  Effects HandleWork(Host& host);

  // NextTimeout() has passed. Harmless if called early.
  Effects HandleTimeout(Host& host, TimeNs now);

  // Builds the next packet to send: ACKs, NAKs and atomic responses first, then READ responses and
  // the queue pair's own requests in turns by bytes. The segments in `payload` have exactly
  // out.payload_length bytes and are valid as long as the host's translations. The state changes as
  // if the packet were sent: poll only when it can be sent.
  Polled PollTransmit(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);

  // For owners of many queue pairs of which few have work in flight. If NeedsRecords(), the owner
  // lends `record_count` records before it calls PollTransmit; no other call takes new work
  // requests. If QpUpkeep::has_idle_records, the owner may take them back.
  bool NeedsRecords() const { return requester_.NeedsRecords(); }
  void LendRecords(SendRecord* records) { requester_.LendRecords(records); }
  // Null: none were lent.
  SendRecord* TakeRecordsBack() { return requester_.TakeRecordsBack(); }

  // False: PollTransmit has nothing to send. True: it may have.
  bool HasTransmit() const;
  // The same for its own requests, without responses to the peer.
  bool HasRequest() const;
  // PollTransmit has something to send that comes before all data: an ACK, NAK, atomic response or
  // congestion notification.
  bool HasAnswer() const;
  // XRC: the number of the shared receive queue from whose program's memory the next READ response
  // is; none: the next answer has no data.
  std::optional<uint32_t> AnswerQueue() const;
  // Upper bound of the request completions that one packet causes.
  uint32_t UnfinishedRequests() const { return requester_.unfinished(); }

  // `packet`, polled before, was not sent: its payload could not be read, or its destination is
  // unreachable. Requester: the work request fails with `status`. Responder: NAK remote operational
  // error.
  Effects HandleTransmitFault(Host& host, TimeNs now, const TxPacket& packet,
                              CompletionStatus status = CompletionStatus::kLocalProtectionError);

  // The host delays placing and could not place payloads of packets that HandlePacket accepted. The
  // QP goes to ERR. The first such request is answered with NAK remote operational error, later
  // requests with nothing. A receive or READ in progress with such a payload completes with a local
  // protection error.
  void HandlePlaceFault(Host& host, const PlaceFault& fault);

  // A write-back that QpHost::StartDurable started, or had no room for, may have ended. Valid at
  // any time.
  Effects NoteDurable();
  bool waits_for_durable() const { return responder_.waits_for_durable(); }

  // When to call HandleTimeout; kNever: not at all. Every call may change it.
  TimeNs NextTimeout() const {
    if (context_.reorder != nullptr) [[unlikely]]
      return NextReorderTimeout();
    return flushing_ ? 0 : std::min(requester_.deadline(), throttle_end_);
  }

  QpUpkeep Upkeep() const {
    return {.next_timeout = NextTimeout(),
            .awaits_receives = state() == QpState::kErr || responder_.awaits_receives(),
            .has_idle_records = requester_.HasIdleRecords(),
            .awaits_kept = responder_.awaits_kept() || requester_.awaits_kept()};
  }

  // The receive that a message in progress has taken and that a RESET would discard; null: none.
  const RecvWqe* held_receive() const { return responder_.held_receive(); }
  uint32_t receive_queue_number() const { return responder_.receive_queue_number(); }  // XRC: its
  // XRC: see Responder.
  void ForgetReceiveQueue(uint32_t number);

  QpState state() const { return context_.state(); }
  QpType type() const { return context_.config.type; }
  Qpn qpn() const { return context_.config.qpn; }
  const QpAttributes& attributes() const { return context_.attributes; }
  void Describe(TimeNs now, QpDebug& out) const;

 private:
  // Bits of congested_.
  static constexpr uint8_t kCnpPending = 1;     // poll it before everything else
  static constexpr uint8_t kThrottled = 2;      // the peer's CNPs have lowered the rate
  static constexpr uint8_t kThrottleWaits = 4;  // no packet with data before throttle_end_

  void Setup(const QpConfig& config, size_t resources, ReorderState* reorder);
  TimeNs NextReorderTimeout() const;
  void SetPathMtu(PathMtu mtu);
  void ApplyAttributes(const QpAttributes& attributes, uint32_t mask);
  bool MustFlush(Host& host);
  void ChangeState(Host& host, QpState to);
  void EnterState(Host& host, QpState from, QpState to);
  void Clear();
  bool CanRepeatSelectively() const;
  void EnterError(Host& host);
  void EnterSendError(Host& host);
  void ContinueFlush(Host& host);
  PacketEffects HandleTransportPacket(Host& host, TimeNs now, const Packet& packet);
  bool NoteMark(Host& host, TimeNs now, const Packet& packet);
  DropReason HandleCnp(Host& host, TimeNs now, const Packet& packet);
  bool PollSides(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  bool PollInTurn(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  Polled FinishPoll(Host& host, bool has_packet);
  Polled PollCongested(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  bool PollSlowed(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  bool PollThrottled(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  void BuildCnp(Host& host, TxPacket& out);
  void EndThrottle();
  // Ends every entry point: handles a pending fault, reports a drained send queue.
  void Settle(Host& host);

  QpContext context_;
  Requester<Host> requester_;
  Responder<Host> responder_;
  bool communication_established_ = false;  // event raised, or no longer due
  bool drain_notify_ = false;               // SQD: raise an event when drained
  bool flushing_ = false;                   // ERR, SQE: WQEs may be left in the rings
  bool last_wqe_raised_ = false;
  uint8_t congested_ = 0;     // 0: the hot path reads no other congestion state
  uint16_t flush_calls_ = 0;  // Modify() in SQE
  Qpn notified_qpn_;          // destination of the pending CNP
  // Bytes of READ responses sent beyond those of requests, while both have packets to send. Within
  // one packet of zero.
  int32_t response_lead_bytes_ = 0;
  TimeNs throttle_end_ = kNever;
  Dcqcn* congestion_ = nullptr;
};

}  // namespace roci::roce
