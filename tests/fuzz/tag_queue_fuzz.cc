// Fuzzes gate 2 for tag matching: a program that writes any bytes into its ring of tag list
// operations. Input: a sequence of steps of program and daemon. The list, matches and completions
// are compared with a model.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/tag_queue.h"
#include "tests/fuzz/fuzz.h"
#include "tests/on_shard.h"

namespace {

const roci::dataplane::OnShard& kShard = roci::dataplane::OnShardInTests::Token();

std::vector<roci_abi_cqe> g_completions;
alignas(roci::dataplane::CompletionQueue) std::byte
    g_no_queue[sizeof(roci::dataplane::CompletionQueue)];

}  // namespace

namespace roci::dataplane {

// The parts of the completion queue that the ring uses.
void CompletionQueue::WriteEntry(const OnShard&, roci_abi_cqe filled, bool, uint64_t) {
  g_completions.push_back(filled);
}

}  // namespace roci::dataplane

namespace {

using roci::dataplane::TaggedBuffer;
using roci::dataplane::TagQueue;
using roci::fuzz::Input;
using roci::fuzz::Require;

constexpr uint32_t kHandle = 9;
constexpr uint8_t kTagError = 22;  // IBV_WC_TM_ERR

// An entry that the list should hold.
class Model {
 public:
  struct Listed {
    roci_abi_tag_op op;
    bool is_held;  // posted while messages were unexpected that the program had not seen
  };

  explicit Model(uint32_t max_tags) : taken_(max_tags, false) {}

