// How copies by system calls hold up one queue pair: the copies that hold it, the frames that are
// parked for it, payloads that could not be written, the result of an atomic operation.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

#include "memory/copy.h"
#include "memory/intrusive_list.h"
#include "roce/qp_context.h"
#include "roce/work.h"

namespace roci::dataplane {

class AppCopies;
class QueuePair;

// The queue pair's place among those that are visited when copies are settled.
struct CopyWait {
  AppCopies* in = nullptr;  // the copies that it waits for; null: none
  memory::ListLink<QueuePair> link;
};

// Payloads of acknowledged packets that could not be written, or a completion to which an error was
// given.
class CopyFault {
 public:
  bool failed() const { return failed_; }
  const roce::PlaceFault& place_fault() const { return fault_; }

  // The payload at `place` of the batch failed; it is of packet `psn`, a request of the peer or a
  // response to a READ or atomic of our own. The fault names the first request: all payloads before
  // it have been placed.
  void Add(uint32_t place, roce::Psn psn, bool is_request) {
    place_ = failed_ ? std::min(place_, place) : place;
    failed_ = true;
    if (!is_request) {
      fault_.of_response = true;
      return;
    }
    if (!fault_.of_request || roce::Distance(psn, fault_.psn) > 0) fault_.psn = psn;
    fault_.of_request = true;
  }
  // A completion has reported an error that did not happen. Later ones are flushed.
  void Inject(bool is_send) {
    failed_ = true;
    is_injected_ = true;
    (is_send ? fault_.send_reported : fault_.recv_reported) = true;
  }
  // The batch is settled: everything that is still to come follows the fault.
  void EndBatch() { place_ = 0; }
  // Whether the fault comes before what follows `places` payloads of the batch.
  bool Precedes(uint32_t places) const { return failed_ && (is_injected_ || place_ < places); }
  // The status of work requests that complete after the fault.
  roce::CompletionStatus later_status() const {
    return is_injected_ ? roce::CompletionStatus::kWorkRequestFlushed
                        : roce::CompletionStatus::kLocalProtectionError;
  }

  // `completion` follows the fault: a success becomes an error, which reports the fault.
  void ReportIn(roce::Completion& completion, bool is_send) {
    if (completion.status != roce::CompletionStatus::kSuccess) return;
    completion.status = later_status();
    (is_send ? fault_.send_reported : fault_.recv_reported) = true;
  }

 private:
  bool failed_ = false;
  uint32_t place_ = 0;  // of the first failed payload
  bool is_injected_ = false;
  roce::PlaceFault fault_{};
};

class CopyState {
 public:
  // The copies that hold the queue pair until they are settled; null: it is not held. Completions,
  // events and frames of a held queue pair wait.
  AppCopies* held_by() const { return held_by_; }
  void Hold(AppCopies& copies) {
    assert(held_by_ == nullptr || held_by_ == &copies);
    held_by_ = &copies;
  }
  void Release() { held_by_ = nullptr; }

  // Where received frames for the queue pair are parked; null: there are none.
  AppCopies* parked_in() const { return parked_in_; }
  void Park(AppCopies& copies) { parked_in_ = &copies; }
  void Unpark() { parked_in_ = nullptr; }

  CopyFault& fault() { return fault_; }
  const CopyFault& fault() const { return fault_; }
  CopyFault TakeFault() { return std::exchange(fault_, CopyFault()); }

  // The result of an atomic operation, kept for the packet that asked for it.
  void KeepAtomic(const memory::AtomicResult& result) { atomic_ = result; }
  std::optional<memory::AtomicResult> TakeAtomic() { return std::exchange(atomic_, std::nullopt); }

 private:
  AppCopies* held_by_ = nullptr;
  AppCopies* parked_in_ = nullptr;
  CopyFault fault_;
  std::optional<memory::AtomicResult> atomic_;
};

}  // namespace roci::dataplane
