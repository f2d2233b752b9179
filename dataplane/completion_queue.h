// One completion queue: writes entries to the ring that the app polls, notices overflow, sends
// completion events.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/counters.h"
#include "dataplane/shared_memory.h"
#include "roce/work.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

class CompletionQueue;
class Session;

// The CQs of one lcore that got entries in this burst or wait for room in their event pipe.
class CompletionEvents {
 public:
  // A CQ more, or less, on this lcore: storage grows here and never on the hot path.
  void Register();
  void Unregister(CompletionQueue& cq);
  void Touch(CompletionQueue& cq) { touched_.push_back(&cq); }
  bool empty() const { return touched_.empty(); }
  bool has_delayed() const { return !delayed_.empty(); }
  // Called once per burst, after its last entry was written.
  void Flush();
  // Tries again to write events for which there was no room.
  void Retry();

  Counter sent;
  Counter delayed;

 private:
  void Send(CompletionQueue& cq);
  size_t queues_ = 0;
  std::vector<CompletionQueue*> touched_;
  static constexpr size_t kRetriesPerCall = 16;
  std::vector<CompletionQueue*> delayed_;
};

// Who a completion belongs to.
struct CompletionOwner {
  uint32_t qpn;
  uint32_t qp_handle;
};

class CompletionQueue {
 public:
  static constexpr uint32_t kMaxEntries = 1u << 22;

  // As Session::CreateCompletionQueue.
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(Session& session,
                                                                 CompletionEvents& events,
                                                                 uint32_t entries,
                                                                 uint64_t user_handle, int channel);

  // The memory of a ring for at least `entries`, which are 1..kMaxEntries.
  static absl::StatusOr<SharedMemory> CreateRing(uint32_t entries);

  // ---- On the lcore
  // Appends one entry. On overflow it is lost, the CQ is dead from then on and the session gets
  // IBV_EVENT_CQ_ERR.
  void Write(const roce::Completion& completion, const CompletionOwner& owner, bool is_send,
             uint64_t now_ns) {
    if (producer_ - consumer_ >= capacity_ && !MakeRoom()) [[unlikely]]
      return;
    roci_abi_cqe& entry = entries_[producer_ & (capacity_ - 1)];
    Fill(entry, completion, owner, is_send, now_ns);
    std::atomic_ref(entry.generation)
        .store((producer_ >> capacity_shift_) + 1, std::memory_order_release);
    ++producer_;
    __builtin_prefetch(&entries_[producer_ & (capacity_ - 1)], 1);
    solicited_ |= completion.solicited || completion.status != roce::CompletionStatus::kSuccess;
    if (!touched_) {
      touched_ = true;
      events_.Touch(*this);
    }
  }
  // Continues in `ring`, into which the unconsumed entries are copied. False: they do not fit, or
  // `consumer` is impossible. `ring` then holds the old one.
  bool SwapRing(SharedMemory& ring, uint32_t capacity, uint32_t consumer);

  // ---- Any thread
  uint64_t user_handle() const { return user_handle_; }
  uint32_t capacity() const { return capacity_; }
  static constexpr uint32_t kEntriesOffset = 192;  // of the first entry in the memfd
  uint64_t memory_size() const { return memory_.size(); }
  uint32_t comp_events() const { return comp_events_.load(std::memory_order_relaxed); }
  uint32_t async_events() const { return async_events_.load(std::memory_order_relaxed); }
  bool overflowed() const { return overflowed_; }
  uint32_t users() const { return users_; }  // queue pairs; control thread only
  void AddUser() { ++users_; }
  void RemoveUser() { --users_; }
  Fd TakeFd() { return memory_.TakeFd(); }

 private:
  friend class CompletionEvents;
  CompletionQueue(Session& session, CompletionEvents& events, uint64_t user_handle, int channel)
      : events_(events), session_(session), user_handle_(user_handle), channel_(channel) {}
  void UseRing(uint32_t capacity);
  bool MakeRoom();
  static void Fill(roci_abi_cqe& entry, const roce::Completion& completion,
                   const CompletionOwner& owner, bool is_send, uint64_t now_ns);

  roci_abi_cq* header_ = nullptr;
  roci_abi_cqe* entries_ = nullptr;
  uint32_t producer_ = 0;
  uint32_t consumer_ = 0;  // the app's, as last read and believed
  uint32_t capacity_ = 0;
  uint32_t capacity_shift_ = 0;
  bool touched_ = false;    // in the list of this burst
  bool solicited_ = false;  // this burst has an entry that wakes a CQ armed for solicited ones
  bool delayed_ = false;    // an event waits for room in the pipe
  bool overflowed_ = false;
  CompletionEvents& events_;
  Session& session_;
  uint64_t user_handle_;
  int channel_;
  uint32_t users_ = 0;
  std::atomic<uint32_t> comp_events_{0};
  std::atomic<uint32_t> async_events_{0};
  SharedMemory memory_;
};

inline void CompletionQueue::Fill(roci_abi_cqe& entry, const roce::Completion& completion,
                                  const CompletionOwner& owner, bool is_send, uint64_t now_ns) {
  entry.wr_id = completion.wr_id;
  entry.status = static_cast<uint8_t>(completion.status);
  entry.opcode = static_cast<uint8_t>(completion.opcode);
  entry.flags = static_cast<uint16_t>((completion.has_grh ? ROCI_ABI_CQE_GRH : 0) |
                                      (completion.has_immediate ? ROCI_ABI_CQE_WITH_IMM : 0) |
                                      (completion.has_invalidate ? ROCI_ABI_CQE_WITH_INV : 0) |
                                      (is_send ? ROCI_ABI_CQE_SEND : 0));
  entry.vendor_error = 0;
  entry.byte_length = completion.byte_length;
  entry.immediate = completion.immediate;
  entry.qpn = owner.qpn;
  entry.qp_handle = owner.qp_handle;
  entry.source_qpn = completion.source_qpn.value();
  entry.slot = completion.slot;
  entry.timestamp_ns = now_ns;
  entry.sl = 0;
  entry.pkey_index = 0;
}

}  // namespace roci::dataplane
