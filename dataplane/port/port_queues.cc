#include "dataplane/port/port_queues.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace roci::dataplane {
namespace {

enum class Use : uint8_t {
  kOne,
  kPerLcore,  // the PMD makes as many as asked for and distributes frames over them
  kAll,       // their number is given by devargs or peer, and all may get frames
};

struct Rule {
  std::string_view driver;
  Use rx;
  Use tx;
};

constexpr Rule kRules[] = {
    // The kernel answers a flow on the queue by which it was sent.
    {"net_tap", Use::kPerLcore, Use::kPerLcore},
    // qpairs=, queue_count=: sockets of one group, or the queues of the network device.
    {"net_af_packet", Use::kAll, Use::kAll},
    {"net_af_xdp", Use::kAll, Use::kAll},
    // queues=: a driver may send on any queue, so the device serves all; but the driver need not
    // have
    // enabled all queues for receiving.
    {"net_virtio_user", Use::kAll, Use::kAll},
    {"net_vhost", Use::kAll, Use::kOne},
    // One queue per interface or file.
    {"net_pcap", Use::kAll, Use::kOne},
};

uint16_t Count(Use use, uint16_t most, uint32_t lcores) {
  switch (use) {
    case Use::kOne:
      return 1;
    case Use::kPerLcore:
      return static_cast<uint16_t>(std::min<uint32_t>(most, lcores));
    case Use::kAll:
      return std::max<uint16_t>(most, 1);
  }
  __builtin_unreachable();
}

}  // namespace

PortQueues QueuesOf(const std::string& devargs, bool is_hardware, PortQueues most,
                    uint32_t lcores) {
  if (is_hardware) {
    return {Count(Use::kPerLcore, most.rx, lcores),
            most.tx >= lcores ? static_cast<uint16_t>(lcores) : uint16_t{1}};
  }
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& each) {
    return devargs.starts_with(each.driver);
  });
  if (rule == std::end(kRules)) return {};
  return {Count(rule->rx, most.rx, lcores), Count(rule->tx, most.tx, lcores)};
}

PortQueues FewerThan(PortQueues queues, uint32_t lcores) {
  if (queues.rx <= 1) return {0, 0};
  const auto rx = static_cast<uint16_t>(std::bit_floor(static_cast<unsigned>(queues.rx - 1)));
  return {rx, queues.tx >= lcores && rx > 1 ? queues.tx : uint16_t{1}};
}

}  // namespace roci::dataplane
