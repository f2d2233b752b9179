// Work requests that are posted together, and the room that they take in a send queue.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace rpcrdma {

// A chain of work requests, of which the last is signaled. The vectors keep their memory, so a
// batch that is used again rarely allocates.
class SendBatch {
 public:
  void Clear();
  void AddRead(const ibv_sge& to, uint64_t remote, uint32_t rkey);
  void AddWrite(const ibv_sge& from, uint64_t remote, uint32_t rkey);
  // `key_to_invalidate`: a key of the peer, 0 for a plain SEND.
  void AddSend(std::span<const ibv_sge> from, uint32_t key_to_invalidate = 0);
  void AddBind(ibv_mw* window, uint32_t rkey, const ibv_mw_bind_info& range);
  // A later request waits for earlier READs (IBTA vol 1, 10.8.3.3: fence).
  void AddLocalInvalidate(uint32_t rkey);

  uint32_t size() const { return static_cast<uint32_t>(requests_.size()); }
  // 0, or the errno of ibv_post_send. The completion of the batch carries `wr_id`.
  int Post(ibv_qp* qp, uint64_t wr_id);

 private:
  ibv_send_wr& Add(ibv_wr_opcode opcode, std::span<const ibv_sge> sges);

  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> sges_;  // of all requests, one after the other
};

// Counts the entries of a send queue. An unsignaled request holds its entry until the next signaled
// one has completed (IBTA vol 1, 10.8.6), so a batch gives all its entries back at once.
class SendQueueRoom {
 public:
  explicit SendQueueRoom(uint32_t entries) : entries_(entries) {}

  // Takes room for a batch. False: the queue is too full for it now.
  bool Reserve(uint32_t requests) {
    if (requests > entries_ - used_) return false;
    used_ += requests;
    batches_.push_back(requests);
    return true;
  }
  // The oldest batch has completed. False: there is none.
  bool Complete() {
    if (batches_.empty()) return false;
    used_ -= batches_.front();
    batches_.pop_front();
    return true;
  }
  uint32_t entries() const { return entries_; }
  uint32_t used() const { return used_; }

 private:
  const uint32_t entries_;
  uint32_t used_ = 0;
  std::deque<uint32_t> batches_;
};

}  // namespace rpcrdma
