// Work requests and completions of the transport: validated copies in the daemon's private memory.
#pragma once

#include <cstdint>

#include "roce/types.h"

namespace roci::roce {

// Absolute time in nanoseconds of the caller's monotonic clock. The transport reads no clock.
using TimeNs = uint64_t;
inline constexpr TimeNs kNever = ~TimeNs{0};
inline constexpr TimeNs kNsPerUs = 1000;
inline constexpr TimeNs kNsPerMs = 1'000'000;
inline constexpr TimeNs kNsPerSecond = 1'000'000'000;

// 4.096 us * 2^exponent: the form of timeouts in queue pairs and CM messages (IBTA vol 1,
// 9.7.6.1.3 and 12.7), with an exponent of 5 bits.
inline constexpr uint8_t kMaxTimeoutExponent = 31;
constexpr TimeNs TimeoutNs(uint8_t exponent) {
  return TimeNs{4096} << (exponent & kMaxTimeoutExponent);
}

// The time of a byte at 1 kbit/s.
inline constexpr uint64_t kNsPerByteOf1Kbps = 8'000'000;

// The longest message (IBTA vol 1, 9.4).
inline constexpr uint32_t kMaxMessageBytes = 1u << 31;

// Operations of a send queue. The values are internal; verbs_provider/abi has the values shared
// with programs.
enum class WorkOpcode : uint8_t {
  kSend,
  kSendWithImm,
  kSendWithInvalidate,
  kRdmaWrite,
  kRdmaWriteWithImm,
  kRdmaRead,
  kCompareSwap,
  kFetchAdd,
  kLocalInvalidate,
  kBindMw,
  kAtomicWrite,
  kFlush,
  kRegisterList,
};

// Values are those of enum ibv_wc_status (ibv_poll_cq(3)), so that they need no translation.
enum class CompletionStatus : uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalEecOperationError = 3,
  kLocalProtectionError = 4,
  kWorkRequestFlushed = 5,
  kMwBindError = 6,
  kBadResponse = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kRemoteAborted = 16,
  kFatal = 19,
  kResponseTimeout = 20,
  kGeneralError = 21,
  kTagError = 22,
  kTagRendezvousIncomplete = 23,
};

// Values are those of enum ibv_wc_opcode.
enum class CompletionOpcode : uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInvalidate = 6,
  kAtomicWrite = 9,
  kFlush = 8,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
  kTagAdd = 130,
  kTagDelete = 131,
  kTagSync = 132,
  kTagRecv = 133,
  kTagNoTag = 134,
  kRegisterList = 135,  // IBV_WC_DRIVER1
};

// One scatter/gather element. `va`: virtual address in the program, or offset in a zero-based
// region.
struct Sge {
  uint64_t va;
  uint32_t length;  // bytes
  Key lkey;
};

// ---- Fields of one kind of work request

// Controlled Q_Keys are reserved for privileged programs (IBTA vol 1, 10.2.5).
constexpr bool IsControlledQkey(uint32_t qkey) { return qkey >> 31 != 0; }

// UD.
struct DatagramWork {
  uint32_t address_handle;
  uint32_t remote_qpn;
  uint32_t remote_qkey;  // controlled: the queue pair's own is sent
};
// kCompareSwap, kFetchAdd. Host byte order.
struct AtomicWork {
  uint64_t compare_add;
  uint64_t swap;
};
// kBindMw: the window gives access to `length` bytes at `start` of the region.
struct BindWork {
  uint64_t start;
  uint64_t length;
  uint32_t window;  // number in the key table
  uint32_t access;  // memory::Access
  uint32_t region_key;
  uint32_t new_key;
};
// kRegisterList: the region begins at `iova` and has `runs` runs.
struct ListWork {
  uint64_t iova;
  uint64_t runs;
  uint32_t list;    // number in the key table
  uint32_t access;  // memory::Access
  uint32_t new_key;
};
// kFlush. As Feth (roce/headers.h).
struct FlushWork {
  uint8_t placement_type;
  uint8_t selectivity_level;
};

