#include "tests/unit/tools/decode/captures.h"

#include <gtest/gtest.h>

namespace roci::tools {
namespace {

Result ReadWith(const Bytes& file, size_t ahead) {
  size_t at = 0;
  CaptureReader reader(
      [&](std::byte* p, size_t n) {
        const size_t count = std::min(n, file.size() - at);
        if (count != 0) std::memcpy(p, file.data() + at, count);
        at += count;
        return count;
      },
      ahead);
  Result result;
  CaptureRecord record;
  while ((result.outcome = reader.Next(record)) == Outcome::kRecord) {
    result.bytes.emplace_back(record.bytes.begin(), record.bytes.end());
    result.records.push_back(record);
  }
  EXPECT_EQ(reader.Next(record), result.outcome);
  result.error = reader.error();
  EXPECT_EQ(result.error.empty(), result.outcome == Outcome::kEnd);
  result.dropped = reader.dropped();
  return result;
}

}  // namespace

Result ReadAll(const Bytes& file) {
  constexpr size_t kOddAhead = 7;
  Result result = ReadWith(file, 0);
  const Result ahead = ReadWith(file, kOddAhead);
  EXPECT_EQ(ahead.outcome, result.outcome);
  EXPECT_EQ(ahead.error, result.error);
  EXPECT_EQ(ahead.bytes, result.bytes);
  EXPECT_EQ(ahead.dropped, result.dropped);
  return result;
}

Writer Pcap(bool swapped, uint32_t magic, uint32_t link_type) {
  Writer file(swapped);
  file.Put(magic).Put(uint16_t{2}).Put(uint16_t{4}).Put(0).Put(0).Put(65535).Put(link_type);
  return file;
}

Writer SectionHeader(bool swapped) {
  Writer body(swapped);
  body.Put(0x1A2B3C4Du).Put(uint16_t{1}).Put(uint16_t{0}).Put(~uint64_t{0});
  return Writer(swapped).Block(0x0A0D0D0A, body);
}

Writer Interface(bool swapped, uint16_t link_type, uint8_t resolution, int64_t offset_s) {
  Writer body(swapped);
  body.Put(link_type).Put(uint16_t{0}).Put(uint32_t{0});
  if (resolution != 0) body.Put(uint16_t{9}).Put(uint16_t{1}).Put(resolution).Pad();
  if (offset_s != 0) body.Put(uint16_t{14}).Put(uint16_t{8}).Put(offset_s);
  body.Put(uint16_t{0}).Put(uint16_t{0});
  return Writer(swapped).Block(1, body);
}

Writer Packet(bool swapped, uint32_t interface, uint64_t time, uint32_t original,
              const Bytes& bytes, uint32_t flags) {
  Writer body(swapped);
  body.Put(interface).Put(static_cast<uint32_t>(time >> 32)).Put(static_cast<uint32_t>(time));
  body.Put(static_cast<uint32_t>(bytes.size())).Put(original).Put(bytes).Pad();
  if (flags != 0) body.Put(uint16_t{2}).Put(uint16_t{4}).Put(flags).Put(uint32_t{0});
  return Writer(swapped).Block(6, body);
}

}  // namespace roci::tools
