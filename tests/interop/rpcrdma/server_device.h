// What a server's connections share on one RDMA device: above all the buffers for messages that are
// moved by RDMA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tests/interop/rpcrdma/verbs_device.h"
#include "tests/interop/rpcrdma/verbs_objects.h"

namespace rpcrdma {

// Waits for a message buffer.
class BufferWaiter {
 public:
  virtual ~BufferWaiter() = default;
  // `token` is what was given to TakeBuffer().
  virtual void OnBuffer(uint32_t token, uint32_t buffer) = 0;
};

class ServerDevice : public VerbsDevice {
 public:
  // `buffers` buffers of `buffer_bytes`.
  ServerDevice(ibv_context* context, size_t buffers, size_t buffer_bytes);

  const RegisteredSlots& buffers() const { return buffers_; }

  // Returns a buffer, or nothing and calls OnBuffer() when one is free, first come, first served.
  std::optional<uint32_t> TakeBuffer(BufferWaiter& waiter, uint32_t token);
  void PutBuffer(uint32_t buffer);
  // Ends all waits of this waiter.
  void Forget(const BufferWaiter& waiter);
  size_t free_buffers() const { return free_.size(); }

 private:
  struct Wait {
    BufferWaiter* waiter;
    uint32_t token;
  };

  RegisteredSlots buffers_;
  std::vector<uint32_t> free_;
  std::deque<Wait> waits_;
};

}  // namespace rpcrdma
