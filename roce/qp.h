// A queue pair as a pure state machine: packets, work and time go in; packets, completions and
// events come out. It never reads a clock, never allocates, never touches a socket.
//
// To instantiate it for a host (roce/host.h), one .cc of the owner includes roce/qp_inl.h and says
//   template class roci::roce::Qp<MyHost>;
// Everybody else includes this file alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "memory/segment.h"
#include "roce/dcqcn.h"
#include "roce/drop_reason.h"
#include "roce/packet.h"
#include "roce/qp_attributes.h"
#include "roce/qp_context.h"
#include "roce/requester.h"
#include "roce/responder.h"
#include "roce/work.h"

namespace roci::roce {

// Work requests of a queue that are flushed per call. A deep queue is flushed in several, so that
// one QP's error does not hold up the others of its lcore.
inline constexpr uint32_t kFlushBudget = 128;

// What `roci show qp` tells beside the attributes.
struct QpDebug {
  RequesterDebug requester;
  ResponderDebug responder;
  bool flushing = false;
  uint32_t throttled_to_kbps = 0;  // by congestion control; 0: it is not
};

// What HandlePacket made of a packet.
struct PacketEffects {
  // kNone: the packet was consumed. Otherwise the reason why nothing (kOutOfSequence: nothing but a
  // NAK) came of it.
  DropReason reason = DropReason::kNone;
  // A congestion notification (CNP) for the source of this packet waits to be polled, and none did
  // before. A UD queue pair has no path of its own: the owner keeps that to the source.
  bool owes_cnp = false;
};

// One thread. All storage is the owner's and outlives the object; nothing is allocated. After every
// call that takes a Host the owner looks at HasTransmit() and NextTimeout() again.
template <class Host>
class Qp {
 public:
  // `records` and `resources`: sizes are powers of two, at least 1. The number of records bounds
  // the work requests in flight, and so the completions that one acknowledgement causes.
  // `congestion`, in its first state: connected types react to congestion; null: they do not.
  Qp(const QpConfig& config, std::span<SendRecord> records, std::span<ResponderResource> resources,
     Dcqcn* congestion = nullptr);
  // Without records: they are lent (LendRecords) while they are needed. `record_count` as the
  // number of records above.
  Qp(const QpConfig& config, uint32_t record_count, std::span<ResponderResource> resources,
     Dcqcn* congestion = nullptr);
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  // ibv_modify_qp. Anything but kOk changed nothing. With kAttrCurState the state must be
  // attributes.cur_state. To RESET: everything in flight is forgotten without completions, and the
  // owner empties its rings. To ERR: both queues are flushed; with many requests posted part of it
  // happens in HandleTimeout (NextTimeout() is then in the past).
  ModifyResult Modify(Host& host, TimeNs now, const QpAttributes& attributes, uint32_t mask);
  void Query(QpAttributes& out) const;

  // `packet` is addressed to this QP and P_Key and addresses fit it (the owner checks these).
  PacketEffects HandlePacket(Host& host, TimeNs now, const Packet& packet);

  // Raw packet queue pairs only: a whole Ethernet frame without FCS that a flow rule sends
  // here. Without a receive that it fits it is dropped.
  DropReason HandleFrame(Host& host, std::span<const std::byte> frame, const FrameInfo& info);

  // Either queue has new entries, or may have.
  void HandleWork(Host& host, TimeNs now);

  // NextTimeout() has passed. Harmless if called early.
  void HandleTimeout(Host& host, TimeNs now);

  // Gives the next packet to be sent, the responder's answers first. The segments in `payload` hold
  // exactly out.payload_length bytes and are good for as long as the host's translations are.
  // False: nothing to send now. What a packet does to the state is done when this returns: do not
  // poll for a packet that cannot be sent.
  bool PollTransmit(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);

  // For owners of many queue pairs, of which few have work in flight. Where NeedsRecords() the
  // owner lends `record_count` records before it calls PollTransmit; no other call uses them for
  // something new. Where HasIdleRecords() it may take them back.
  bool NeedsRecords() const { return requester_.NeedsRecords(); }
  bool HasIdleRecords() const { return requester_.HasIdleRecords(); }
  void LendRecords(SendRecord* records) { requester_.LendRecords(records); }
  // Null if there are none.
  SendRecord* TakeRecordsBack() { return requester_.TakeRecordsBack(); }

  // May say true once too often, never false while something can go.
  bool HasTransmit() const;
  // Most completions of requests that one packet may cause.
  uint32_t UnfinishedRequests() const { return requester_.unfinished(); }

  // `packet`, one of those polled last, was not sent: its payload could not be read, or there is
  // no way to its destination. Requester: the work request fails with `status`. Responder: NAK
  // remote operational error.
  void HandleTransmitFault(Host& host, TimeNs now, const TxPacket& packet,
                           CompletionStatus status = CompletionStatus::kLocalProtectionError);

  // The host, which puts placing off, could not place payloads of packets that HandlePacket took.
  // The QP goes to ERR; a peer that waits gets NAK remote operational error for the first request
  // of them, and no ACK for anything after it. The receive or READ that is under way with one
  // completes with a local protection error.
  void HandlePlaceFault(Host& host, const PlaceFault& fault);

  // Something that QpHost::StartDurable began, or had no room for, may be over: HasTransmit() says
  // more than before. Harmless at any time.
  void NoteDurable() { responder_.NoteDurable(); }
  bool waits_for_durable() const { return responder_.waits_for_durable(); }

  // When to call HandleTimeout; kNever. May move to an earlier or later time with every call.
  TimeNs NextTimeout() const {
    return flushing_ ? 0 : std::min(requester_.deadline(), throttle_end_);
  }

  // The receive that a message under way has taken and that a RESET would forget; null if none.
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
  static constexpr uint8_t kOwesCnp = 1;        // the peer is to hear of a mark
  static constexpr uint8_t kThrottled = 2;      // the peer heard of ours
  static constexpr uint8_t kThrottleWaits = 4;  // nothing with data may go before throttle_end_

  void SetPathMtu(PathMtu mtu);
  void ApplyAttributes(const QpAttributes& attributes, uint32_t mask);
  void EnterState(Host& host, QpState from, QpState to);
  void Clear();
  void EnterError(Host& host);
  void EnterSendError(Host& host);
  void ContinueFlush(Host& host);
  DropReason HandleTransportPacket(Host& host, TimeNs now, const Packet& packet);
  bool NoteMark(Host& host, TimeNs now, const Packet& packet);
  DropReason HandleCnp(Host& host, TimeNs now, const Packet& packet);
  bool PollCongested(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  bool PollThrottled(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload);
  void BuildCnp(Host& host, TxPacket& out);
  void EndThrottle();
  // What every entry point ends with: acts on a fault, reports a drained send queue.
  void Settle(Host& host);

  QpContext context_;
  Requester<Host> requester_;
  Responder<Host> responder_;
  bool communication_established_ = false;  // event raised, or too late for it
  bool drain_notify_ = false;               // SQD: event to be raised when drained
  bool flushing_ = false;                   // ERR: entries may be left in the rings
  bool last_wqe_raised_ = false;
  uint8_t congested_ = 0;  // nothing on the hot path looks further than here
  Qpn notified_qpn_;       // of the notification that is owed
  TimeNs throttle_end_ = kNever;
  Dcqcn* congestion_ = nullptr;
};

}  // namespace roci::roce
