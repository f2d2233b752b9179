// Writes a pcapng stream block by block, so that the file always ends with a complete block. Counts
// packets.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace roci::tools {

// The stream is the daemon's own, in host byte order.
class BlockCopy {
 public:
  // `out` stays owned by the caller.
  explicit BlockCopy(std::FILE* out) : out_(out) {}

  void Add(std::string_view bytes);

  // Nothing more is written; the statistics at the stream's end are still read.
  bool failed() const { return failed_ || malformed_; }
  uint64_t packets() const { return packets_; }
  uint64_t dropped() const { return dropped_; }
  bool has_statistics() const { return has_statistics_; }

 private:
  void Note(std::string_view block);

  std::FILE* out_;
  std::string rest_;
  bool failed_ = false;     // a write failed
  bool malformed_ = false;  // the stream is malformed
  bool has_statistics_ = false;
  uint64_t packets_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace roci::tools
