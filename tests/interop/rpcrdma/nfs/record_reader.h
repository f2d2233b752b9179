// Finds the records in a TCP stream of RPC messages (RFC 5531, 11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rpcrdma {

inline constexpr size_t kRecordMarkBytes = 4;
inline constexpr size_t kMaxRecordBytes = (1 << 20) + (1 << 16);  // a WRITE of 1 MiB, and its head
inline constexpr size_t kMaxFragments = 4096;                     // of one record

class RecordReader {
 public:
  enum class Result { kMore, kRecord, kMalformed };

  // Consumes bytes from the front of `input`, up to the end of a record. kMore: `input` is used up.
  // kMalformed: the record is too long, empty, or in too many fragments; the stream is of no use
  // any more.
  Result Read(std::span<const std::byte>* input);
  // The record that Read() has found.
  std::vector<std::byte> Take();
  // Whether a record has begun and not ended.
  bool InRecord() const { return mark_bytes_ > 0 || fragments_ > 0; }

 private:
  bool ReadMark(std::span<const std::byte>* input);
  bool BeginFragment();

  std::array<std::byte, kRecordMarkBytes> mark_{};
  size_t mark_bytes_ = 0;     // of the present fragment's mark; all of them: within the fragment
  size_t fragment_left_ = 0;  // bytes
  size_t fragments_ = 0;      // of the present record
  bool last_ = false;         // fragment of the record
  std::vector<std::byte> record_;
};

// The mark of a record of `bytes` bytes in one fragment.
std::array<std::byte, kRecordMarkBytes> MarkOf(size_t bytes);

}  // namespace rpcrdma
