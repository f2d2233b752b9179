// The asynchronous events of a queue pair: they go to its program or, for XRC receive, to every
// program that has it open.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "roce/work.h"

namespace roci::dataplane {

class LaneTrace;
struct TargetOpening;
class VerbsContext;

class QueuePairEvents {
 public:
  // `context` is null for XRC receive. Events carry `user_handle`.
  QueuePairEvents(VerbsContext* context, uint64_t user_handle, bool is_work_queue)
      : context_(context), user_handle_(user_handle), is_work_queue_(is_work_queue) {}

  // Events are recorded in `*trace`, whenever it is not null, as those of the queue pair `qpn`.
  void UseTrace(LaneTrace* const* trace, uint32_t qpn) {
    trace_ = trace;
    qpn_ = qpn;
  }

  // ---- Any thread
  uint64_t user_handle() const { return user_handle_; }
  uint32_t sent() const { return sent_.load(std::memory_order_relaxed); }

  // ---- On the shard
  // Both return how many programs get the event.
  uint32_t Send(const OnShard& shard, roce::QpEvent event);
  // `type`: of enum ibv_event_type.
  uint32_t SendNumber(const OnShard& shard, uint32_t type);
  // XRC receive only.
  void Add(const OnShard&, TargetOpening& opening) { openings_.push_back(&opening); }
  void Remove(const OnShard&, const TargetOpening& opening) { std::erase(openings_, &opening); }

 private:
  bool SendTo(const OnShard& shard, VerbsContext& to, uint64_t element, uint32_t type,
              std::atomic<uint32_t>& sent);

  VerbsContext* context_;
  uint64_t user_handle_;
  bool is_work_queue_;
  std::atomic<uint32_t> sent_{0};
  std::vector<TargetOpening*> openings_;
  LaneTrace* const* trace_ = nullptr;
  uint32_t qpn_ = 0;
};

}  // namespace roci::dataplane
