// Cost of checksums per frame: of the ICRC by each kernel; of a RoCE frame's IP header, computed
// from its queue pair's template or set up for offload by the port; of raw packets, in software or
// by the port.
#include <benchmark/benchmark.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_udp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/port/raw_checksums.h"
#include "roce/headers.h"
#include "roce/icrc.h"

namespace roci::dataplane {
namespace {

constexpr size_t kBurst = 32;
constexpr size_t kIp = 14;

// Frames as they lie in a lane's stage: mbufs and headers in the cache.
class Frames {
 public:
  explicit Frames(uint16_t payload) : bytes_(kIp + 28u + payload) {
    for (size_t i = 0; i < kBurst; ++i) {
      rte_mbuf& frame = frames_[i];
      buffers_.emplace_back(bytes_);
      frame.buf_addr = buffers_.back().data();
      frame.data_len = static_cast<uint16_t>(bytes_);
      frame.pkt_len = static_cast<uint32_t>(bytes_);
      frame.nb_segs = 1;
      std::byte* out = buffers_.back().data();
      out[12] = std::byte{8};
      roce::Ipv4Header ip{};
      ip.total_length = static_cast<uint16_t>(28 + payload);
      ip.protocol = 17;
      ip.ttl = 64;
      ip.version_ihl = 0x45;
      ip.Store(out + kIp);
      roce::StoreBe<uint16_t>(out + kIp + 24, static_cast<uint16_t>(8 + payload));
    }
  }
  rte_mbuf& operator[](size_t i) { return frames_[i]; }
  uint32_t bytes() const { return static_cast<uint32_t>(bytes_); }

 private:
  size_t bytes_;
  std::vector<std::vector<std::byte>> buffers_;
  std::array<rte_mbuf, kBurst> frames_{};
};

template <class Do>
void PerFrame(benchmark::State& state, uint16_t payload, Do&& what) {
  Frames frames(payload);
  for (auto _ : state) {
    for (size_t i = 0; i < kBurst; ++i) what(frames[i], frames.bytes());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kBurst});
}

std::byte* IpOf(rte_mbuf& frame) { return static_cast<std::byte*>(frame.buf_addr) + kIp; }

// Lengths that every frame needs, with checksums in software or by the port.
void StoreLengths(rte_mbuf& frame, uint32_t bytes) {
  const uint16_t length_and_id[2] = {rte_cpu_to_be_16(static_cast<uint16_t>(bytes - kIp)), 0};
  std::memcpy(IpOf(frame) + 2, length_and_id, sizeof(length_and_id));
}

void RoceLengthsOnly(benchmark::State& state) { PerFrame(state, 1024, StoreLengths); }
BENCHMARK(RoceLengthsOnly);

// Same as in roce/frame.cc.
void RoceFromTemplate(benchmark::State& state) {
  uint16_t of_template = 0xABCD;
  benchmark::DoNotOptimize(of_template);
  PerFrame(state, 1024, [&](rte_mbuf& frame, uint32_t bytes) {
    StoreLengths(frame, bytes);
    uint32_t sum = uint32_t{of_template} + rte_cpu_to_be_16(static_cast<uint16_t>(bytes - kIp));
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    const auto checksum = static_cast<uint16_t>(~sum);
    std::memcpy(IpOf(frame) + 10, &checksum, sizeof(checksum));
  });
}
BENCHMARK(RoceFromTemplate);

// `and_prepare`: with what drivers do before they send such a frame (rte_eth_tx_prepare), at least;
// not what they do when they send it.
void RoceOffloadFields(benchmark::State& state, bool and_prepare) {
  uint64_t lengths = rte_mbuf_tx_offload(kIp, 20, 8, 0, 0, 0, 0);
  benchmark::DoNotOptimize(lengths);
  PerFrame(state, 1024, [&](rte_mbuf& frame, uint32_t bytes) {
    StoreLengths(frame, bytes);
    frame.ol_flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
    frame.tx_offload = lengths;
    if (and_prepare) {
      rte_net_intel_cksum_prepare(&frame);
    } else {
      const uint16_t none = 0;
      std::memcpy(IpOf(frame) + 10, &none, sizeof(none));
    }
  });
}
BENCHMARK_CAPTURE(RoceOffloadFields, alone, false);
BENCHMARK_CAPTURE(RoceOffloadFields, prepared, true);

void RawInSoftware(benchmark::State& state) {
  PerFrame(state, static_cast<uint16_t>(state.range(0)),
           [](rte_mbuf& frame, uint32_t bytes) { FillChecksums(frame, bytes, 0); });
}
BENCHMARK(RawInSoftware)->Arg(18)->Arg(1472)->Arg(4172);

void RawByThePort(benchmark::State& state) {
  PerFrame(state, static_cast<uint16_t>(state.range(0)), [](rte_mbuf& frame, uint32_t bytes) {
    frame.ol_flags = 0;
    FillChecksums(frame, bytes, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM);
  });
}
BENCHMARK(RawByThePort)->Arg(18)->Arg(1472)->Arg(4172);

void RawReceived(benchmark::State& state) {
  Frames frames(static_cast<uint16_t>(state.range(0)));
  for (size_t i = 0; i < kBurst; ++i) FillChecksums(frames[i], frames.bytes(), 0);
  for (auto _ : state) {
    for (size_t i = 0; i < kBurst; ++i) benchmark::DoNotOptimize(ChecksumsAreRight(frames[i]));
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kBurst});
}
BENCHMARK(RawReceived)->Arg(18)->Arg(1472)->Arg(4172);

