// Traces of queue pairs: lcores write records to bounded rings, the control thread takes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/types/trace_reader.h"
#include "dataplane/types/trace_record.h"
#include "roce/qp_attributes.h"

namespace roci::dataplane {

// The records of one lcore, in the order of what happened there. One producer, one consumer.
class TraceRing {
 public:
  // Records that wait for the control thread at most; further ones are lost, and a kLost record
  // behind those that wait has their number.
  static constexpr uint32_t kEntries = 1 << 14;
  // The last of them are for records on which a reader waits.
  static constexpr uint32_t kReserved = 512;

  // Touches all pages, so that no lcore waits for one.
  TraceRing() : records_(new TraceRecord[kEntries]()) {}

  // ---- On the lcore
  // The next record, to be filled in before Publish. Null: the ring is full.
  TraceRecord* Next(uint64_t now_ns, bool from_reserve = false);
  void Publish() { produced_.store(++producer_, std::memory_order_release); }

  // ---- Control thread
  // Appends the records that are older than `before_ns`.
  void Take(uint64_t before_ns, std::vector<TraceRecord>& out);

 private:
  bool HasRoom(uint32_t records);
  void PublishLost(uint64_t lost);
  // Appends a record of the losses behind which nothing was recorded. `next`: the record to be
  // taken next.
  void TakeLost(uint32_t next, uint64_t before_ns, std::vector<TraceRecord>& out);

  static constexpr size_t kLine = 64;
  const std::unique_ptr<TraceRecord[]> records_;
  alignas(kLine) uint32_t producer_ = 0;
  uint32_t consumed_seen_ = 0;
  alignas(kLine) std::atomic<uint32_t> produced_{0};
  std::atomic<uint64_t> lost_{0};     // records; the lcore counts
  std::atomic<uint64_t> lost_ns_{0};  // time of the last one
  std::atomic<uint64_t> told_{0};     // of the lost ones: those in kLost records. Both threads
  alignas(kLine) std::atomic<uint32_t> consumed_{0};
};

// The rings of a trace, one for each lcore. Devices that are traced together share them.
class TraceRings final : public TraceReader {
 public:
  explicit TraceRings(uint32_t lcores);

  TraceRing& of_lcore(uint32_t lcore) { return *rings_[lcore]; }
  uint32_t lcores() const { return static_cast<uint32_t>(rings_.size()); }
  void Take(uint64_t before_ns, std::vector<TraceRecord>& out) override;

 private:
  std::vector<std::unique_ptr<TraceRing>> rings_;
};

// A trace of one device on one lcore: decides what is recorded. On the lcore.
class LaneTrace {
 public:
  // `device`: TraceRecord::device. `settings` and `now_ns`, the lcore's time of the burst, outlive
  // it.
  LaneTrace(TraceRing& ring, const TraceSettings& settings, uint8_t device, uint8_t lcore)
      : ring_(ring), settings_(settings), device_(device), lcore_(lcore) {}
  void UseClock(const uint64_t* now_ns) { now_ns_ = now_ns; }

  // Whether records of this kind and queue pair are wanted.
  bool Wants(TraceKind kind, uint32_t qpn) const { return settings_.Wants(kind) && Names(qpn); }
  // Starts a record, which Publish ends. Null: it is not wanted, or lost.
  TraceRecord* Begin(TraceKind kind, uint32_t qpn) {
    return Wants(kind, qpn) ? Start(kind, qpn, /*from_reserve=*/false) : nullptr;
  }
  void Publish() { ring_.Publish(); }

  // `transport`: a packet from its BTH on, with padding of the frame behind it. `bytes`: of its
  // UDP payload.
  void AddPacket(uint32_t qpn, std::span<const std::byte> transport, uint32_t bytes, bool is_sent,
                 bool is_marked);
  void AddEvent(uint32_t qpn, uint32_t type);
  void AddState(uint32_t qpn, roce::QpState from, roce::QpState to);
  // The queue pair is destroyed: recorded in traces of all queue pairs as a change of state, in
  // traces of chosen ones always, since their readers wait for it.
  void AddEnd(uint32_t qpn, roce::QpState from);

 private:
  bool Names(uint32_t qpn) const;
  TraceRecord* Start(TraceKind kind, uint32_t qpn, bool from_reserve);

  TraceRing& ring_;
  const TraceSettings& settings_;
  const uint8_t device_;
  const uint8_t lcore_;
  const uint64_t* now_ns_ = nullptr;
};

// A trace of one device: a LaneTrace for each lcore. The control thread makes and destroys it while
// no lcore uses it.
struct DeviceTrace {
  // `rings` outlive it.
  DeviceTrace(TraceRings& rings, TraceSettings asked, uint8_t device);

  const TraceSettings settings;
  std::vector<std::unique_ptr<LaneTrace>> lanes;
};

}  // namespace roci::dataplane
