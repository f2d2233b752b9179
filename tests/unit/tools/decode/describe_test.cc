// The description of a frame, as text and JSON.
#include "tools/decode/describe.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/decode/captures.h"
#include "tests/unit/tools/decode/decode_frames.h"

namespace roci::tools {
namespace {

TEST(DescribeTest, TimesBefore1970) {
  Writer file = SectionHeader(false);
  file.Put(Interface(false, 1, 9, -3).bytes());
  file.Put(Packet(false, 0, 1'250'000'000, 3, kThree).bytes());
  file.Put(Packet(false, 0, 2'250'000'000, 3, kThree).bytes());
  file.Put(Packet(false, 0, 1'000'000'000, 3, kThree).bytes());
  const Result result = ReadAll(file.bytes());
  ASSERT_EQ(result.records.size(), 3u) << result.error;
  const auto frame = *DissectWhole(Encode(TestPath(false), roce::Opcode::kRcSendOnly, 5));
  EXPECT_EQ(Describe(result.records[0], frame)["time"], "-1.750000000");
  EXPECT_EQ(Describe(result.records[1], frame)["time"], "-0.750000000");
  EXPECT_EQ(Describe(result.records[2], frame)["time"], "-2.000000000");
}

TEST(DescribeTest, TheLineHasEveryFieldOfTheObject) {
  const Bytes bytes = Encode(TestPath(true), roce::Opcode::kXrcWriteOnlyImm, 5);
  const CaptureRecord record{.number = 3,
                             .has_time = true,
                             .seconds = 5,
                             .nanoseconds = 6,
                             .direction = Direction::kOut,
                             .original_length = 99,
                             .bytes = bytes};
  const auto words = Describe(record, *DissectWhole(bytes));
  const std::string line = DescribeInText(words);
  EXPECT_TRUE(line.starts_with("3 5.000000006 interface=0 direction=out length=99 ")) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const auto& [name, value] : words.items()) {
    if (!value.is_object()) continue;
    const size_t at = line.find(" " + name + "{");
    ASSERT_NE(at, std::string::npos) << name;
    for (const auto& [field, unused] : value.items()) {
      EXPECT_NE(line.find(field + "=", at), std::string::npos) << name << "." << field;
    }
  }
}

}  // namespace
}  // namespace roci::tools
