// The QpHost of one simulated queue pair: a program's queues, memory and completions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "memory/copy.h"
#include "roce/host.h"
#include "roce/work.h"
#include "tests/sim/arena.h"
#include "tests/sim/shared_queues.h"

namespace roci::sim {

// A posted request as the program wrote it.
struct PostedSend {
  roce::SendWqe wqe{};
  std::vector<roce::Sge> sges;
  std::vector<std::byte> inline_bytes;
};
class SimHost {
 public:
  SimHost(Arena* arena, uint32_t qpn) : arena_(arena), context_{Arena::kPd, qpn} {}

  // The program's side. Slots are filled in here.
  void PostSend(PostedSend post);
  void PostRecv(PostedRecv post);
  // Receives come from queue `number` of these, or, for XRC, from the one that each request names.
  void UseSharedQueues(SharedQueues* queues, uint32_t number) {
    shared_ = queues;
    selected_ = number;
  }
  // `choose` returns the receive for the message that begins with this packet; null: there is none.
  using Choose = std::function<const PostedRecv*(const roce::Packet&)>;
  void ChooseReceives(Choose choose) { choose_ = std::move(choose); }
  // The shared queue of each completion in recv_completions(), by number.
  const std::vector<uint32_t>& completed_queues() const { return completed_queues_; }
  const std::vector<PostedSend>& sends() const { return sends_; }
  const std::vector<PostedRecv>& recvs() const { return recvs_; }
  const std::vector<roce::Completion>& send_completions() const { return send_completions_; }
  const std::vector<roce::Completion>& recv_completions() const { return recv_completions_; }
  const std::vector<roce::QpEvent>& events() const { return events_; }
  uint64_t count(roce::QpCounter counter) const { return counters_[static_cast<size_t>(counter)]; }
  // The durable copy of kTarget, for the peer's FLUSH for persistence. The caller must set its size
  // before the first FLUSH. When a sync ends, its range holds the bytes from the start of the sync.
  std::vector<std::byte>& disk() { return disk_; }
  uint32_t syncs() const { return syncs_; }
  // The next `times` attempts to start a sync are refused as busy.
  void set_busy(uint32_t times) { busy_ = times; }
  // Whether the queue pair waits for EndSync, which ends the sync, or the busy state.
  bool wants_sync() const { return wants_sync_; }
  void EndSync();
  // Early packets that the queue pair may keep.
  void set_room_to_keep(uint32_t packets) { room_to_keep_ = packets; }
  void NoteKept(int change) { kept_ += static_cast<uint32_t>(change); }
  bool HasRoomToKeep() const { return kept_ < room_to_keep_; }
  // Receives of its own queue that no message has taken.
  uint32_t PostedReceives() const { return static_cast<uint32_t>(recvs_.size() - next_recv_); }
  bool AllFetched() const { return next_send_ == sends_.size(); }

  // QpHost.
  roce::FetchResult FetchSend(roce::SendWqe& out, roce::CompletionStatus& bad_status);
  roce::FetchResult FetchRecv(roce::RecvWqe& out, roce::CompletionStatus& bad_status,
                              const roce::Packet* packet);
  memory::MemoryStatus GatherSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                  memory::SegmentList& out);
  memory::MemoryStatus ScatterSend(const roce::SendWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::SegmentList& out);
  memory::MemoryStatus ScatterRecv(const roce::RecvWqe& wqe, uint32_t offset, uint32_t length,
                                   memory::SegmentList& out);
  memory::MemoryStatus ResolveRemote(roce::Key key, uint64_t va, uint32_t length,
                                     memory::Access access, memory::SegmentList& out);
  memory::MemoryStatus CheckRemote(roce::Key key, uint64_t va, uint32_t length,
                                   memory::Access access);
  memory::MemoryStatus CheckRemoteKey(roce::Key key, memory::Access access);
  memory::MemoryStatus Invalidate(roce::Key key);
  memory::MemoryStatus BindWindow(const roce::SendWqe& wqe);
  // Simulated programs have no list regions.
  memory::MemoryStatus RegisterList(const roce::SendWqe&) { return memory::MemoryStatus::kBadKey; }
  void FinishPlacing() {}
  roce::DurableState StartDurable(roce::Key key, uint64_t va, uint32_t length, bool whole_region);
  roce::DurableState PollDurable() const { return durable_; }
  memory::MemoryStatus AtomicWrite(const memory::Segment& segment,
                                   std::span<const std::byte, 8> bytes);
  bool SelectReceiveQueue(uint32_t number);
  memory::MemoryStatus Place(const memory::SegmentList& segments, std::span<const std::byte> bytes);
  memory::MemoryStatus AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                         uint64_t swap, uint64_t& original);
  memory::MemoryStatus AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                      uint64_t& original);
  void CompleteSend(const roce::Completion& completion);
  void CompleteRecv(const roce::Completion& completion);
  void RaiseEvent(roce::QpEvent event) { events_.push_back(event); }
  void NoteState(roce::QpState, roce::QpState) {}
  void Count(roce::QpCounter counter) { ++counters_[static_cast<size_t>(counter)]; }

 private:
  memory::MemoryStatus Walk(std::span<const roce::Sge> sges, uint32_t offset, uint32_t length,
                            memory::Access access, memory::SegmentList& out);

  std::vector<std::byte> disk_;
  std::vector<std::byte> syncing_;  // copied to disk_ at sync_offset_ when the sync ends
  uint64_t sync_offset_ = 0;
  roce::DurableState durable_{};
  uint32_t syncs_ = 0;
  uint32_t busy_ = 0;
  bool wants_sync_ = false;
  uint32_t room_to_keep_ = UINT32_MAX;
  uint32_t kept_ = 0;
  Arena* arena_;
  memory::AccessContext context_;
  std::vector<PostedSend> sends_;
  std::vector<PostedRecv> recvs_;
  size_t next_send_ = 0;
  size_t next_recv_ = 0;
  std::vector<roce::Completion> send_completions_;
  std::vector<roce::Completion> recv_completions_;
  SharedQueues* shared_ = nullptr;
  Choose choose_;
  const PostedRecv* chosen_ = nullptr;
  uint32_t selected_ = 0;
  std::vector<uint32_t> completed_queues_;
  std::vector<roce::QpEvent> events_;
  std::array<uint64_t, roce::kQpCounterNames.size()> counters_{};
};
static_assert(roce::QpHost<SimHost>);

}  // namespace roci::sim
