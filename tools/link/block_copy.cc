#include "tools/link/block_copy.h"

#include <cstring>

#include "control/manage/pcapng_writer.h"

namespace roci::tools {
namespace {

template <class T>
T Load(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

constexpr uint32_t kShortestBlock = 12;

}  // namespace

void BlockCopy::Add(std::string_view bytes) {
  rest_ += bytes;
  size_t end = 0;
  while (!malformed_ && rest_.size() - end >= kShortestBlock) {
    const std::string_view from = std::string_view(rest_).substr(end);
    const uint32_t length = Load<uint32_t>(from, 4);
    malformed_ = length < kShortestBlock;
    if (malformed_ || from.size() < length) break;
    Note(from.substr(0, length));
    end += length;
  }
  if (end != 0 && !failed_) {
    failed_ = std::fwrite(rest_.data(), 1, end, out_) != end || std::fflush(out_) != 0;
  }
  rest_.erase(0, malformed_ ? rest_.size() : end);
}

void BlockCopy::Note(std::string_view block) {
  const uint32_t type = Load<uint32_t>(block, 0);
  if (type == control::pcapng::kEnhancedPacket && !failed_) ++packets_;
  if (type != control::pcapng::kInterfaceStatistics) return;
  has_statistics_ = true;
  // Options follow interface and time; the second option is the number of dropped frames.
  constexpr size_t kDroppedAt = 8 + 12 + 12 + 4;
  if (block.size() >= kDroppedAt + 8) dropped_ = Load<uint64_t>(block, kDroppedAt);
}

}  // namespace roci::tools
