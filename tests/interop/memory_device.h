// A device for the rows of memory_table.cc: regions, and queue pairs that are connected to
// themselves.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

namespace interop {

/// The most bytes that one request transfers.
constexpr uint32_t kMaxTransfer = 65536;

struct DeviceName {
  std::string name;
  int gid_index = 0;
};

/// An open device. `context` is null if there is none.
class MemoryDevice {
 public:
  explicit MemoryDevice(const DeviceName& name);
  /// Null, with errno set, if the device refuses.
  ibv_mr* Register(void* at, size_t length, bool writable) const;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_gid gid = {};
  uint8_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};

/// An address in a registered region.
struct Remote {
  uint64_t address = 0;
  ibv_mr* mr = nullptr;
};

/// An RC queue pair connected to itself, with a registered buffer of kMaxTransfer bytes. A request
/// that fails ends the queue pair; the next request gets a new one.
class Loop {
 public:
  explicit Loop(const MemoryDevice& device);
  uint8_t* buffer() const { return buffer_; }

  /// Copy between buffer and region, which is the responder's memory. Return "" or the error.
  std::string Write(const Remote& region, uint32_t length);
  std::string Read(const Remote& region, uint32_t length);
  /// The same with the region as the requester's memory.
  std::string WriteFromBuffer(const Remote& region, uint32_t length);
  std::string ReadIntoBuffer(const Remote& region, uint32_t length);

 private:
  std::string Run(ibv_wr_opcode opcode, const Remote& local, const Remote& remote, uint32_t length);
  std::string Await();
  bool Connect();
  Remote OwnBuffer() const { return {reinterpret_cast<uint64_t>(buffer_), buffer_mr_}; }

  const MemoryDevice& device_;
  uint8_t* buffer_;
  ibv_mr* buffer_mr_;
  ibv_cq* cq_;
  ibv_qp* qp_ = nullptr;
};

/// RDMA WRITEs and READs of the first bytes of a region, from construction to Stop().
class Traffic {
 public:
  Traffic(const MemoryDevice& device, const Remote& region, bool writable);
  /// Stops the traffic after one more round. Returns "" or what went wrong.
  std::string Stop();

 private:
  void Run();
  std::string Round(uint32_t number);

  Loop loop_;
  const Remote region_;
  const bool writable_;
  std::atomic<int> rounds_ = 0;
  std::atomic<bool> stops_ = false;
  std::string error_;
  std::thread thread_;
};

}  // namespace interop