// Private copy of a send WQE's header. SGEs after the first and inline bytes stay in the program's
// ring; the host copies and checks them for each packet. `slot`: the free-running producer index at
// which the WQE was posted, which identifies the ring entry.
struct SendWqe {
  uint64_t wr_id;
  uint64_t remote_va;
  Sge first_sge;
  uint32_t slot;
  // Sum of all SGEs or inline bytes; FLUSH: of the peer's range. At most kMaxMessageBytes.
  uint32_t length;
  Key rkey;
  WorkOpcode opcode;
  uint8_t num_sge;
  bool is_inline : 1;
  bool signaled : 1;
  bool solicited : 1;
  bool fence : 1;
  bool fill_checksums : 1;     // raw packets: of IPv4, TCP and UDP
  uint32_t immediate;          // network byte order, as the program wrote it
  uint32_t remote_srq_number;  // XRC only
  // `opcode` selects the member of the same name; other opcodes have `datagram`, which only UD
  // reads.
  union {
    DatagramWork datagram;
    AtomicWork atomic;
    uint32_t invalidate_key;  // kSendWithInvalidate: the peer's R_Key; kLocalInvalidate: the key
    BindWork bind;
    ListWork list;
    FlushWork flush;
  };
};
static_assert(sizeof(SendWqe) <= 88, "more cache lines for each request in flight");

// Private copy of a receive WQE's header.
struct RecvWqe {
  uint64_t wr_id;
  uint64_t capacity;  // sum of all SGEs, bytes
  Sge first_sge;
  uint32_t slot;
  uint8_t num_sge;
};

// Result of the host's FetchSend and FetchRecv. kOk: a request that queue pairs of this type have,
// with lengths that its opcode allows. kBad: the WQE is malformed; the output has wr_id, slot and
// opcode (kSend if the WQE's opcode is not allowed), and the QP completes it with `bad_status` and
// goes to ERR.
enum class FetchResult : uint8_t { kEmpty, kOk, kBad };

// State of a write-back to durable storage (FLUSH for persistence).
enum class DurableState : uint8_t {
  kBusy,      // cannot start now
  kRunning,   // started
  kDone,      // the bytes are durable
  kFailed,    // the bytes may be lost
  kNoAccess,  // the key no longer gives access to them
};

// Metadata of a frame for a raw packet queue pair.
struct FrameInfo {
  uint32_t flow_tag = 0;  // of the matching rule
  bool checksums_right = false;
};

// Network fields in the completion of a datagram.
struct DatagramNetwork {
  // The kind of the network header (IBTA vol 1, A17.4.5.1). Adapters have these values in
  // ibv_wc.sl, where UCX reads them.
  static constexpr uint8_t kIpv6 = 0x9;
  static constexpr uint8_t kIpv4 = 0xA;
  uint8_t header;
  uint16_t vlan_tci;  // 0: no VLAN tag
};

struct Completion {
  uint64_t wr_id;
  uint32_t slot;         // ring entry that this completes (and, for sends, every older one)
  uint32_t byte_length;  // receive: bytes received; READ/atomic: bytes returned
  union {
    uint32_t immediate;        // with has_immediate: network byte order
    uint32_t invalidated_key;  // with has_invalidate: the R_Key
  };
  Qpn source_qpn;  // UD receive
  union {
    uint32_t flow_tag;         // raw packet receive: of the matching rule
    DatagramNetwork datagram;  // with has_grh
  };
  CompletionStatus status;
  CompletionOpcode opcode;
  bool has_immediate : 1;
  bool has_invalidate : 1;
  bool has_grh : 1;          // UD receive
  bool checksums_right : 1;  // raw packet receive: of IPv4 and of TCP or UDP in it
  bool solicited : 1;        // wakes a CQ armed for solicited completions only (errors always do)
  bool signaled : 1;         // false: no CQE requested; the host only notes the slot as done
};

// Affiliated asynchronous events of a QP (IBTA vol 1, 11.6.3).
enum class QpEvent : uint8_t {
  kCommunicationEstablished,
  kSendQueueDrained,
  kFatal,            // local work queue catastrophic error
  kInvalidRequest,   // invalid request local work queue error
  kAccessViolation,  // local access violation work queue error
  kLastWqeReached,
};

}  // namespace roci::roce
