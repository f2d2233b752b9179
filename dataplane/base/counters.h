// Counters that one thread writes and any thread may read, and the plain structures that take a
// snapshot of them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "roce/counters.h"
#include "roce/drop_reason.h"

namespace roci::dataplane {

// One thread writes, by a plain load, add and store, without a locked instruction; any thread
// reads.
class Counter {
 public:
  void Add(uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// X(member, name): the counters of a device on each lcore, besides drops and QP counters. Bytes
// count whole Ethernet frames without FCS.
#define ROCI_DEVICE_COUNTERS(X)                                            \
  X(rx_packets, "rx_packets")                                              \
  X(rx_bytes, "rx_bytes")                                                  \
  X(tx_packets, "tx_packets")                                              \
  X(tx_bytes, "tx_bytes")                                                  \
  X(rx_roce_packets, "rx_roce_packets")                                    \
  X(tx_roce_packets, "tx_roce_packets")                                    \
  /* Frames that flow rules took */                                        \
  X(rx_flow_packets, "rx_flow_packets")                                    \
  /* Frames for the control thread, and those dropped at a full ring; */   \
  /* of these: ARP and neighbour discovery, and packets to QP 1 */         \
  X(rx_slow_path, "rx_slow_path")                                          \
  X(rx_slow_path_dropped, "rx_slow_path_dropped")                          \
  X(rx_neighbour_dropped, "rx_neighbour_dropped")                          \
  X(rx_mad_dropped, "rx_mad_dropped")                                      \
  /* Frames dropped after the port took nothing for a long time */         \
  X(tx_dropped, "tx_dropped")                                              \
  /* Frames longer than the MTU of the port's network device allows */     \
  X(tx_above_mtu, "tx_above_mtu")                                          \
  /* Frames while the link was down */                                     \
  X(tx_link_down, "tx_link_down")                                          \
  X(rx_link_down, "rx_link_down")                                          \
  /* Bursts of which the port took only a part, so that QPs had to wait */ \
  X(tx_blocked, "tx_blocked")                                              \
  /* Frames dropped at a full hand-off ring to another lcore */            \
  X(rx_hand_off_dropped, "rx_hand_off_dropped")                            \
  X(rx_scattered_dropped, "rx_scattered_dropped")                          \
  /* RoCE packets handled as CE-marked, as the receive ring was filled */  \
  X(rx_backlog_marked, "rx_backlog_marked")                                \
  /* Frames of queue pairs whose program's memory takes too long */        \
  X(rx_memory_dropped, "rx_memory_dropped")                                \
  /* No frame buffer was free: QPs had to wait */                          \
  X(no_frame_buffer, "no_frame_buffer")

// A device's counters on one lcore, which writes them.
struct LaneCounters {
#define ROCI_LANE_COUNTER(member, name) Counter member;
  ROCI_DEVICE_COUNTERS(ROCI_LANE_COUNTER)
#undef ROCI_LANE_COUNTER
  std::array<Counter, roce::kDropReasonCount> drops;  // by roce::DropReason
  std::array<Counter, roce::kQpCounterCount> qp;      // by roce::QpCounter

  void Drop(roce::DropReason reason) { drops[static_cast<size_t>(reason)].Add(1); }
};

// The sum over all lcores, read at about the same time.
struct DeviceSnapshot {
#define ROCI_SNAPSHOT_COUNTER(member, name) uint64_t member = 0;
  ROCI_DEVICE_COUNTERS(ROCI_SNAPSHOT_COUNTER)
#undef ROCI_SNAPSHOT_COUNTER
  std::array<uint64_t, roce::kDropReasonCount> drops{};
  std::array<uint64_t, roce::kQpCounterCount> qp{};

  void Add(const LaneCounters& lane) {
#define ROCI_SNAPSHOT_ADD(member, name) member += lane.member.value();
    ROCI_DEVICE_COUNTERS(ROCI_SNAPSHOT_ADD)
#undef ROCI_SNAPSHOT_ADD
    for (size_t i = 0; i < drops.size(); ++i) drops[i] += lane.drops[i].value();
    for (size_t i = 0; i < qp.size(); ++i) qp[i] += lane.qp[i].value();
  }
};

// Stages of an lcore's loop, timed only if LcoreOptions::profile is set.
#define ROCI_LCORE_STAGES(X)     \
  X(kMailbox, "mailbox")         \
  X(kReceive, "receive")         \
  X(kDoorbells, "doorbells")     \
  X(kWork, "work")               \
  X(kTransmit, "transmit")       \
  X(kCompletions, "completions") \
  X(kTimers, "timers")

enum class LcoreStage : uint8_t {
#define ROCI_LCORE_STAGE_ENUMERATOR(id, name) id,
  ROCI_LCORE_STAGES(ROCI_LCORE_STAGE_ENUMERATOR)
#undef ROCI_LCORE_STAGE_ENUMERATOR
};
inline constexpr std::array kLcoreStageNames = {
#define ROCI_LCORE_STAGE_NAME(id, name) name,
    ROCI_LCORE_STAGES(ROCI_LCORE_STAGE_NAME)
#undef ROCI_LCORE_STAGE_NAME
};
inline constexpr size_t kLcoreStageCount = kLcoreStageNames.size();

// The counters of an lcore since it started. Cycles are TSC cycles.
struct LcoreSnapshot {
  uint64_t loops = 0;
  uint64_t busy_loops = 0;  // found something to do
  uint64_t busy_cycles = 0;
  uint64_t idle_cycles = 0;  // awake with nothing to do
  uint64_t sleeps = 0;
  uint64_t wakes_by_doorbell = 0;
  uint64_t wakes_by_port = 0;  // by frames; see PortWaits
  uint64_t yields = 0;
  uint64_t rx_bursts = 0;
  uint64_t rx_handed_off = 0;  // received packets that another lcore took from a port
  uint64_t rx_packets = 0;
  uint64_t tx_packets = 0;
  uint64_t calls = 0;          // functions run for other threads
  uint64_t long_calls = 0;     // rounds in which they took more than a millisecond
  uint64_t bad_doorbells = 0;  // bits of handles that do not exist
  uint64_t comp_events = 0;
  uint64_t async_events = 0;
  uint64_t events_delayed = 0;  // the socket of a completion channel was full
  uint64_t events_slow = 0;     // to a socket that very many watch; see EventWriter
  uint64_t events_lost = 0;     // asynchronous events; see AsyncEvents
  uint64_t memory_faults = 0;   // copies from or to program memory that failed
  uint64_t memory_blocked = 0;  // users whose mapped memory has made it sleep; see MemoryWatch
  uint64_t timer_expiries = 0;
  uint64_t durable_syncs = 0;     // started for FLUSH for persistence
  uint64_t durable_failures = 0;  // failed durable_syncs
  uint64_t virtual_ns = 0;        // see VirtualTime; 0: the time is real
  uint64_t virtual_jumps = 0;     // of that time
  uint64_t virtual_guesses = 0;   // see ProgramWatch
  std::array<uint64_t, kLcoreStageCount> stage_cycles{};
};

}  // namespace roci::dataplane
