// Counters of queue pairs. Dropped packets are counted by DropReason instead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace roci::roce {

// X(enumerator, name). A counter that hardware drivers have under ports/N/hw_counters in sysfs has
// the same name here, so that existing tools find it.
#define ROCI_QP_COUNTERS(X)                                       \
  /* Responder: new requests accepted */                          \
  X(kRxSendRequests, "rx_send_requests")                          \
  X(kRxWriteRequests, "rx_write_requests")                        \
  X(kRxReadRequests, "rx_read_requests")                          \
  X(kRxAtomicRequests, "rx_atomic_requests")                      \
  X(kRxFlushRequests, "rx_flush_requests")                        \
  /* Responder: sequence */                                       \
  X(kOutOfSequence, "out_of_sequence")                            \
  X(kKeptRequests, "kept_requests")                               \
  X(kDuplicateRequest, "duplicate_request")                       \
  /* Responder: answers sent */                                   \
  X(kAcksSent, "acks_sent")                                       \
  X(kSequenceNaksSent, "sequence_naks_sent")                      \
  X(kSelectiveNaksSent, "selective_naks_sent")                    \
  X(kRnrNaksSent, "rnr_naks_sent")                                \
  X(kErrorNaksSent, "error_naks_sent")                            \
  X(kReadResponsesSent, "read_responses_sent")                    \
  X(kAtomicResponsesSent, "atomic_responses_sent")                \
  /* Responder: faults */                                         \
  X(kOutOfBuffer, "out_of_buffer")                                \
  X(kRespInvalidRequest, "resp_remote_invalid_request")           \
  X(kRespRemoteAccessErrors, "resp_remote_access_errors")         \
  X(kRespOperationErrors, "resp_remote_operation_errors")         \
  X(kRespLocalLengthErrors, "resp_local_length_error")            \
  X(kRespCqeErrors, "resp_cqe_error")                             \
  X(kRespCqeFlushErrors, "resp_cqe_flush_error")                  \
  /* Requester: recovery */                                       \
  X(kPacketSequenceErrors, "packet_seq_err")                      \
  X(kSelectiveNaksReceived, "selective_naks_received")            \
  X(kImpliedNaks, "implied_nak_seq_err")                          \
  X(kKeptResponses, "kept_responses")                             \
  X(kAckTimeouts, "local_ack_timeout_err")                        \
  X(kRnrNaksReceived, "rnr_naks_received")                        \
  X(kRetransmittedPackets, "retransmitted_packets")               \
  X(kRetryExceeded, "retry_exceeded_err")                         \
  X(kRnrRetryExceeded, "rnr_nak_retry_err")                       \
  /* Requester: requests that waited for a receive of the peer */ \
  X(kCreditWaits, "credit_waits")                                 \
  /* Requester: faults */                                         \
  X(kReqRemoteInvalidRequest, "req_remote_invalid_request")       \
  X(kReqRemoteAccessErrors, "req_remote_access_errors")           \
  X(kReqRemoteOperationErrors, "req_remote_operation_errors")     \
  X(kReqBadResponses, "req_bad_responses")                        \
  X(kReqLocalErrors, "req_local_errors")                          \
  X(kReqCqeErrors, "req_cqe_error")                               \
  X(kReqCqeFlushErrors, "req_cqe_flush_error")                    \
  /* Congestion: received ECN marks, CNPs */                      \
  X(kMarkedPackets, "np_ecn_marked_roce_packets")                 \
  X(kCnpsSent, "np_cnp_sent")                                     \
  X(kCnpsHandled, "rp_cnp_handled")                               \
  X(kCnpsIgnored, "rp_cnp_ignored")

enum class QpCounter : uint8_t {
#define ROCI_QP_COUNTER_ENUMERATOR(id, name) id,
  ROCI_QP_COUNTERS(ROCI_QP_COUNTER_ENUMERATOR)
#undef ROCI_QP_COUNTER_ENUMERATOR
};

inline constexpr std::array kQpCounterNames = {
#define ROCI_QP_COUNTER_NAME(id, name) std::string_view(name),
    ROCI_QP_COUNTERS(ROCI_QP_COUNTER_NAME)
#undef ROCI_QP_COUNTER_NAME
};

inline constexpr size_t kQpCounterCount = kQpCounterNames.size();

// Lower case with underscores; valid as a file name in sysfs.
constexpr std::string_view QpCounterName(QpCounter counter) {
  return kQpCounterNames[static_cast<size_t>(counter)];
}

}  // namespace roci::roce
