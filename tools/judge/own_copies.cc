#include "tools/judge/own_copies.h"

#include "roce/headers.h"

namespace roci::tools::judge {

// An adapter sends with its own source addresses only, and no other host uses them: a received
// frame with such an address has come back. The sent frame is always captured first.
bool OwnCopies::IsCopy(const CaptureRecord& record, uint32_t interface) {
  if (record.direction == Direction::kUnknown || record.link_type != kLinkTypeEthernet ||
      record.bytes.size() < roce::EthernetHeader::kBytes) {
    return false;
  }
  uint64_t source = 0;
  for (const uint8_t byte : roce::EthernetHeader::Load(record.bytes.data()).src.bytes) {
    source = source << 8 | byte;
  }
  const Sender sender{interface, source};
  const bool is_out = record.direction == Direction::kOut;
  const bool is_known = sender == last_ || senders_.contains(sender);
  if (is_known) last_ = sender;
  if (!is_out) return is_known;
  if (!is_known && senders_.size() < kMostSenders) last_ = *senders_.insert(sender).first;
  return false;
}

}  // namespace roci::tools::judge
