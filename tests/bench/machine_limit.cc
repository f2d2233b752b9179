// Measures the limit of one core of this machine with the least work for both ends of a connection;
// tools/bench compares the daemon with it. Contains nothing of the transport, only work that every
// implementation must do; each number is the best of several methods and repetitions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "roce/parse.h"
#include "tests/bench/limit_frame.h"
#include "tests/bench/limit_measure.h"

namespace roci::bench {

Memory::Memory(size_t bytes) : bytes_(bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) Die("no memory");
  data_ = static_cast<std::byte*>(p);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = i * 0x9E3779B97F4A7C15;
    std::memcpy(data_ + i, &word, 8);
  }
}

void Die(const char* why) {
  fprintf(stderr, "machine_limit: %s\n", why);
  exit(1);
}

HeaderBlock WriteOnlyBlock(uint32_t payload_bytes) {
  roce::Path path;
  path.src_mac.bytes = {2, 0, 0, 0, 0, 1};
  path.dst_mac.bytes = {2, 0, 0, 0, 0, 2};
  path.src_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.udp_src_port = 0xC000;
  roce::TxPacket packet;
  packet.opcode = roce::Opcode::kRcWriteOnly;
  packet.dest_qpn = roce::Qpn(1);
  packet.payload_length = payload_bytes;
  packet.ext.reth = {0, roce::Key(2), payload_bytes};
  std::vector<std::byte> frame(roce::kMaxFrameBytes);
  const std::vector<std::byte> payload(payload_bytes);
  roce::EncodeFrame(roce::FrameTemplate(path), packet, payload.data(), 0, frame.data());
  HeaderBlock block;
  std::memcpy(block.bytes.data(), frame.data() + kFrameBytesBeforePayload - kBlock, kBlock);
  return block;
}

namespace {

// The fast frames must be correct: the daemon's parser accepts them and refuses corrupted ones.
template <size_t kBytes>
void VerifyFrames() {
  const Memory memory(2 * kFrameSlot);
  std::byte* payload = memory.data() + kPayloadAt;
  MakeFrame<kBytes>(WriteOnlyBlock(kBytes), 7, 4096, memory.data() + kFrameSlot, payload);
  std::byte* frame = payload - kFrameBytesBeforePayload;
  std::memset(frame, 2, 6);
  const std::span<const std::byte> bytes{frame, kFrameBytesBeforePayload + kBytes + 4};
  roce::Packet packet;
  if (roce::ParsePacket(bytes, packet) != roce::DropReason::kNone || packet.psn.value() != 7 ||
      packet.ext.reth.va != 4096 || !CheckFrame<kBytes>(payload)) {
    Die("the frames it makes are no RoCEv2 frames");
  }
  payload[kBytes / 2] ^= std::byte{1};
  if (CheckFrame<kBytes>(payload)) Die("it does not notice a bad CRC");
}

nlohmann::json Measure(bool quick) {
  nlohmann::json out;
  out["crc_kernel"] = roce::ActiveCrcKernel().name;
  constexpr size_t kKiB = 1024;
  const int repetitions = quick ? 1 : 3;
  for (const size_t working_set : {8 * kKiB, 128 * kKiB, 512 * kKiB, 2048 * kKiB, 8192 * kKiB,
                                   32768 * kKiB, 1024 * 1024 * kKiB}) {
    if (quick && working_set > 32768 * kKiB) continue;
    LargeResult best;
    for (int run = 0; run < repetitions; ++run) {
      const LargeResult result = LargeLimit(working_set, 0.03);
      if (result.gbps > best.gbps) best = result;
    }
    out["large"].push_back(
        {{"working_set_bytes", working_set}, {"gbps", best.gbps}, {"way", best.best_way}});
  }
  double small = 0;
  for (int run = 0; run < 8 * repetitions; ++run) small = std::max(small, SmallLimit(0.01));
  out["small_million_per_s"] = small;
  LatencyResult least{1e9, 1e9};
  for (int run = 0; run < repetitions; ++run) {
    const LatencyResult result = LatencyLimit(quick ? 50'000 : 200'000);
    if (result.typical_us < least.typical_us) least = result;
  }
  out["read_latency_us"] = {{"typical", least.typical_us}, {"p99", least.p99_us}};
  return out;
}

}  // namespace
}  // namespace roci::bench

int main(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  if (argc > 2 || (!argument.empty() && argument != "--quick")) {
    const bool help = argument == "--help";
    fprintf(help ? stdout : stderr,
            "usage: machine_limit [--quick]\n"
            "Prints as JSON what one core can do at best with both ends of a connection.\n"
            "  --quick  one repetition, no working set beyond the caches\n");
    return help ? 0 : 2;
  }
  roci::bench::VerifyFrames<64>();
  roci::bench::VerifyFrames<4096>();
  puts(roci::bench::Measure(argument == "--quick").dump(2).c_str());
  return 0;
}
