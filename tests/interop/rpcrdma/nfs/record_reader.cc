// Record marking.
#include "tests/interop/rpcrdma/nfs/record_reader.h"

#include <algorithm>
#include <utility>

namespace rpcrdma {
namespace {

constexpr uint32_t kLastFragment = 0x80000000;

}  // namespace

RecordReader::Result RecordReader::Read(std::span<const std::byte>* input) {
  while (ReadMark(input)) {
    const size_t taken = std::min(fragment_left_, input->size());
    record_.insert(record_.end(), input->begin(), input->begin() + static_cast<ptrdiff_t>(taken));
    *input = input->subspan(taken);
    fragment_left_ -= taken;
    if (fragment_left_ > 0) return Result::kMore;
    mark_bytes_ = 0;
    if (last_) return record_.empty() ? Result::kMalformed : Result::kRecord;
  }
  return mark_bytes_ == kRecordMarkBytes ? Result::kMalformed : Result::kMore;
}

// True within a fragment; false if the mark is not complete, or not allowed.
bool RecordReader::ReadMark(std::span<const std::byte>* input) {
  if (mark_bytes_ == kRecordMarkBytes) return fragment_left_ > 0;
  const size_t taken = std::min(kRecordMarkBytes - mark_bytes_, input->size());
  std::copy_n(input->begin(), taken, mark_.begin() + static_cast<ptrdiff_t>(mark_bytes_));
  *input = input->subspan(taken);
  mark_bytes_ += taken;
  return mark_bytes_ == kRecordMarkBytes && BeginFragment();
}

bool RecordReader::BeginFragment() {
  uint32_t mark = 0;
  for (const std::byte byte : mark_) mark = mark << 8 | std::to_integer<uint32_t>(byte);
  last_ = (mark & kLastFragment) != 0;
  fragment_left_ = mark & ~kLastFragment;
  return ++fragments_ <= kMaxFragments && fragment_left_ <= kMaxRecordBytes - record_.size();
}

std::vector<std::byte> RecordReader::Take() {
  fragments_ = 0;
  return std::exchange(record_, {});
}

std::array<std::byte, kRecordMarkBytes> MarkOf(size_t bytes) {
  const uint32_t mark = kLastFragment | static_cast<uint32_t>(bytes);
  std::array<std::byte, kRecordMarkBytes> in_order;
  for (size_t i = 0; i < in_order.size(); ++i)
    in_order[i] = static_cast<std::byte>(mark >> (24 - 8 * i));
  return in_order;
}

}  // namespace rpcrdma
