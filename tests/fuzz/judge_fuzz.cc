// Fuzzes `roci check`: captures of any bytes, and conversations of well-formed packets in any
// order, which a damaged ICRC would keep from most of the judge. It may only find, within its
// bounds.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "roce/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tools/decode/capture_file.h"
#include "tools/judge/judge.h"
#include "tools/judge/psn_gaps.h"
#include "tools/judge/report.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using fuzz::Input;
using roce::Gid;
using roce::Key;
using roce::Opcode;
using roce::OpcodeInfo;
using roce::Psn;
using roce::Qpn;

void CheckResults(const Judge& judge) {
  CHECK(judge.findings().list().size() <= kRuleCount * Findings::kMostPerRule);
  for (const Finding& finding : judge.findings().list()) {
    CHECK(FindingText(finding).size() < 1024);
    CHECK(FindingJson(finding).contains("rule"));
  }
  CHECK(judge.flows().flows().size() <= FlowTable::kMostFlows);
  for (const Flow& flow : judge.flows().flows()) {
    CHECK(flow.peer == nullptr || flow.peer->peer == &flow);
    CHECK(flow.requests.sent.size() <= kMostSent);
    CHECK(flow.requests.gaps.size() <= kMostGaps);
    CHECK(flow.requests.awaiting <= flow.requests.sent.size());
    CHECK(!FlowText(flow).empty());
    CHECK(FlowJson(flow).contains("packets"));
  }
  CHECK(!GoodputSvg(judge.flows()).empty());
}

void JudgeFile(const uint8_t* data, size_t size) {
  size_t at = 0;
  CaptureReader reader([&](std::byte* p, size_t n) {
    const size_t count = std::min(n, size - at);
    if (count != 0) std::memcpy(p, data + at, count);
    at += count;
    return count;
  });
  Judge judge;
  CaptureRecord record;
  while (reader.Next(record) == CaptureReader::Outcome::kRecord) judge.Add(record);
  judge.Finish();
  CheckResults(judge);
}

// Seven bytes of the input.
struct Step {
  uint8_t opcode;  // index of those that exist
  uint8_t flags;   // bit 0: direction; 1: AckReq; 2..3: queue pair; 4: far PSN; 5..6: ECN
  uint8_t psn;
  uint8_t length;
  uint8_t syndrome;
  uint8_t msn;
  uint8_t wait;
};

const std::vector<Opcode>& KnownOpcodes() {
  static const std::vector<Opcode> known = [] {
    std::vector<Opcode> all;
    for (const OpcodeInfo& info : roce::kOpcodeTable) {
      if (info.known) all.push_back(info.opcode);
    }
    return all;
  }();
  return known;
}

constexpr std::array<uint32_t, 8> kLengths = {0, 1, 255, 256, 512, 1024, 1025, 4096};

std::vector<std::byte> Encode(const Step& step) {
  const bool is_back = (step.flags & 1) != 0;
  roce::Path path;
  path.src_gid = Gid::FromIpv4(roce::Ipv4{{10, 0, 0, static_cast<uint8_t>(is_back ? 2 : 1)}});
  path.dst_gid = Gid::FromIpv4(roce::Ipv4{{10, 0, 0, static_cast<uint8_t>(is_back ? 1 : 2)}});
  path.udp_src_port = 0xC000;
  path.traffic_class = (step.flags >> 5) & 3;
  roce::TxPacket tx;
  tx.opcode = KnownOpcodes()[step.opcode % KnownOpcodes().size()];
  tx.ack_request = (step.flags & 2) != 0;
  tx.dest_qpn = Qpn((step.flags >> 2) & 3);
  tx.psn = Psn(step.psn + (step.flags & 16) * 0x40000u - 16);
  const uint32_t length = kLengths[step.length % kLengths.size()];
  switch (roce::InfoOf(tx.opcode).payload) {
    case roce::PayloadRule::kNone:
      break;
    case roce::PayloadRule::kEightBytes:
      tx.payload_length = 8;
      break;
    case roce::PayloadRule::kAny:
      tx.payload_length = length;
  }
  tx.ext.reth = {0x1000, Key(1), length * (1u + step.length / 8)};
  tx.ext.atomic = {uint64_t{step.length}, Key(1), 1, 1};
  tx.ext.atomic_ack = {step.length};
  tx.ext.aeth = {step.syndrome, roce::Msn(step.msn)};
  tx.ext.deth = {0x80010000, Qpn(1)};
  const roce::FrameTemplate tmpl(path);
  const std::vector<std::byte> payload(tx.payload_length);
  std::vector<std::byte> frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 0, frame.data());
  return frame;
}

void JudgeSteps(Input input) {
  Judge judge;
  int64_t time_ns = 0;
  for (uint64_t number = 1; !input.empty(); ++number) {
    const auto step = input.Take<Step>();
    time_ns += int64_t{step.wait} << (step.wait & 31);
    const std::vector<std::byte> frame = Encode(step);
    judge.Add({.number = number,
               .link_type = kLinkTypeEthernet,
               .has_time = true,
               .seconds = time_ns / 1'000'000'000,
               .nanoseconds = static_cast<uint32_t>(time_ns % 1'000'000'000),
               .original_length = static_cast<uint32_t>(frame.size()),
               .bytes = frame});
  }
  judge.Finish();
  CheckResults(judge);
}

}  // namespace
}  // namespace roci::tools::judge

// The first byte: 0 steps, else a capture file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 0) {
    roci::tools::judge::JudgeSteps(roci::fuzz::Input(data + 1, size - 1));
  } else {
    roci::tools::judge::JudgeFile(data, size);
  }
  return 0;
}
