// Builds capture files in memory, and reads them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tools/decode/capture_file.h"

namespace roci::tools {

using Bytes = std::vector<std::byte>;
using Outcome = CaptureReader::Outcome;

// Builds a capture in either byte order.
class Writer {
 public:
  explicit Writer(bool swapped) : swapped_(swapped) {}

  template <class T>
  Writer& Put(T value) {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    if (swapped_) std::reverse(raw, raw + sizeof(T));
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  Writer& Put(const Bytes& bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& Pad() {
    bytes_.resize((bytes_.size() + 3) & ~size_t{3});
    return *this;
  }
  // A block of pcapng around what `body` holds.
  Writer& Block(uint32_t type, const Writer& body) {
    const auto length = static_cast<uint32_t>(body.bytes_.size() + 12);
    return Put(type).Put(length).Put(body.bytes_).Put(length);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  bool swapped_;
  Bytes bytes_;
};

struct Result {
  std::vector<CaptureRecord> records;  // without their bytes
  std::vector<Bytes> bytes;
  Outcome outcome{};
  std::string error;
  uint64_t dropped = 0;
};

// Reads with and without reading ahead; both are the same.
Result ReadAll(const Bytes& file);

inline const Bytes kThree = {std::byte{1}, std::byte{2}, std::byte{3}};

Writer Pcap(bool swapped, uint32_t magic, uint32_t link_type);
Writer SectionHeader(bool swapped);
// `resolution` 0: the option is left out.
Writer Interface(bool swapped, uint16_t link_type, uint8_t resolution, int64_t offset_s = 0);
Writer Packet(bool swapped, uint32_t interface, uint64_t time, uint32_t original,
              const Bytes& bytes, uint32_t flags = 0);

}  // namespace roci::tools
