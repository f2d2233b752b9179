#include "tests/interop/rpcrdma/server_device.h"

namespace rpcrdma {

ServerDevice::ServerDevice(ibv_context* context, size_t buffers, size_t buffer_bytes)
    : VerbsDevice(context), buffers_(pd(), buffers, buffer_bytes, IBV_ACCESS_LOCAL_WRITE) {
  for (uint32_t i = 0; i < buffers; ++i) free_.push_back(i);
}

std::optional<uint32_t> ServerDevice::TakeBuffer(BufferWaiter& waiter, uint32_t token) {
  if (free_.empty()) {
    waits_.push_back({&waiter, token});
    return std::nullopt;
  }
  const uint32_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void ServerDevice::PutBuffer(uint32_t buffer) {
  if (waits_.empty()) {
    free_.push_back(buffer);
    return;
  }
  const Wait wait = waits_.front();
  waits_.pop_front();
  wait.waiter->OnBuffer(wait.token, buffer);
}

void ServerDevice::Forget(const BufferWaiter& waiter) {
  std::erase_if(waits_, [&waiter](const Wait& wait) { return wait.waiter == &waiter; });
}

}  // namespace rpcrdma
