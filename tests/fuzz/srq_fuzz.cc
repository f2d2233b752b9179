// Fuzzes gate 2 for shared receive queues: a program that writes any bytes into slot numbers, the
// producer index and the slots. Input: a sequence of steps of program and daemon.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "dataplane/base/async_event.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "tests/fuzz/fuzz.h"
#include "tests/on_shard.h"

namespace {

const roci::dataplane::OnShard& kShard = roci::dataplane::OnShardInTests::Token();

uint32_t g_errors = 0;  // events of a broken queue
uint32_t g_limits = 0;  // limit events
alignas(roci::dataplane::VerbsContext) std::byte
    g_no_context[sizeof(roci::dataplane::VerbsContext)];

}  // namespace

namespace roci::dataplane {

// The parts of the context that the queue uses.
bool VerbsContext::SendAsyncEvent(const OnShard&, uint64_t, uint32_t type) {
  ++(type == kEventSrqError ? g_errors : g_limits);
  return true;
}

}  // namespace roci::dataplane

namespace {

using roci::dataplane::LayOutSharedReceiveQueue;
using roci::dataplane::SharedMemory;
using roci::dataplane::SharedReceiveQueue;
using roci::fuzz::Input;
using roci::fuzz::Require;
using roci::roce::CompletionStatus;
using roci::roce::FetchResult;
using roci::roce::RecvWqe;

class Fuzz {
 public:
  explicit Fuzz(Input& input) : input_(input) {
    max_sge_ = input.Take<uint8_t>() % 4 + 1u;
    Use(LayOutSharedReceiveQueue(input.Take<uint8_t>() % 24 + 1u, max_sge_));
    // Of the context only retired_rings() is read, which is null.
    auto* context = reinterpret_cast<roci::dataplane::VerbsContext*>(g_no_context);
    queue_ = *SharedReceiveQueue::Create(
        *context, {.pd = 1, .max_wr = layout_.max_wr, .max_sge = max_sge_, .limit = 3, .tags = {}},
        1, 0);
    app_ = queue_->TakeFd();
  }

  void Step() {
    switch (input_.Take<uint8_t>() % 8) {
      case 0:  // an honest post
        Poke(RingAt(Producer()), input_.Take<uint8_t>() % layout_.max_wr);
        return Poke(0, Producer() + 1);
      case 1:
        return Poke(RingAt(input_.Take<uint8_t>()), input_.Take<uint32_t>());
      case 2:
        return Poke(0, Producer() + input_.Take<uint8_t>());
      case 3:
        return Poke(0, input_.Take<uint32_t>());
      case 4: {
        const uint64_t room = layout_.memory_size - sizeof(uint32_t);
        return Poke(input_.Take<uint16_t>() % room, input_.Take<uint32_t>());
      }
      case 5:
        return queue_->SetLimit(kShard, input_.Take<uint8_t>());
      case 6:
        return Grow();
      default:
        return Fetch();
    }
  }

 private:
  void Use(const roci_abi_srq_layout& layout) {
    layout_ = layout;
    Require(layout_.ring_offset + layout_.ring_capacity * 4 <= layout_.slots_offset, "layout");
    Require(layout_.slots_offset + uint64_t{layout_.max_wr} * layout_.stride <= layout_.memory_size,
            "layout");
  }
  void Poke(uint64_t at, uint32_t value) {
    Require(pwrite(app_.get(), &value, sizeof(value), static_cast<off_t>(at)) == 4, "pwrite");
  }
  uint32_t Producer() const {
    uint32_t value = 0;
    Require(pread(app_.get(), &value, sizeof(value), 0) == 4, "pread");
    return value;
  }
  uint64_t RingAt(uint32_t index) const {
    return layout_.ring_offset + uint64_t{index % layout_.ring_capacity} * sizeof(uint32_t);
  }

  void Fetch() {
    const bool was_broken = queue_->broken(kShard);
    const uint32_t before = queue_->taken(kShard);
    RecvWqe wqe{};
    CompletionStatus bad{};
    const FetchResult result = queue_->Fetch(kShard, wqe, bad);
    if (result == FetchResult::kEmpty) {
      Require(queue_->taken(kShard) == before, "an empty queue gives nothing");
      return;
    }
    Require(wqe.slot < layout_.max_wr, "slots that exist");
    Require(wqe.num_sge <= max_sge_, "elements that exist");
    Require(!was_broken || queue_->taken(kShard) == before,
            "a broken queue gives back what it had only");
    for (uint32_t i = 0; i < wqe.num_sge; ++i) queue_->ReadSge(kShard, wqe, i);
    if (input_.Take<uint8_t>() % 4 == 0 && given_back_ < 100) {
      queue_->GiveBack(kShard, wqe);
      ++given_back_;
    }
  }

  void Grow() {
    if (grown_ == 3) return;
    const roci_abi_srq_layout layout = LayOutSharedReceiveQueue(layout_.max_wr * 2, max_sge_);
    auto memory = SharedMemory::Create("roci-srq", layout.memory_size);
    Require(memory.ok(), "memory");
    roci::dataplane::Fd fd = memory->TakeFd();
    roci::dataplane::SharedReceiveQueueGrowth growth{
        .memory = *std::move(memory), .fd = std::move(fd), .layout = layout, .copied = 0};
    while (queue_->CopySlots(growth, input_.Take<uint8_t>() * size_t{64} + 1)) {
    }
    if (!queue_->Grow(kShard, growth))
      return Require(queue_->broken(kShard), "grows unless broken");
    ++grown_;
    Use(layout);
    app_ = std::move(growth.fd);
  }

  Input& input_;
  uint32_t max_sge_ = 0;
  roci_abi_srq_layout layout_{};
  std::unique_ptr<SharedReceiveQueue> queue_;
  roci::dataplane::Fd app_;  // as the program has the memory
  uint32_t given_back_ = 0;
  uint32_t grown_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_errors = g_limits = 0;
  Input input(data, size);
  Fuzz fuzz(input);
  while (!input.empty()) fuzz.Step();
  Require(g_errors <= 1, "a queue breaks once");
  return 0;
}
