// The limits for small messages: the rate of 64-byte WRITEs, and the time of an 8-byte READ.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bench/limit_frame.h"
#include "tests/bench/limit_measure.h"
#include "verbs_provider/abi/rings.h"

namespace roci::bench {
namespace {

constexpr uint32_t kSlots = 1024;
constexpr size_t kStride = 128;  // of a work entry: its header and 64 bytes of data
constexpr size_t kSmall = 64;
constexpr size_t kTarget = 256 * 1024;
constexpr uint32_t kPacketsPerAck = 32;
constexpr uint32_t kRkey = 2;
constexpr uint32_t kQpn = 1;
constexpr size_t kSmallSlot = 512;  // bytes from frame to frame

// State of a connection that a receiver needs.
struct Connection {
  uint32_t expected_psn = 0;
  uint32_t unacknowledged = 0;
};

// The minimal checks before a WRITE may be placed. Null if they fail.
inline std::byte* Placement(const std::byte* payload, Connection* connections, std::byte* target) {
  const std::byte* header = payload - kBlock;
  uint16_t ether_type;
  std::memcpy(&ether_type, header + 6, 2);
  uint16_t udp_port;
  std::memcpy(&udp_port, header + kIpAt + 22, 2);
  const uint32_t qpn = roce::LoadBe<uint32_t>(header + kQpnWordAt) & 0xFFFFFF;
  const uint32_t psn = roce::LoadBe<uint32_t>(header + kPsnWordAt) & 0xFFFFFF;
  const uint64_t va = roce::LoadBe<uint64_t>(header + kRethAt);
  const uint32_t rkey = roce::LoadBe<uint32_t>(header + kRethAt + 8);
  const uint32_t length = roce::LoadBe<uint32_t>(header + kRethAt + 12);
  if (ether_type != __builtin_bswap16(0x0800) || udp_port != __builtin_bswap16(4791) ||
      qpn != kQpn || psn != (connections[qpn].expected_psn & 0xFFFFFF) || rkey != kRkey ||
      length != kSmall || va > kTarget - kSmall) {
    return nullptr;
  }
  ++connections[qpn].expected_psn;
  return target + va;
}

void Pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// Memory shared by the two threads of LatencyLimit: a WQE, the queue's index, a completion.
struct Shared {
  alignas(64) roci_abi_send_wqe entry;
  alignas(64) std::atomic<uint32_t> producer{0};
  alignas(64) roci_abi_cqe completion;
  alignas(64) std::atomic<bool> stop{false};
};

// Both ends of the READs: a request frame and a response frame for each, made and checked.
void ServeReads(Shared& shared, std::byte* frames, std::byte* memory) {
  const HeaderBlock block = WriteOnlyBlock(kSmall);
  std::byte* request = frames + kPayloadAt;
  std::byte* response = frames + kSmallSlot + kPayloadAt;
  uint32_t served = 0;
  while (!shared.stop.load(std::memory_order_relaxed)) {
    if (shared.producer.load(std::memory_order_acquire) == served) continue;
    ++served;
    roci_abi_send_wqe entry;
    std::memcpy(&entry, &shared.entry, sizeof(entry));
    MakeFrame<kSmall>(block, served, entry.remote_va, memory, request);
    if (!CheckFrame<kSmall>(request)) Die("a request failed its check");
    MakeFrame<kSmall>(block, served, 0, memory + entry.remote_va, response);
    if (!CheckFrame<kSmall>(response)) Die("a response failed its check");
    CopyWide<kSmall>(memory + 2 * kSmall, response);
    shared.completion.wr_id = entry.wr_id;
    std::atomic_ref(shared.completion.generation).store(served, std::memory_order_release);
  }
}

// Posts one READ and waits for its completion.
void Read(Shared& shared, uint32_t index) {
  roci_abi_send_wqe entry{};
  entry.wr_id = index;
  entry.opcode = ROCI_ABI_WR_RDMA_READ;
  entry.remote_va = kSmall;
  shared.entry = entry;
  shared.producer.store(index, std::memory_order_release);
  while (std::atomic_ref(shared.completion.generation).load(std::memory_order_acquire) != index) {
  }
  if (shared.completion.wr_id != index) Die("a completion is not of its request");
}

}  // namespace

double SmallLimit(double seconds) {
  const Memory target(kTarget);
  const Memory queue(kSlots * kStride);
  const Memory frames((kMaxBurst + 1) * kSmallSlot);
  for (uint32_t i = 0; i < kSlots; ++i) {
    roci_abi_send_wqe entry{};
    entry.wr_id = i;
    entry.flags = ROCI_ABI_SEND_SIGNALED | ROCI_ABI_SEND_INLINE;
    entry.inline_length = kSmall;
    entry.rkey = kRkey;
    entry.remote_va = i * kSmall;  // perftest stays within 4096 bytes, which is not faster
    std::memcpy(queue.data() + i * kStride, &entry, sizeof(entry));
  }
  const HeaderBlock block = WriteOnlyBlock(kSmall);
  std::byte* const ack = frames.data() + kMaxBurst * kSmallSlot + kPayloadAt;
  const auto completions = std::make_unique<roci_abi_cqe[]>(kSlots);
  Connection connections[2];
  Wire wire;
  uint32_t taken = 0;
  uint32_t completed = 0;
  uint64_t messages = 0;
  const double start = Now();
  double now = start;
  while (now - start < seconds) {
    for (int round = 0; round < 64; ++round) {
      for (uint32_t i = 0; i < kMaxBurst; ++i, ++taken) {
        const std::byte* slot = queue.data() + (taken % kSlots) * kStride;
        uint64_t va;
        std::memcpy(&va, slot + offsetof(roci_abi_send_wqe, remote_va), 8);
        MakeFrame<kSmall>(block, taken & 0xFFFFFF, va, slot + sizeof(roci_abi_send_wqe),
                          frames.data() + i * kSmallSlot + kPayloadAt);
        wire.Push(i);
      }
      for (uint32_t i = 0; i < kMaxBurst; ++i) {
        const std::byte* payload = frames.data() + wire.Pop() * kSmallSlot + kPayloadAt;
        std::byte* place = Placement(payload, connections, target.data());
        if (place == nullptr || !CheckFrame<kSmall>(payload)) Die("a frame failed its check");
        CopyWide<kSmall>(place, payload);
      }
      MakeFrame<kSmall>(block, taken, 0, queue.data(), ack);
      if (!CheckFrame<kSmall>(ack)) Die("an acknowledgement failed its check");
      for (uint32_t i = 0; i < kPacketsPerAck; ++i, ++completed) {
        roci_abi_cqe entry{};
        std::memcpy(&entry.wr_id, queue.data() + (completed % kSlots) * kStride, 8);
        entry.slot = completed;
        entry.generation = completed / kSlots + 1;
        completions[completed % kSlots] = entry;
      }
      static_assert(kPacketsPerAck == kMaxBurst);
      messages += kMaxBurst;
    }
    now = Now();
  }
  return static_cast<double>(messages) / (now - start) * 1e-6;
}

LatencyResult LatencyLimit(uint32_t reads) {
  if (std::thread::hardware_concurrency() < 2) return {};
  const Memory frames(2 * kSmallSlot);
  const Memory memory(4096);
  Shared shared{};
  std::thread server([&] {
    Pin(1);
    ServeReads(shared, frames.data(), memory.data());
  });
  std::vector<double> times;
  times.reserve(reads);
  std::thread client([&] {
    Pin(0);
    for (uint32_t i = 1; i <= reads; ++i) {
      const double start = Now();
      Read(shared, i);
      times.push_back((Now() - start) * 1e6);
    }
  });
  client.join();
  shared.stop = true;
  server.join();
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

}  // namespace roci::bench
