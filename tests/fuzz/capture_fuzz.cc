// Fuzzes `roci decode`: the reader of captures, the dissection of frames and their descriptions. A
// bad frame may only get a verdict.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/fuzz.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/describe.h"
#include "tools/decode/dissect.h"
#include "tools/decode/gunzip.h"

using roci::tools::CaptureReader;
using roci::tools::CaptureRecord;
using roci::tools::Describe;
using roci::tools::DescribeInText;
using roci::tools::Dissect;
using roci::tools::FrameKind;
using roci::tools::Gunzip;
using roci::tools::IcrcVerdict;
using roci::tools::MayHideRoce;
using roci::tools::ReencodeVerdict;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  Gunzip gunzip([&](std::byte* p, size_t n) {
    const size_t count = std::min(n, size - at);
    if (count != 0) std::memcpy(p, data + at, count);
    at += count;
    return count;
  });
  CaptureReader reader([&gunzip](std::byte* p, size_t n) { return gunzip.Read(p, n); });
  CaptureRecord record;
  uint64_t records = 0;
  while (reader.Next(record) == CaptureReader::Outcome::kRecord) {
    CHECK(record.number == ++records);
    CHECK(record.nanoseconds < 1'000'000'000);
    const auto [kind, frame, hidden_by] =
        Dissect(record.bytes, record.original_length, record.link_type);
    CHECK(frame.has_value() == (kind == FrameKind::kRoce));
    CHECK(MayHideRoce(hidden_by) == (kind == FrameKind::kHidden));
    if (!frame) continue;
    CHECK(!(frame->cut && frame->failed()));
    CHECK(frame->reencoded == ReencodeVerdict::kUnchecked || frame->icrc == IcrcVerdict::kGood);
    CHECK(frame->differs_at <= record.bytes.size());
    CHECK(DescribeInText(Describe(record, *frame)).size() < 8192);
  }
  CHECK(reader.Next(record) != CaptureReader::Outcome::kRecord);
  return 0;
}
