// Fuzzes gate 2 for work queues: a program that writes any bytes into its rings at any time. Input:
// a sequence of steps of program and daemon.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "dataplane/rings/work_queue.h"
#include "tests/fuzz/fuzz.h"

namespace {

using roci::dataplane::RecvQueue;
using roci::dataplane::SendQueue;
using roci::fuzz::Input;
using roci::fuzz::Require;
using roci::roce::CompletionStatus;
using roci::roce::FetchResult;
using roci::roce::QpType;

constexpr uint32_t kCapacities[] = {1, 2, 8, 64};
constexpr uint32_t kMaxOperations = 512;

// The rings in memory of the exact size, so that a sanitizer detects accesses outside of them.
struct Rings {
  explicit Rings(Input& in)
      : capacity(kCapacities[in.Take<uint8_t>() % 4]),
        max_sge(static_cast<uint8_t>(1 + in.Take<uint8_t>() % 30)),
        max_inline(in.Take<uint8_t>()),
        type(static_cast<QpType>(in.Take<uint8_t>() % 12)),
        send_stride(Stride()),
        recv_stride((16u + max_sge * 16u + 31) / 32 * 32),
        send_slots(capacity * send_stride),
        recv_slots(capacity * recv_stride),
        send(&send_header, send_slots.data(), capacity, send_stride, max_sge, max_inline, type),
        recv(&recv_header, recv_slots.data(), capacity, recv_stride, max_sge) {}

  uint32_t Stride() const {
    const uint32_t data = std::max<uint32_t>(max_sge * 16u, max_inline);
    return std::max(128u, (64 + data + 63) / 64 * 64);
  }

  uint32_t capacity;
  uint8_t max_sge;
  uint32_t max_inline;
  QpType type;
  uint32_t send_stride;
  uint32_t recv_stride;
  roci_abi_queue send_header{};
  roci_abi_queue recv_header{};
  std::vector<std::byte> send_slots;
  std::vector<std::byte> recv_slots;
  SendQueue send;
  RecvQueue recv;
};

void CheckSend(Rings& rings, uint32_t before) {
  roci::roce::SendWqe wqe{};
  CompletionStatus status{};
  const FetchResult result = rings.send.Fetch(wqe, status);
  if (result == FetchResult::kEmpty) {
    Require(rings.send.taken() == before, "an empty fetch took an entry");
    return;
  }
  Require(rings.send.taken() == before + 1 && wqe.slot == before, "one entry per fetch, in order");
  Require(wqe.num_sge <= rings.max_sge, "elements");
  Require(wqe.length <= roci::roce::kMaxMessageBytes, "length");
  if (result == FetchResult::kBad) {
    Require(status != CompletionStatus::kSuccess, "a bad entry has a reason");
    return;
  }
  Require(rings.type == QpType::kRc || rings.type == QpType::kUc || rings.type == QpType::kUd ||
              rings.type == QpType::kXrcSend || rings.type == QpType::kRawPacket,
          "no other type sends");
  if (wqe.is_inline) {
    Require(wqe.length <= rings.max_inline, "inline length");
    volatile std::byte sink{};
    for (uint32_t i = 0; i < wqe.length; ++i) sink = rings.send.InlineData(wqe)[i];
    (void)sink;
  }
  for (uint32_t i = 0; i < wqe.num_sge; ++i) rings.send.ReadSge(wqe, i);
}

void CheckRecv(Rings& rings, uint32_t before) {
  roci::roce::RecvWqe wqe{};
  CompletionStatus status{};
  const FetchResult result = rings.recv.Fetch(wqe, status);
  if (result == FetchResult::kEmpty) {
    Require(rings.recv.taken() == before, "an empty fetch took an entry");
    return;
  }
  Require(rings.recv.taken() == before + 1 && wqe.slot == before, "one entry per fetch, in order");
  Require(wqe.num_sge <= rings.max_sge, "elements");
  Require(result == FetchResult::kOk || status != CompletionStatus::kSuccess, "a reason");
  for (uint32_t i = 0; i < wqe.num_sge; ++i) rings.recv.ReadSge(wqe, i);
}

void Write(std::vector<std::byte>& slots, Input& in) {
  const size_t at = in.Take<uint16_t>() * size_t{8} % slots.size();
  const auto value = in.Take<uint64_t>();
  std::memcpy(slots.data() + at, &value, std::min(sizeof(value), slots.size() - at));
}

void Step(Rings& rings, Input& in) {
  switch (in.Take<uint8_t>() % 8) {
    case 0:
      return Write(rings.send_slots, in);
    case 1:
      return Write(rings.recv_slots, in);
    case 2:
      rings.send_header.producer += in.Take<uint8_t>();
      return;
    case 3:
      rings.recv_header.producer += in.Take<uint8_t>();
      return;
    case 4:
      rings.send_header.producer = in.Take<uint32_t>();
      return;
    case 5:
      return CheckSend(rings, rings.send.taken());
    case 6:
      return CheckRecv(rings, rings.recv.taken());
    case 7:
      rings.send.Reset();
      rings.recv.Reset();
      Require(!rings.send.broken() && rings.send.taken() == 0, "reset");
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Rings rings(in);
  for (uint32_t i = 0; i < kMaxOperations && !in.empty(); ++i) {
    const bool was_broken = rings.send.broken();
    const uint32_t taken = rings.send.taken();
    Step(rings, in);
    // The daemon takes at most as many entries as the ring has, for any index.
    if (was_broken && rings.send.broken()) {
      Require(rings.send.taken() - taken <= rings.capacity, "a broken queue gives no more");
    }
  }
  // At most one ring of entries was seen, and one more arrived since: then the loop ends.
  for (uint32_t i = 0; i <= 2 * rings.capacity; ++i) CheckSend(rings, rings.send.taken());
  const uint32_t taken = rings.send.taken();
  CheckSend(rings, taken);
  Require(rings.send.taken() == taken, "no end to the entries");
  return 0;
}