// ---- The ICRC, by kernel and payload. "memcpy_" rows copy first: the baseline of a fused row.

constexpr size_t kHeader = 44;  // IPv4, UDP, BTH and an AETH

struct Packet {
  explicit Packet(size_t payload_bytes) : source(payload_bytes), frame(kHeader + payload_bytes) {}
  std::vector<std::byte> source, frame;
};

using CrcOf = roce::CrcState (*)(const roce::CrcKernel&, Packet&);
struct CrcWork {
  const char* name;
  CrcOf run;
};

constexpr CrcWork kCrcWorks[] = {
    {"update",
     [](const roce::CrcKernel& kernel, Packet& packet) {
       return kernel.update(roce::kCrcInit, packet.source.data(), packet.source.size());
     }},
    {"copy_update",
     [](const roce::CrcKernel& kernel, Packet& packet) {
       return kernel.copy_update(roce::kCrcInit, packet.frame.data() + kHeader,
                                 packet.source.data(), packet.source.size());
     }},
    {"memcpy_update",
     [](const roce::CrcKernel& kernel, Packet& packet) {
       std::byte* payload = packet.frame.data() + kHeader;
       std::memcpy(payload, packet.source.data(), packet.source.size());
       return kernel.update(roce::kCrcInit, payload, packet.source.size());
     }},
    {"masked_copy",
     [](const roce::CrcKernel& kernel, Packet& packet) {
       return kernel.masked_copy(packet.frame.data(), kHeader, false, packet.source.data(),
                                 packet.source.size(), 0);
     }},
    {"memcpy_masked",
     [](const roce::CrcKernel& kernel, Packet& packet) {
       std::memcpy(packet.frame.data() + kHeader, packet.source.data(), packet.source.size());
       return kernel.masked(packet.frame.data(), packet.frame.size(), false);
     }},
};

void RegisterCrcBenchmarks() {
  for (const roce::CrcKernel* kernel : roce::AvailableCrcKernels()) {
    for (const CrcWork& work : kCrcWorks) {
      const std::string name = std::string("Icrc/") + kernel->name + "/" + work.name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [kernel, run = work.run](benchmark::State& state) {
                                     Packet packet(static_cast<size_t>(state.range(0)));
                                     for (auto _ : state) {
                                       benchmark::DoNotOptimize(run(*kernel, packet));
                                       benchmark::ClobberMemory();
                                     }
                                   })
          ->Arg(64)
          ->Arg(256)
          ->Arg(1024)
          ->Arg(4096)
          // Other load can only add time.
          ->ComputeStatistics("min", [](const std::vector<double>& times) {
            return *std::ranges::min_element(times);
          });
    }
  }
}

}  // namespace
}  // namespace roci::dataplane

int main(int argc, char** argv) {
  roci::dataplane::RegisterCrcBenchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
