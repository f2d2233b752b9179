// One direction of a conversation: the packets of one sender to one queue pair. The responses of
// one flow answer the requests of its peer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "roce/opcode.h"
#include "roce/types.h"
#include "tools/judge/findings.h"
#include "tools/judge/series.h"

namespace roci::tools::judge {

struct FlowKey {
  roce::Gid src, dst;
  uint32_t dest_qpn = 0;
  uint32_t interface = 0;  // of the capture: one capture may hold both ends of a link
  uint16_t vlan = 0;
  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};

// A request packet. A READ is one, with the PSNs of all its responses.
struct SentRequest {
  roce::Psn psn;
  uint32_t span = 1;  // PSNs; 0: a READ while the path MTU is unknown
  roce::Opcode opcode{};
  bool ack_request = false;
  bool is_answered = false;   // a READ or atomic: all its responses were seen
  bool has_original = false;  // an atomic: `original` is its result
  uint32_t sends = 1;
  uint32_t length = 0;    // of the payload; of a READ, the length asked for
  uint64_t va = 0;        // of READs and atomics
  uint64_t operands = 0;  // of an atomic: a hash of them
  uint64_t original = 0;
  int64_t last_ns = 0;
  uint64_t frame = 0;
  // Numbers since the start of the flow, with this packet. They hold within an epoch.
  uint32_t messages = 0;
  uint32_t receives = 0;
  uint32_t epoch = 0;

  roce::Psn last() const { return psn + (span == 0 ? 0 : span - 1); }
};

struct PsnRange {
  roce::Psn begin, end;
};

// Request PSNs that the capture has not shown.
struct PsnGap {
  roce::Psn begin, end;
  FrameRef frame;
};

// Packets that are missing: no fault if the requester sends or asks for them again.
struct OpenLoss {
  Rule rule{};
  roce::Psn missing, seen;  // seen instead
  FrameRef frame;
};

struct FlowTotals {
  uint64_t packets = 0, payload_bytes = 0;
  uint64_t messages = 0;
  uint64_t missing = 0;             // PSNs that were skipped at first
  uint64_t repeated = 0;            // request packets sent again
  uint64_t duplicates = 0;          // copies in a row, as a network makes them
  uint64_t naks = 0, rnr_naks = 0;  // sequence NAKs, RNR NAKs
  uint64_t selective_naks = 0;      // not among the sequence NAKs
  uint64_t nak_recoveries = 0, timeouts = 0;
  uint64_t marked = 0, cnps = 0;
  uint64_t damaged = 0;    // bad ICRC
  TimeHistogram rtt;       // from an AckReq to its answer
  TimeHistogram recovery;  // from a NAK to the retransmission
  TimeHistogram timeout;   // from the last sign of progress to a retransmission without a NAK
  ByteSeries goodput;      // new payload
};

// The addresses and numbers that all packets of a flow share.
struct FlowConstants {
  bool known = false;
  uint16_t pkey = 0;
  uint16_t source_port = 0;
  bool has_ect = false;
};

// Requests of the flow, and how far they are answered.
struct RequestState {
  bool known = false;
  // PSNs from `first` up to `next` are known: at most half of them all, in which they are ordered.
  roce::Psn first;
  roce::Psn next;                // of the next new request
  std::deque<SentRequest> sent;  // by PSN; the answered ones too, as far as kept
  std::vector<PsnGap> gaps;
  std::optional<std::pair<roce::Psn, FrameRef>> odd;  // far from `next`: an error, or a new start

  // The message at `next`.
  bool in_step = false;  // its position is known
  bool in_message = false;
  roce::Operation operation{};
  roce::Psn message_begin;
  bool knows_bytes = false;
  uint64_t bytes = 0;
  uint32_t stated_bytes = 0;  // of a WRITE

  uint32_t messages = 0, receives = 0, epoch = 0;
  uint32_t awaiting = 0;  // kept READs and atomics without their responses

  // Progress, as the peer's responses show it.
  bool has_answer = false;
  roce::Psn unanswered;  // the oldest PSN without an answer; valid with has_answer
  bool has_progress = false;
  int64_t progress_ns = 0;

