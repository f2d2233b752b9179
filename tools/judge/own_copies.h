// Finds the frames that an adapter has received from itself: a capture of an adapter whose queue
// pairs talk to each other has such frames twice, as sent and as received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tools/decode/capture_file.h"

namespace roci::tools::judge {

class OwnCopies {
 public:
  // Source addresses of sent frames; later ones are not followed.
  static constexpr size_t kMostSenders = 4096;
  // Sent frames whose copy may still come; a power of two.
  static constexpr size_t kMostFrames = 65536;

  // `interface`: of the record. Whether the record is a received copy of a frame that the same
  // interface has sent. Each sent frame has one copy at most. False if the capture does not say
  // which frames are sent.
  bool IsCopy(const CaptureRecord& record, uint32_t interface);

 private:
  using Sender = std::pair<uint32_t, uint64_t>;  // interface, source address of sent frames

  bool IsKnown(const Sender& sender);
  void NoteSent(uint64_t hash);
  bool TakeSent(uint64_t hash);

  std::set<Sender> senders_;
  std::optional<Sender> last_;                    // the last one that was found
  std::vector<uint64_t> hashes_;                  // of the last kMostFrames sent frames, as a ring
  uint64_t sent_ = 0;                             // numbers them
  std::set<std::pair<uint64_t, uint64_t>> open_;  // hash and number of those without a copy so far
};

}  // namespace roci::tools::judge
