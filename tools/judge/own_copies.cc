#include "tools/judge/own_copies.h"

#include <functional>
#include <string_view>

#include "memory/split_mix.h"
#include "roce/headers.h"

namespace roci::tools::judge {
namespace {

uint64_t NumberOf(const roce::Mac& address) {
  uint64_t number = 0;
  for (const uint8_t byte : address.bytes) number = number << 8 | byte;
  return number;
}

// Equal for equal frames of an interface.
uint64_t HashOf(const CaptureRecord& record, uint32_t interface) {
  const auto* begin = reinterpret_cast<const char*>(record.bytes.data());
  return std::hash<std::string_view>()({begin, record.bytes.size()}) ^
         interface * memory::kGoldenRatio64;
}

}  // namespace

// The source address alone does not tell: a raw packet queue pair, or a replayed frame, may send
// with a peer's. The sent frame is always captured first.
bool OwnCopies::IsCopy(const CaptureRecord& record, uint32_t interface) {
  if (record.direction == Direction::kUnknown || record.link_type != kLinkTypeEthernet ||
      record.bytes.size() < roce::EthernetHeader::kBytes) {
    return false;
  }
  const roce::EthernetHeader header = roce::EthernetHeader::Load(record.bytes.data());
  const Sender source{interface, NumberOf(header.src)};
  if (record.direction != Direction::kOut) {
    return IsKnown(source) && TakeSent(HashOf(record, interface));
  }
  if (!IsKnown(source) && senders_.size() < kMostSenders) senders_.insert(source);
  const bool may_return = header.dst.IsGroup() || IsKnown({interface, NumberOf(header.dst)});
  if (may_return) NoteSent(HashOf(record, interface));
  return false;
}

bool OwnCopies::IsKnown(const Sender& sender) {
  if (sender == last_) return true;
  if (!senders_.contains(sender)) return false;
  last_ = sender;
  return true;
}

void OwnCopies::NoteSent(uint64_t hash) {
  if (hashes_.empty()) hashes_.resize(kMostFrames);
  uint64_t& place = hashes_[sent_ % kMostFrames];
  if (sent_ >= kMostFrames) open_.erase({place, sent_ - kMostFrames});
  place = hash;
  open_.insert({hash, sent_++});
}

bool OwnCopies::TakeSent(uint64_t hash) {
  const auto oldest = open_.lower_bound({hash, 0});
  if (oldest == open_.end() || oldest->first != hash) return false;
  open_.erase(oldest);
  return true;
}

}  // namespace roci::tools::judge
