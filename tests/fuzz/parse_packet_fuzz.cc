// Fuzzes gate 1 and the frame encoder. The first byte of the input selects whether the checksums of
// the following frame are corrected first, since a fuzzer cannot guess a CRC. An accepted packet
// must lie inside the frame, and be equal after encoding and parsing again.
#include <cstdint>
#include <cstring>
#include <vector>

#include "roce/frame.h"
#include "roce/icrc.h"
#include "roce/parse.h"
#include "roce/resend.h"
#include "tests/fuzz/fuzz.h"

namespace roci::roce {
namespace {

using Frame = std::vector<std::byte>;

void FixIpv4Checksum(Frame& frame, size_t ip) {
  std::memset(frame.data() + ip + 10, 0, 2);
  const auto checksum = static_cast<uint16_t>(~Ipv4HeaderSum(frame.data() + ip));
  std::memcpy(frame.data() + ip + 10, &checksum, sizeof(checksum));
}

void FixChecksums(Frame& frame) {
  const size_t ip = frame.size() >= 18 && LoadBe<uint16_t>(frame.data() + 12) == 0x8100 ? 18 : 14;
  if (frame.size() >= ip + 20 && LoadBe<uint16_t>(frame.data() + ip - 2) == 0x0800) {
    FixIpv4Checksum(frame, ip);
  }
  Packet packet;
  if (ParseHeaders(frame, packet) != DropReason::kNone) return;
  const size_t icrc =
      static_cast<size_t>(packet.network_header - frame.data()) + packet.network_bytes - kIcrcBytes;
  StoreIcrc(frame.data() + icrc,
            AvailableCrcKernels().front()->masked(
                packet.network_header, packet.network_bytes - kIcrcBytes, packet.is_ipv6));
}

bool Inside(const Frame& frame, const std::byte* p, size_t n) {
  return p >= frame.data() && p + n <= frame.data() + frame.size();
}

void CheckInvariants(const Frame& frame, const Packet& packet) {
  CHECK(packet.info != nullptr && packet.info->known && packet.info->opcode == packet.opcode);
  CHECK(Inside(frame, packet.network_header, packet.network_bytes));
  CHECK(Inside(frame, packet.payload.data(), packet.payload.size()));
  CHECK(packet.payload.data() + packet.payload.size() + packet.pad_count + kIcrcBytes ==
        packet.network_header + packet.network_bytes);
  CHECK(packet.payload.size() <= kMaxPathMtuBytes);
  CHECK(packet.payload.empty() || packet.info->payload != PayloadRule::kNone);
  CHECK(packet.payload.size() == 8 || packet.info->payload != PayloadRule::kEightBytes);
  CHECK(packet.src_gid.IsIpv4() == !packet.is_ipv6 && packet.dst_gid.IsIpv4() == !packet.is_ipv6);
}

Frame Encode(const Packet& packet) {
  const FrameTemplate tmpl(PathOf(packet));
  const TxPacket tx = TxOf(packet);
  Frame frame(FrameBytes(tmpl, tx));
  CHECK(EncodeFrame(tmpl, tx, packet.payload.data(), 1, frame.data()) == frame.size());
  return frame;
}

void CheckFrame(const Frame& frame) {
  Packet packet;
  const DropReason reason = ParsePacket(frame, packet);
  CHECK(static_cast<size_t>(reason) < kDropReasonCount);
  Packet in_steps;
  DropReason steps = ParseHeaders(frame, in_steps);
  if (steps == DropReason::kNone) steps = CheckIcrc(in_steps);
  CHECK(steps == reason);
  if (reason != DropReason::kNone) return;

  CheckInvariants(frame, packet);
  const Frame encoded = Encode(packet);
  Packet again;
  CHECK(ParsePacket(encoded, again) == DropReason::kNone);
  CheckInvariants(encoded, again);
  CHECK(again.opcode == packet.opcode && again.psn == packet.psn);
  CHECK(again.network_bytes == packet.network_bytes && again.pad_count == packet.pad_count);
  CHECK(again.payload.size() == packet.payload.size());
  CHECK(std::memcmp(again.payload.data(), packet.payload.data(), packet.payload.size()) == 0);
  // Reserved bits are cleared now, so a second pass changes nothing.
  CHECK(Encode(again) == encoded);
}

}  // namespace
}  // namespace roci::roce

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  roci::roce::Frame frame(bytes + 1, bytes + size);
  if ((data[0] & 1) != 0) roci::roce::FixChecksums(frame);
  roci::roce::CheckFrame(frame);
  return 0;
}
