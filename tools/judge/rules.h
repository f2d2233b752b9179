// The rules of RoCEv2 that `roci check` applies, one row each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace roci::tools::judge {

enum class Severity : uint8_t {
  kViolation,  // breaks a requirement: peers may drop the packet, or the connection may fail
  kDeviation,  // differs from the specification, and peers work with it
  kNote,       // unusual
};

// X(enumerator, name, clause, severity, text). Clauses are of IBTA vol 1 with its annexes.
#define ROCI_JUDGE_RULES(X)                                                                        \
  /* Constants of headers. */                                                                      \
  X(kIcrc, "icrc", "7.8.1, A17.4.4", kViolation, "the ICRC is wrong")                              \
  X(kIpHeader, "ip_header", "A17", kViolation, "the IP header is wrong")                           \
  X(kIpFragment, "ip_fragment", "A17", kViolation, "the packet is fragmented")                     \
  X(kIpOptions, "ip_options", "A17", kDeviation, "the IP header has options or extensions")        \
  X(kDontFragment, "dont_fragment", "A17", kDeviation, "IPv4 allows fragmentation")                \
  X(kHopLimit, "hop_limit", "A17", kViolation, "TTL or hop limit is 0")                            \
  X(kEcnBits, "ecn_bits", "A17.9", kDeviation, "congestion is marked on a flow without ECN")       \
  X(kUdpLength, "udp_length", "A17.4.3", kViolation, "the UDP length is not that of the packet")   \
  X(kUdpChecksum, "udp_checksum", "A17.4.3", kDeviation, "the UDP checksum is wrong")              \
  X(kSourcePort, "source_port", "A17.4.3", kDeviation, "the UDP source port changes")              \
  X(kSourcePortRange, "source_port_range", "A17.4.3", kNote, "UDP source port below 0xC000")       \
  X(kTransportVersion, "transport_version", "9.6.1", kViolation, "the transport version is not 0") \
  X(kOpcode, "opcode", "9.2.1", kViolation, "the opcode is reserved")                              \
  X(kHeaders, "headers", "9.2", kViolation, "the packet is shorter than its headers")              \
  X(kPadCount, "pad_count", "9.2", kViolation, "the pad count does not fit the length")            \
  X(kReservedBits, "reserved_bits", "9.2", kNote, "reserved bits are set")                         \
  X(kMigReq, "mig_req", "9.2", kDeviation, "MigReq is 0 without path migration")                   \
  X(kPkey, "pkey", "9.6.1", kViolation, "the P_Key is not that of the queue pair")                 \
  X(kSolicited, "solicited", "9.2.3", kDeviation,                                                  \
    "solicited event on a packet that completes no receive")                                       \
  X(kAckReqUnreliable, "ack_req_unreliable", "9.2", kNote, "AckReq on an unreliable transport")    \
  /* Requests. */                                                                                  \
  X(kOpcodeSequence, "opcode_sequence", "9.7.4.1", kViolation,                                     \
    "FIRST, MIDDLE, LAST or ONLY out of sequence")                                                 \
  X(kPayloadLength, "payload_length", "9.7.4.1", kViolation,                                       \
    "the payload does not fit the path MTU")                                                       \
  X(kWriteLength, "write_length", "9.4.3", kViolation, "a WRITE has another length than its RETH") \
  X(kMessageLength, "message_length", "9.7.2", kViolation, "a message longer than 2^31 bytes")     \
  X(kAtomicAddress, "atomic_address", "9.4.5", kViolation,                                         \
    "the address of an atomic is not a multiple of 8")                                             \
  X(kPsnGap, "psn_gap", "9.7.2", kViolation, "acknowledged packets are not in the capture")        \
  X(kPsnOrder, "psn_order", "9.7.2", kViolation, "a PSN far from its neighbours")                  \
  X(kStartingPsn, "starting_psn", "12.6", kViolation,                                              \
    "the first PSN is not that of the CM's message")                                               \
  X(kRepeatDiffers, "repeat_differs", "9.7.3", kViolation,                                         \
    "a repeated request differs from the original")                                                \
  X(kRepeatUnreliable, "repeat_unreliable", "9.8.2", kViolation,                                   \
    "a repeated PSN on an unreliable connection")                                                  \
  X(kRepeatAcknowledged, "repeat_acknowledged", "9.7.3", kNote,                                    \
    "an acknowledged request is sent again")                                                       \
  X(kRepeatSkips, "repeat_skips", "9.7.3", kViolation,                                             \
    "a retransmission does not begin with what is missing")                                        \
  X(kNotGoBackN, "not_go_back_n", "9.7.3", kDeviation,                                             \
    "a retransmission leaves out unacknowledged packets")                                          \
  X(kRepeatEarly, "repeat_early", "9.7.6.1.3", kViolation,                                         \
    "sent again without a NAK and before the time-out")                                            \
  X(kRetryCount, "retry_count", "9.9.2", kDeviation, "more than seven retries")                    \
  X(kNakIgnored, "nak_ignored", "9.7.5.2", kViolation,                                             \
    "a NAK is not followed by a retransmission")                                                   \
  X(kRnrTimer, "rnr_timer", "9.7.5.2.8", kViolation, "sent again before the RNR NAK's timer")      \
  X(kCredits, "credits", "9.7.7.2", kViolation, "a request without a credit")                      \
  X(kAckMissing, "ack_missing", "9.7.5", kDeviation, "a request with AckReq has no answer")        \
  /* Responses. */                                                                                 \
  X(kSyndrome, "syndrome", "9.7.5.2", kViolation, "the syndrome is reserved")                      \
  X(kAckUnsent, "ack_unsent", "9.7.5", kViolation,                                                 \
    "a response for a request that was not sent yet")                                              \
  X(kAckBackwards, "ack_backwards", "9.7.5", kViolation, "an acknowledgement goes backwards")      \
  X(kAckOvertakes, "ack_overtakes", "9.7.5", kViolation,                                           \
    "a response overtakes that of a READ or atomic")                                               \
  X(kAckAfterFault, "ack_after_fault", "9.9.3", kViolation, "a response after a fatal NAK")        \
  X(kNakWithoutGap, "nak_without_gap", "9.7.5.2", kViolation, "a sequence NAK without a gap")      \
  X(kSecondNak, "second_nak", "9.7.5.2", kViolation, "a second NAK for one gap")                   \
  X(kNakAcknowledged, "nak_acknowledged", "9.7.5.2", kViolation,                                   \
    "a NAK for an acknowledged request")                                                           \
  X(kNakAfterRnr, "nak_after_rnr", "9.7.5.2.8", kDeviation,                                        \
    "a sequence NAK for packets after an RNR NAK")                                                 \
  X(kMsn, "msn", "9.7.7.1", kViolation, "the MSN is not the number of messages")                   \
  X(kReadUnasked, "read_unasked", "9.7.5", kViolation, "a READ response without a READ")           \
  X(kReadGap, "read_gap", "9.7.5", kViolation, "READ responses are missing")                       \
  X(kReadRepeated, "read_repeated", "9.7.5", kViolation, "a READ response twice for one request")  \
  X(kReadPosition, "read_position", "9.7.5", kViolation,                                           \
    "FIRST, MIDDLE, LAST or ONLY at the wrong place of a READ")                                    \
  X(kReadLength, "read_length", "9.7.5", kViolation, "a READ response of the wrong length")        \
  X(kReadSyndrome, "read_syndrome", "9.7.5", kViolation,                                           \
    "a READ or atomic response that is no ACK")                                                    \
  X(kAtomicUnasked, "atomic_unasked", "9.7.5", kViolation, "an atomic response without an atomic") \
  X(kAtomicReplay, "atomic_replay", "9.7.5", kViolation, "a repeated atomic has another result")   \
  /* Congestion. */                                                                                \
  X(kCnpBits, "cnp_bits", "A17.9.3", kViolation, "a CNP without BECN, or with reserved bytes")     \
  X(kCnpUnmarked, "cnp_unmarked", "A17.9.3", kDeviation, "a CNP without a new mark")               \
  X(kCnpIgnored, "cnp_ignored", "A17.9.3", kDeviation, "the rate does not fall after CNPs")        \
  /* Connection manager. */                                                                        \
  X(kMadHeader, "mad_header", "13.4.2", kViolation, "the MAD's header is wrong")                   \
  X(kCmQkey, "cm_qkey", "10.2.5.1", kViolation, "a MAD with another Q_Key")                        \
  X(kCmSourceQp, "cm_source_qp", "13.4.2", kViolation, "a MAD that is not from queue pair 1")      \
  X(kCmOrder, "cm_order", "12.9.7", kViolation, "a CM response without a request")                 \
  X(kCmTransaction, "cm_transaction", "12.6", kViolation, "an answer with another transaction ID") \
  X(kCmIds, "cm_ids", "12.6", kViolation, "an answer with other communication IDs")                \
  X(kCmRetryDiffers, "cm_retry_differs", "12.9.8", kViolation, "a repeated CM message differs")    \
  X(kCmRetries, "cm_retries", "12.9.8", kViolation, "more retries than the REQ allows")            \
  X(kCmEarly, "cm_early", "12.9.8", kViolation, "a CM message is repeated before its time-out")

enum class Rule : uint8_t {
#define ROCI_JUDGE_ENUMERATOR(id, name, clause, severity, text) id,
  ROCI_JUDGE_RULES(ROCI_JUDGE_ENUMERATOR)
#undef ROCI_JUDGE_ENUMERATOR
};

struct RuleRow {
  const char* name;
  const char* clause;
  Severity severity;
  const char* text;
};

inline constexpr std::array kRules = {
#define ROCI_JUDGE_ROW(id, name, clause, severity, text) \
  RuleRow{name, clause, Severity::severity, text},
    ROCI_JUDGE_RULES(ROCI_JUDGE_ROW)
#undef ROCI_JUDGE_ROW
};
inline constexpr size_t kRuleCount = kRules.size();

constexpr const RuleRow& RowOf(Rule rule) { return kRules[static_cast<size_t>(rule)]; }
const char* SeverityName(Severity severity);

}  // namespace roci::tools::judge
