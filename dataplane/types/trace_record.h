// Filter of a trace, and its records: lcores write them, the daemon passes them on as they are,
// and `roci trace` prints them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "roce/types.h"

namespace roci::dataplane {

enum class TraceKind : uint8_t {
  kPost,        // the lcore has seen a work request that the program posted
  kPacket,      // sent or received by a queue pair
  kCompletion,  // an entry of a completion queue
  kTimer,       // a request is repeated because no acknowledgement came, or after an RNR NAK
  kEvent,       // an asynchronous event of the queue pair
  kState,       // the queue pair has changed its state
  kLost,        // records of the lcore were lost before this one
};
inline constexpr uint32_t kTraceKinds = 6;  // that can be chosen

// Immutable while lcores use it.
struct TraceSettings {
  static constexpr size_t kMaxQpns = 64;
  std::vector<roce::Qpn> qpns;               // empty: all of the device
  uint32_t kinds = (1u << kTraceKinds) - 1;  // bit i: TraceKind i

  bool Wants(TraceKind kind) const { return (kinds >> static_cast<uint32_t>(kind) & 1) != 0; }
};

// Goes from the daemon to `roci` of the same machine, in its byte order. A change of the layout
// changes kTraceVersion.
inline constexpr uint32_t kTraceVersion = 1;

struct TracePost {
  static constexpr uint8_t kReceive = 0xFF;
  uint64_t wr_id;
  uint64_t remote_va;
  uint64_t length;  // bytes of all SGEs, or inline
  uint32_t rkey;
  uint32_t immediate;  // network byte order, or the key to invalidate
  uint32_t num_sge;
  uint8_t opcode;  // roci_abi_send_opcode as the program wrote it, or kReceive
  uint8_t flags;   // roci_abi_send_flags
  uint16_t reserved;
};
struct TracePacket {
  static constexpr size_t kHeaderBytes = 44;    // the longest: XRC atomics
  std::array<std::byte, kHeaderBytes> headers;  // from the BTH on; zeros behind a shorter packet
  uint16_t bytes;                               // from the BTH to the ICRC, with both
  bool is_sent;
  bool is_marked;  // ECN: congestion experienced
};
struct TraceCompletion {
  uint64_t wr_id;
  uint32_t byte_length;  // of a receive, READ or atomic
  uint32_t immediate;    // network byte order, or the invalidated key
  uint32_t vendor_error;
  uint32_t source_qpn;
  uint8_t status;  // enum ibv_wc_status
  uint8_t opcode;  // enum ibv_wc_opcode
  bool is_send;
  bool has_immediate;
  bool has_invalidate;
  std::array<uint8_t, 19> reserved;
};
struct TraceTimer {
  uint8_t retry;  // this one, from 1; 0: none is left, and the request fails
  uint8_t most;   // retry_cnt or rnr_retry of the queue pair
  bool is_rnr;
  std::array<uint8_t, 45> reserved;
};
struct TraceEvent {
  uint32_t type;  // enum ibv_event_type
  std::array<uint32_t, 11> reserved;
};
struct TraceState {
  static constexpr uint8_t kDestroyed = 0xFF;
  uint8_t from, to;  // roce::QpState, or kDestroyed
  std::array<uint8_t, 46> reserved;
};
struct TraceLost {
  uint64_t records;
  std::array<uint64_t, 5> reserved;
};

struct TraceRecord {
  uint64_t time_ns;  // CLOCK_MONOTONIC, of the lcore's round
  uint32_t qpn;      // of the queue pair
  TraceKind kind;    // kLost has no queue pair, device and lcore
  uint8_t device;    // in the order of the request
  uint8_t lcore;
  uint8_t reserved;
  union {
    TracePost post;
    TracePacket packet;
    TraceCompletion completion;
    TraceTimer timer;
    TraceEvent event;
    TraceState state;
    TraceLost lost;
  };
};
static_assert(sizeof(TraceRecord) == 64 && offsetof(TraceRecord, post) == 16);
static_assert(sizeof(TracePost) <= 48 && sizeof(TracePacket) == 48 &&
              sizeof(TraceCompletion) == 48 && sizeof(TraceTimer) == 48 &&
              sizeof(TraceEvent) == 48 && sizeof(TraceState) == 48 && sizeof(TraceLost) == 48);

// The first bytes of the stream, before the records.
struct TraceStreamHeader {
  static constexpr uint64_t kMagic = 0x6563617274696372;  // "rcitrace"
  uint64_t magic;
  uint32_t version;
  uint32_t record_bytes;
  uint64_t start_ns;        // CLOCK_MONOTONIC
  uint64_t wall_offset_ns;  // CLOCK_REALTIME minus CLOCK_MONOTONIC
};
static_assert(sizeof(TraceStreamHeader) == 32);

}  // namespace roci::dataplane
