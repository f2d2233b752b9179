#include "dataplane/port/port_offloads.h"

#include <rte_ethdev.h>

namespace roci::dataplane {
namespace {

struct Name {
  uint64_t rx, tx;
  std::string_view text;
};

constexpr Name kNames[] = {
    {RTE_ETH_RX_OFFLOAD_SCATTER, 0, "rx_scatter"},
    {RTE_ETH_RX_OFFLOAD_IPV4_CKSUM, 0, "rx_ipv4_checksum"},
    {RTE_ETH_RX_OFFLOAD_UDP_CKSUM, 0, "rx_udp_checksum"},
    {RTE_ETH_RX_OFFLOAD_TCP_CKSUM, 0, "rx_tcp_checksum"},
    {0, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM, "tx_ipv4_checksum"},
    {0, RTE_ETH_TX_OFFLOAD_UDP_CKSUM, "tx_udp_checksum"},
    {0, RTE_ETH_TX_OFFLOAD_TCP_CKSUM, "tx_tcp_checksum"},
};

constexpr uint64_t kRxChecksums =
    RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
constexpr uint64_t kTxChecksums =
    RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;

}  // namespace

PortOffloads ChecksumOffloads(const rte_eth_dev_info& info, bool is_hardware) {
  const bool tells_all = (info.rx_offload_capa & kRxChecksums) == kRxChecksums;
  return {.rx = is_hardware && tells_all ? kRxChecksums : 0,
          .tx = info.tx_offload_capa & kTxChecksums};
}

std::vector<std::string_view> NamesOf(PortOffloads offloads) {
  std::vector<std::string_view> names;
  for (const Name& name : kNames) {
    if (((name.rx & offloads.rx) | (name.tx & offloads.tx)) != 0) names.push_back(name.text);
  }
  return names;
}

}  // namespace roci::dataplane