  // Retransmission.
  bool repeating = false;
  roce::Psn repeat_next;
  std::optional<OpenLoss> skip;        // a retransmission has left out packets
  std::optional<roce::Psn> late_next;  // after a packet that the network has overtaken
  std::optional<roce::Psn> last_psn;
  int64_t last_ns = 0;
  std::optional<std::pair<roce::Psn, int64_t>> nak;  // to be obeyed, and when it came
  std::vector<roce::Psn> wanted;  // selective NAKs ask for these, and they were not sent since
  bool selective = false;         // selective repeat is in use
  std::deque<PsnRange> rereads;   // responses of READs that were asked for alone
  std::optional<roce::Psn> filled_nak;  // its packet came, late or again: it may come once more
  std::optional<roce::Psn> rnr;
  int64_t rnr_until_ns = 0;
  bool implied_nak = false;  // a response is missing
  roce::Psn retried;
  uint32_t retries = 0;

  // End-to-end credits: receives that the responder has, counted like `receives`.
  bool has_credits = false;
  uint32_t credit_limit = 0, credit_epoch = 0;
  int64_t credits_since_ns = 0;  // the first ones

  uint32_t known_psns() const { return (next.value() - first.value()) & roce::kMask24; }
  bool Knows(roce::Psn psn) const { return roce::InWindow(psn, first, known_psns()); }

  std::optional<int64_t> ack_timeout_ns;  // from the CM
  std::optional<roce::Psn> starting_psn;  // from the CM; checked at the first request
};

// A judgement that depends on whether the requester has sent something.
struct OpenQuestion {
  Rule rule{};
  roce::Psn psn;
  FrameRef frame;
};

// Responses of the flow to the requests of its peer.
struct ResponseState {
  // The MSN minus the peer's count of messages is msn_base + x, least <= x <= most, in `epoch` of
  // the peer's requests: each response narrows it.
  bool has_msn = false;
  roce::Msn msn_base;
  int32_t msn_least = 0, msn_most = 0;
  uint32_t epoch = 0;
  std::optional<roce::Psn> last_ack;
  uint64_t repeats_at_ack = 0;                                // of the peer, at last_ack
  std::optional<std::pair<roce::Psn, roce::Msn>> newest_msn;  // the PSN and MSN of that response
  std::optional<roce::Psn> nak;                               // not followed by its request yet
  std::optional<roce::Psn> rnr;
  std::optional<roce::Psn> fault;  // a fatal NAK
  std::optional<OpenQuestion> open;
  std::vector<OpenLoss> losses;
  // The response that follows: of READs and atomics.
  bool reading = false;
  roce::Psn read_next;
};

// The shortest interval between CNPs. No clause limits it: adapters have a setting.
struct CnpIntervals {
  uint64_t count = 0;
  int64_t last_ns = 0;
  uint64_t least_ns = UINT64_MAX;

  void Note(int64_t now_ns) {
    if (count++ != 0 && now_ns >= last_ns) {
      least_ns = std::min(least_ns, static_cast<uint64_t>(now_ns - last_ns));
    }
    last_ns = now_ns;
  }
};

struct CongestionState {
  // CNPs of this flow's sender about its peer.
  CnpIntervals cnps;
  uint64_t marks_used = 0;  // marks of the peer up to the last CNP
  // Of a flow that is to slow down: intervals with CNPs, one after the other.
  bool is_notified = false;
  int64_t interval_start_ns = 0;
  uint64_t interval_bytes = 0, first_bytes = 0;
  uint32_t interval_cnps = 0, intervals = 0;
};

struct Flow {
  FlowKey key;
  Flow* peer = nullptr;
  roce::Transport transport{};
  bool may_lack_frames = false;  // the capture shows that it lacks some of this flow or its peer
  uint32_t mtu = 0;              // bytes; 0: unknown
  FlowConstants constants;
  RequestState requests;
  ResponseState responses;
  CongestionState congestion;
  FlowTotals totals;
  std::array<uint32_t, kRuleCount> said{};

  bool is_reliable() const { return transport != roce::Transport::kUc; }
  FlowName name() const { return {key.src, key.dst, key.dest_qpn}; }
};

}  // namespace roci::tools::judge
