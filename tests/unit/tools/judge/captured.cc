#include "tests/unit/tools/judge/captured.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "roce/headers.h"
#include "roce/icrc.h"
#include "roce/packet_fields.h"
#include "tests/source_paths.h"
#include "tools/decode/capture_file.h"

namespace roci::tools::judge {
namespace {

std::span<std::byte> TransportOf(Captured& frame) {
  return std::span(frame.bytes).subspan(static_cast<size_t>(frame.bth() - frame.bytes.data()));
}

bool IsRoce(const Captured& frame) {
  constexpr size_t kUdp = 34;
  return frame.bytes.size() > kUdp + 20 &&
         roce::LoadBe<uint16_t>(&frame.bytes[12]) == roce::kEtherTypeIpv4 &&
         std::to_integer<uint8_t>(frame.bytes[23]) == roce::kIpProtocolUdp &&
         roce::LoadBe<uint16_t>(&frame.bytes[kUdp + 2]) == roce::kRoceUdpPort;
}

std::vector<std::string> Names(const Judge& judge, bool only_violations) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kRuleCount; ++i) {
    if (only_violations && kRules[i].severity != Severity::kViolation) continue;
    const std::string name(kRules[i].name);
    if (judge.findings().count(static_cast<Rule>(i), Certainty::kSure) != 0) names.push_back(name);
    if (judge.findings().count(static_cast<Rule>(i), Certainty::kUnsure) != 0) {
      names.push_back(name + "?");
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Frames LoadVector(const std::string& name) {
  const std::string path = VectorDir() + "/" + name;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  if (file == nullptr) return {};
  CaptureReader reader([file](std::byte* p, size_t n) { return std::fread(p, 1, n, file); });
  CaptureRecord record;
  Frames frames;
  while (reader.Next(record) == CaptureReader::Outcome::kRecord) {
    frames.push_back({.bytes = {record.bytes.begin(), record.bytes.end()},
                      .time_ns = record.seconds * 1'000'000'000 + record.nanoseconds,
                      .original_length = record.original_length});
  }
  std::fclose(file);
  EXPECT_FALSE(frames.empty()) << path;
  return frames;
}

size_t IndexOf(Frames& frames, roce::Opcode opcode, size_t n) {
  for (size_t i = 0; i < frames.size(); ++i) {
    if (!IsRoce(frames[i]) || *frames[i].bth() != static_cast<std::byte>(opcode)) continue;
    if (n-- == 0) return i;
  }
  ADD_FAILURE() << "no such frame";
  return 0;
}

Captured& FrameOf(Frames& frames, roce::Opcode opcode, size_t n) {
  return frames[IndexOf(frames, opcode, n)];
}

void SetField(Captured& frame, std::string_view name, uint64_t value) {
  EXPECT_TRUE(roce::WriteField(TransportOf(frame), *roce::FindPacketField(name), value)) << name;
  Seal(frame);
}

uint64_t GetField(Captured& frame, std::string_view name) {
  return roce::ReadField(TransportOf(frame), *roce::FindPacketField(name)).value_or(0);
}

void Seal(Captured& frame) {
  roce::StoreBe<uint16_t>(frame.ip() + roce::Ipv4Header::kChecksumOffset, 0);
  const auto checksum = static_cast<uint16_t>(~roce::Ipv4HeaderSum(frame.ip()));
  std::memcpy(frame.ip() + roce::Ipv4Header::kChecksumOffset, &checksum, sizeof(checksum));
  const size_t covered = roce::LoadBe<uint16_t>(frame.ip() + 2) - size_t{roce::kIcrcBytes};
  roce::StoreIcrc(frame.ip() + covered, roce::ActiveCrcKernel().masked(frame.ip(), covered, false));
}

void JudgeAll(const Frames& frames, Judge& judge, uint64_t dropped) {
  uint64_t number = 0;
  for (const Captured& frame : frames) {
    judge.Add({.number = ++number,
               .link_type = kLinkTypeEthernet,
               .has_time = true,
               .seconds = frame.time_ns / 1'000'000'000,
               .nanoseconds = static_cast<uint32_t>(frame.time_ns % 1'000'000'000),
               .original_length = frame.original_length,
               .bytes = frame.bytes});
  }
  judge.Finish(dropped);
}

std::vector<std::string> NamesOf(const Judge& judge) { return Names(judge, false); }
std::vector<std::string> ViolationsOf(const Judge& judge) { return Names(judge, true); }

}  // namespace roci::tools::judge
