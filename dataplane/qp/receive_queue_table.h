// The shared receive queues of XRC domains on one lcore of one device, by number.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "dataplane/base/on_shard.h"
#include "dataplane/qp/qpn_space.h"
#include "dataplane/qp/shared_receive_queue.h"

namespace roci::dataplane {

// Numbers come from a QpnSpace, so no two of them share a slot.
class ReceiveQueueTable {
 public:
  ReceiveQueueTable()
      : slots_(static_cast<SharedReceiveQueue**>(
            std::calloc(QpnSpace::kSlots, sizeof(SharedReceiveQueue*)))) {
    if (slots_ == nullptr) throw std::bad_alloc();
  }

  void Add(const OnShard&, SharedReceiveQueue& srq) {
    assert(Slot(srq.number()) == nullptr);
    Slot(srq.number()) = &srq;
  }
  void Remove(const OnShard&, const SharedReceiveQueue& srq) {
    assert(Slot(srq.number()) == &srq);
    Slot(srq.number()) = nullptr;
  }
  // The shared receive queue with this number; null: none in `domain`.
  SharedReceiveQueue* Find(const OnShard&, uint32_t number, const XrcTargets* domain) const {
    SharedReceiveQueue* srq = Slot(number);
    return srq != nullptr && srq->number() == number && srq->domain() == domain ? srq : nullptr;
  }

 private:
  SharedReceiveQueue*& Slot(uint32_t number) const { return slots_[number % QpnSpace::kSlots]; }

  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<SharedReceiveQueue*[], Free>
      slots_;  // from calloc: untouched pages cost no memory
};

}  // namespace roci::dataplane
