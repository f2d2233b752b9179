// Finds the frames that an adapter has received from itself: a capture of an adapter whose queue
// pairs talk to each other has such frames twice, as sent and as received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "tools/decode/capture_file.h"

namespace roci::tools::judge {

class OwnCopies {
 public:
  // Senders in a capture; later ones are not followed.
  static constexpr size_t kMostSenders = 4096;

  // `interface`: of the record. Whether the record is a received copy of a frame that the same
  // interface has sent. False if the capture does not say which frames are sent.
  bool IsCopy(const CaptureRecord& record, uint32_t interface);

 private:
  using Sender = std::pair<uint32_t, uint64_t>;  // interface, source address of sent frames
  std::set<Sender> senders_;
  std::optional<Sender> last_;  // the last one that was inserted or found
};

}  // namespace roci::tools::judge