  // True: the step had an effect.
  bool Execute(const roci_abi_tag_op& op) {
    if (op.opcode == ROCI_ABI_TAG_SYNC || (op.flags & ROCI_ABI_TAG_WITH_COUNT) != 0) {
      handled_ = op.unexpected_count;
      LetGo();
    }
    if (op.opcode == ROCI_ABI_TAG_ADD) return Add(op);
    if (op.opcode == ROCI_ABI_TAG_DEL) return Delete(op.handle);
    return op.opcode == ROCI_ABI_TAG_SYNC;
  }
  // Removes and returns the oldest entry that matches and is not held.
  bool Match(uint64_t tag, Listed* out) {
    for (size_t i = 0; i < list_.size() && !list_[i].is_held; ++i) {
      if ((tag & list_[i].op.mask) != list_[i].op.tag) continue;
      *out = list_[i];
      list_.erase(list_.begin() + static_cast<ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  void Release(uint32_t slot) {
    taken_[slot] = false;
    ++freed_;
  }
  void NoteUnexpected() { ++unexpected_; }
  void TakeBackUnexpected() {
    --unexpected_;
    LetGo();
  }
  size_t size() const { return list_.size(); }
  bool in_sync() const { return handled_ == unexpected_; }
  uint32_t freed() const { return freed_; }

 private:
  bool Add(const roci_abi_tag_op& op) {
    const uint32_t slot = op.handle & 0xFFFF;
    if (op.num_sge > ROCI_ABI_MAX_TAG_SGE || slot >= taken_.size() || taken_[slot]) return false;
    taken_[slot] = true;
    const bool others_are = !list_.empty() && list_.back().is_held;
    list_.push_back({op, others_are || !in_sync()});
    return true;
  }
  bool Delete(uint32_t handle) {
    const auto found = std::find_if(list_.begin(), list_.end(), [handle](const Listed& listed) {
      return listed.op.handle == handle;
    });
    if (found == list_.end()) return false;
    list_.erase(found);
    Release(handle & 0xFFFF);
    return true;
  }
  void LetGo() {
    if (!in_sync()) return;
    for (Listed& listed : list_) listed.is_held = false;
  }

  std::vector<Listed> list_;  // oldest first
  std::vector<bool> taken_;   // slots
  uint32_t unexpected_ = 0;
  uint32_t handled_ = 0;
  uint32_t freed_ = 0;
};

class Fuzz {
 public:
  explicit Fuzz(Input& input)
      : input_(input),
        max_tags_(input.Take<uint8_t>() % 20 + 1u),
        max_ops_(input.Take<uint8_t>() % 20 + 1u),
        model_(max_tags_) {
    // No member of the completion queue is touched.
    auto* cq = reinterpret_cast<roci::dataplane::CompletionQueue*>(g_no_queue);
    queue_ = *TagQueue::Create({max_tags_, max_ops_}, kHandle, *cq);
    app_ = queue_->TakeFd();
  }

  void Step() {
    switch (input_.Take<uint8_t>() % 12) {
      case 0:
      case 1:
      case 2:
        return Post();
      case 3:
      case 4:
      case 5:
        return Serve();
      case 6:
        return Match();
      case 7:
        return Release();
      case 8:
        queue_->list(kShard).NoteUnexpected();
        model_.NoteUnexpected();
        ++unexpected_;
        return;
      case 9:
        if (unexpected_ == 0) return;
        --unexpected_;
        queue_->list(kShard).TakeBackUnexpected();
        return model_.TakeBackUnexpected();
      case 10:
        return Poke(0, Producer() + input_.Take<uint16_t>());
      default: {
        const uint64_t room = queue_->layout().memory_size - sizeof(uint32_t);
        return Poke(input_.Take<uint16_t>() % room, input_.Take<uint32_t>());
      }
    }
  }

 private:
  void Poke(uint64_t at, uint32_t value) {
    Require(pwrite(app_.get(), &value, sizeof(value), static_cast<off_t>(at)) == 4, "pwrite");
  }
  uint32_t Peek(uint64_t at) const {
    uint32_t value = 0;
    Require(pread(app_.get(), &value, sizeof(value), static_cast<off_t>(at)) == 4, "pread");
    return value;
  }
  uint32_t Producer() const { return Peek(offsetof(roci_abi_tag_queue, producer)); }
  off_t PlaceOf(uint32_t index) const {
    const uint32_t place = index & (queue_->layout().ops_capacity - 1);
    return static_cast<off_t>(queue_->layout().ops_offset + place * sizeof(roci_abi_tag_op));
  }

  // Usually a valid operation.
  void Post() {
    roci_abi_tag_op op{};
    op.opcode = input_.Take<uint8_t>() % 4;
    op.flags = input_.Take<uint8_t>() & 3;
    op.handle = input_.Take<uint8_t>() % (max_tags_ + 1) | (input_.Take<uint8_t>() & 1u) << 16;
    op.tag = input_.Take<uint8_t>() & 7;
    op.mask = input_.Take<uint8_t>() % 4 == 0 ? 3 : ~uint64_t{0};
    op.num_sge = input_.Take<uint8_t>() % 10;
    op.unexpected_count = unexpected_ + (input_.Take<uint8_t>() & 1u);
    op.wr_id = ++last_id_;
    op.recv_wr_id = ~last_id_;
    for (roci_abi_sge& sge : op.sges) sge = {0x1000, ~uint32_t{0}, 7};
    const uint32_t producer = Producer();
    Require(pwrite(app_.get(), &op, sizeof(op), PlaceOf(producer)) == sizeof(op), "pwrite");
    Poke(0, producer + 1);
  }

  void Serve() {
    const uint32_t before = queue_->taken(kShard);
    const uint32_t producer = Producer();
    const bool breaks = is_broken_ || producer - before > max_ops_;
    g_completions.clear();
    Require(queue_->Serve(kShard, 1) == !breaks,
            "impossible indices break it, and nothing else does");
    is_broken_ = breaks;
    const uint32_t count = queue_->taken(kShard) - before;
    if (breaks) return Require(count == 0 && g_completions.empty(), "a broken one takes nothing");
    Require(count <= producer - before, "no more than was posted");
    Require(count > 0 || producer == before, "what was posted is taken in the end");
    size_t next = 0;
    for (uint32_t index = before; index != queue_->taken(kShard); ++index) Expect(index, &next);
    Require(next == g_completions.size(), "one completion each at most");
    Require(count == 0 || Peek(offsetof(roci_abi_tag_queue, consumer)) == queue_->taken(kShard),
            "the app is told what was taken");
    CheckList();
  }

  // Checks that the operation at `index` had the effect and the completion of the model.
  void Expect(uint32_t index, size_t* next) {
    roci_abi_tag_op op;
    Require(pread(app_.get(), &op, sizeof(op), PlaceOf(index)) == sizeof(op), "pread");
    const uint32_t freed = model_.freed();
    const bool done = model_.Execute(op);
    if (model_.freed() != freed) ExpectFreed(op.handle & 0xFFFF);
    if (done && (op.flags & ROCI_ABI_TAG_SIGNALED) == 0) return;
    Require(*next < g_completions.size(), "a completion");
    const roci_abi_cqe& entry = g_completions[(*next)++];
    Require(entry.wr_id == op.wr_id && entry.qp_handle == kHandle, "whose completion it is");
    Require(entry.status == (done ? 0 : kTagError), "the status of a completion");
    Require(((entry.flags & ROCI_ABI_CQE_TAG_SYNC_REQUEST) == 0) == model_.in_sync(),
            "the app is asked for its count when it lags");
  }

  // The program may have overwritten the ring and its counter.
  void ExpectFreed(uint32_t slot) {
    const auto& layout = queue_->layout();
    const uint32_t place = (model_.freed() - 1) & (layout.freed_capacity - 1);
    const uint32_t value = Peek(layout.freed_offset + place * sizeof(uint32_t));
    // Later operations of the same call may have reused the place for another slot.
    Require(value == slot || value < max_tags_, "a slot that is free again");
  }

  void CheckList() {
    Require(queue_->list(kShard).size() == model_.size(), "the length of the list");
    Require(queue_->list(kShard).in_sync() == model_.in_sync(), "the count of unexpected messages");
  }

  void Match() {
    const uint64_t tag = input_.Take<uint8_t>() & 15;
    const TaggedBuffer* found = queue_->list(kShard).Match(tag);
    Model::Listed wanted{};
    Require((found != nullptr) == model_.Match(tag, &wanted), "whether a tag matches");
    CheckList();
    if (found == nullptr) return;
    Require(found->handle == wanted.op.handle && found->wr_id == wanted.op.recv_wr_id,
            "the oldest that matches");
    Require(found->num_sge == wanted.op.num_sge && found->num_sge <= ROCI_ABI_MAX_TAG_SGE,
            "elements that exist");
    uint64_t capacity = 0;
    for (uint32_t i = 0; i < found->num_sge; ++i) capacity += wanted.op.sges[i].length;
    Require(found->capacity == capacity, "the room in a buffer");
    matched_.push_back(found->slot());
  }

  void Release() {
    if (matched_.empty()) return;
    const size_t which = input_.Take<uint8_t>() % matched_.size();
    const uint32_t slot = matched_[which];
    matched_.erase(matched_.begin() + static_cast<ptrdiff_t>(which));
    queue_->Release(kShard, slot);
    model_.Release(slot);
    ExpectFreed(slot);
    Require(Peek(offsetof(roci_abi_tag_queue, freed)) == model_.freed(), "slots that are free");
  }

  Input& input_;
  uint32_t max_tags_;
  uint32_t max_ops_;
  Model model_;
  std::unique_ptr<TagQueue> queue_;
  roci::dataplane::Fd app_;  // as the program has the memory
  std::vector<uint32_t> matched_;
  uint64_t last_id_ = 0;
  uint32_t unexpected_ = 0;
  bool is_broken_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_completions.clear();
  Input input(data, size);
  Fuzz fuzz(input);
  for (int steps = 0; steps < 2000 && !input.empty(); ++steps) fuzz.Step();
  return 0;
}
