#include "dataplane/port/port_rings.h"

#include <rte_ethdev.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "dataplane/port/port_devargs.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kLeastAutomatic = 512;
constexpr uint32_t kMemifLog2Entries = 10;  // the default of net_memif
constexpr uint32_t kVirtioEntries = 256;    // of net_virtio_user and of QEMU
constexpr uint32_t kAfPacketFrames = 512;   // of net_af_packet
constexpr uint32_t kAfPacketBlockBytes = 4096;
constexpr uint32_t kAfPacketFrameBytes = 2048;
constexpr uint32_t kAfXdpEntries = 2048;  // of net_af_xdp
// Preamble, FCS and gap between frames.
constexpr uint64_t kLineOverheadBytes = 24;

uint32_t FastestMbps(uint32_t speeds) {
  struct Speed {
    uint32_t bit;
    uint32_t mbps;
  };
  constexpr Speed kSpeeds[] = {
      {RTE_ETH_LINK_SPEED_200G, 200'000}, {RTE_ETH_LINK_SPEED_100G, 100'000},
      {RTE_ETH_LINK_SPEED_56G, 56'000},   {RTE_ETH_LINK_SPEED_50G, 50'000},
      {RTE_ETH_LINK_SPEED_40G, 40'000},   {RTE_ETH_LINK_SPEED_25G, 25'000},
      {RTE_ETH_LINK_SPEED_20G, 20'000},   {RTE_ETH_LINK_SPEED_10G, 10'000}};
  for (const Speed& speed : kSpeeds) {
    if ((speeds & speed.bit) != 0) return speed.mbps;
  }
  return 0;  // slower, or unknown
}

uint32_t Log2RoundedUp(uint32_t frames) {
  return static_cast<uint32_t>(std::bit_width(frames - 1));
}

// The ring of net_af_packet consists of blocks of whole frames. Without sizes, WithDefaults may set
// them: 8 frames a block, or the driver's 2.
uint32_t AfPacketFramesPerBlock(const std::string& devargs) {
  constexpr uint32_t kOfDefaults = 8;
  if (!HasArgument(devargs, "blocksz") && !HasArgument(devargs, "framesz")) return kOfDefaults;
  const uint32_t frame_bytes = ArgumentOf(devargs, "framesz", kAfPacketFrameBytes);
  const uint32_t block_bytes = ArgumentOf(devargs, "blocksz", kAfPacketBlockBytes);
  return std::max(block_bytes / std::max(frame_bytes, 1U), 1U);
}

}  // namespace

uint32_t AutomaticRxRing(const rte_eth_dev_info& info, uint32_t mtu) {
  constexpr uint64_t kBitsPerMsAndMbps = 1000;
  const uint64_t frame_bits = 8 * (uint64_t{mtu} + kEthernetOverheadBytes + kLineOverheadBytes);
  const uint64_t frames = FastestMbps(info.speed_capa) * kBitsPerMsAndMbps / frame_bits;
  const uint32_t wanted = std::bit_ceil(
      static_cast<uint32_t>(std::clamp<uint64_t>(frames, kLeastAutomatic, kMaxRxRing)));
  return std::min<uint32_t>(wanted, info.rx_desc_lim.nb_max);
}

std::string FaultOfRxRing(const std::string& devargs) {
  struct Driver {
    std::string_view name;
    std::string_view argument;  // empty: it has none
  };
  constexpr Driver kDrivers[] = {{"net_memif", "rsize"},
                                 {"net_virtio_user", "queue_size"},
                                 {"net_af_packet", "framecnt"},
                                 {"net_vhost", ""},
                                 {"net_af_xdp", ""},
                                 {"net_tap", ""},
                                 {"net_pcap", ""},
                                 {"net_ring", ""}};
  if (!PacketInterface(devargs).empty()) return "packet sockets have no ring";
  for (const Driver& driver : kDrivers) {
    if (!devargs.starts_with(driver.name)) continue;
    const std::string name(driver.name);
    if (driver.argument.empty()) return "the ring of " + name + " has a size of its own";
    const std::string argument(driver.argument);
    return HasArgument(devargs, argument) ? "the port has " + argument + "=, which sets the same"
                                          : "";
  }
  return "";
}

std::string WithRxRing(std::string devargs, uint32_t frames) {
  if (frames == 0) return devargs;
  if (devargs.starts_with("net_memif") && !HasArgument(devargs, "rsize")) {
    return devargs + ",rsize=" + std::to_string(Log2RoundedUp(frames));
  }
  if (devargs.starts_with("net_virtio_user") && !HasArgument(devargs, "queue_size")) {
    return devargs + ",queue_size=" + std::to_string(1U << Log2RoundedUp(frames));
  }
  if (devargs.starts_with("net_af_packet") && !HasArgument(devargs, "framecnt")) {
    const uint32_t per_block = AfPacketFramesPerBlock(devargs);
    return devargs +
           ",framecnt=" + std::to_string((frames + per_block - 1) / per_block * per_block);
  }
  return devargs;
}

uint32_t RxRingOf(const std::string& devargs) {
  if (devargs.starts_with("net_memif")) {
    return 1U << std::min(ArgumentOf(devargs, "rsize", kMemifLog2Entries), 31U);
  }
  if (devargs.starts_with("net_virtio_user")) {
    return ArgumentOf(devargs, "queue_size", kVirtioEntries);
  }
  if (devargs.starts_with("net_vhost")) return kVirtioEntries;  // of most peers, which choose it
  if (devargs.starts_with("net_af_packet")) {
    return ArgumentOf(devargs, "framecnt", kAfPacketFrames);
  }
  return devargs.starts_with("net_af_xdp") ? kAfXdpEntries : 0;
}

}  // namespace roci::dataplane
