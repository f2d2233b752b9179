// Rings and a doorbell page in ordinary memory, laid out as the daemon does.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "verbs_provider/memory/mr_keys.h"
#include "verbs_provider/rings/completion_ring.h"
#include "verbs_provider/rings/recv_queue.h"
#include "verbs_provider/rings/send_queue.h"

namespace roci::provider {

/// Zeroed memory aligned to a cache line.
class Lines {
 public:
  explicit Lines(size_t bytes) : storage_((bytes + 127) / 64 * 64) {}
  template <class T>
  T* At(size_t offset = 0) {
    auto address = reinterpret_cast<uintptr_t>(storage_.data());
    address = (address + 63) / 64 * 64;
    return reinterpret_cast<T*>(address + offset);
  }

 private:
  std::vector<std::byte> storage_;
};

class FakeDoorbells {
 public:
  FakeDoorbells() : memory_(sizeof(roci_abi_doorbells)) { wake_.Hold(eventfd(0, EFD_NONBLOCK)); }
  ~FakeDoorbells() { wake_.Close(); }
  FakeDoorbells(const FakeDoorbells&) = delete;
  FakeDoorbells& operator=(const FakeDoorbells&) = delete;
  roci_abi_doorbells& page() { return *memory_.At<roci_abi_doorbells>(); }
  Doorbells bells() { return Doorbells(&page(), &wake_); }
  /// How often the daemon was woken since the last call.
  uint64_t TakeWakes() {
    uint64_t count = 0;
    return read(wake_.fd(), &count, sizeof(count)) == sizeof(count) ? count : 0;
  }
  /// Whether the bit of `handle` is set at all three levels.
  bool IsRung(uint32_t handle) {
    return (page().level0[handle >> 6] >> (handle & 63) & 1) != 0 &&
           (page().level1[handle >> 12] >> ((handle >> 6) & 63) & 1) != 0 &&
           (page().level2 >> (handle >> 12) & 1) != 0;
  }
  void Clear() { memset(&page(), 0, sizeof(page())); }

 private:
  Lines memory_;
  HeldFile wake_;
};

/// A send queue and the daemon's view of it.
class FakeSendQueue {
 public:
  static constexpr uint32_t kHandle = 4711;
  static constexpr uint32_t kPd = 3;

  FakeSendQueue(uint32_t capacity, uint32_t stride, ibv_qp_type type = IBV_QPT_RC)
      : memory_(sizeof(roci_abi_queue) + size_t{capacity} * stride) {
    queue.shared = memory_.At<roci_abi_queue>();
    queue.slots = memory_.At<std::byte>(sizeof(roci_abi_queue));
    queue.keys = &keys;
    queue.bells = doorbells.bells();
    queue.handle = kHandle;
    queue.mask = capacity - 1;
    queue.stride = stride;
    queue.limit = capacity;
    queue.max_sge = (stride - 64) / 16;
    queue.max_inline = stride - 64;
    queue.auto_inline = 0;
    queue.pd = kPd;
    queue.opcodes = abi::SendOpcodesOf(type);
    queue.slot_flags = SlotFlagsOf(type, true);
    queue.is_datagram = type == IBV_QPT_UD;
  }
  const roci_abi_send_wqe& Entry(uint32_t index) {
    return *reinterpret_cast<const roci_abi_send_wqe*>(queue.Slot(index));
  }
  const roci_abi_sge* Sges(uint32_t index) {
    return reinterpret_cast<const roci_abi_sge*>(queue.Slot(index) + sizeof(roci_abi_send_wqe));
  }
  const char* Inline(uint32_t index) {
    return reinterpret_cast<const char*>(queue.Slot(index) + sizeof(roci_abi_send_wqe));
  }

  FakeDoorbells doorbells;
  MrKeys keys;
  SendQueue queue;

 private:
  Lines memory_;
};

/// A receive queue and the daemon's view of it.
class FakeRecvQueue {
 public:
  static constexpr uint32_t kHandle = 65535;

  FakeRecvQueue(uint32_t capacity, uint32_t stride)
      : memory_(sizeof(roci_abi_queue) + size_t{capacity} * stride) {
    queue.shared = memory_.At<roci_abi_queue>();
    queue.slots = memory_.At<std::byte>(sizeof(roci_abi_queue));
    queue.bells = doorbells.bells();
    queue.handle = kHandle;
    queue.mask = capacity - 1;
    queue.stride = stride;
    queue.limit = capacity;
    queue.max_sge = (stride - 16) / 16;
  }
  const roci_abi_recv_wqe& Entry(uint32_t index) {
    return *reinterpret_cast<const roci_abi_recv_wqe*>(queue.Slot(index));
  }

  FakeDoorbells doorbells;
  RecvQueue queue;

 private:
  Lines memory_;
};

/// A completion ring and the daemon's view of it.
class FakeCompletionRing {
 public:
  explicit FakeCompletionRing(uint32_t capacity)
      : memory_(sizeof(roci_abi_cq) + size_t{capacity} * sizeof(roci_abi_cqe)),
        capacity_(capacity) {
    ring.Use(memory_.At<roci_abi_cq>(), memory_.At<roci_abi_cqe>(sizeof(roci_abi_cq)), capacity);
  }
  /// Writes the next entry as the daemon does.
  void Write(const roci_abi_cqe& entry) {
    roci_abi_cqe& place = ring.entries[producer_ % capacity_];
    std::memcpy(static_cast<void*>(&place), &entry, offsetof(roci_abi_cqe, generation));
    place.tag_context = entry.tag_context;
    std::atomic_ref<uint32_t>(place.generation)
        .store(producer_ / capacity_ + 1, std::memory_order_release);
    ++producer_;
  }
  /// Sets the state in which `index` entries have been written and consumed.
  void StartAt(uint32_t index) {
    for (uint32_t i = 0; i < capacity_; ++i) {
      const uint32_t last = index - capacity_ + i;  // the last index that used this slot
      ring.entries[last % capacity_].generation = last / capacity_ + 1;
    }
    producer_ = index;
    ring.PublishConsumer(index);
  }

  CompletionRing ring;

 private:
  Lines memory_;
  uint32_t capacity_;
  uint32_t producer_ = 0;
};

}  // namespace roci::provider
