// Counters of queue pairs in automatic mode: one counter for the queue pairs that agree in the
// criteria (RDMA_COUNTER_MASK_*). A counter is the sum over its queue pairs that exist.
#pragma once

#include <rdma/rdma_netlink.h>
#include <sys/types.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dataplane/types/queue_pair_info.h"

namespace roci::control::netlink {

struct CounterGroup {
  // Most queue pairs of one counter, so that it fits into a datagram; more get another counter.
  static constexpr size_t kMostQps = 160;
  uint32_t id = 0;
  pid_t pid = 0;
  std::string program;
  uint8_t type = 0;  // enum ibv_qp_type
  uint64_t sent_packets = 0;
  uint64_t received_packets = 0;
  uint64_t drops = 0;
  std::vector<uint32_t> qpns;
};

class CounterGroups {
 public:
  explicit CounterGroups(uint32_t mask) : mask_(mask) {}

  // `session` has the queue pair. Sessions are added in the order of their numbers.
  void Add(const dataplane::QueuePairInfo& info, uint32_t session, pid_t pid,
           const std::string& program) {
    Key key;
    if ((mask_ & RDMA_COUNTER_MASK_PID) != 0) key.pid = pid;
    if ((mask_ & RDMA_COUNTER_MASK_QP_TYPE) != 0) key.type = static_cast<uint8_t>(info.type);
    while (groups_.contains(key) && groups_[key].qpns.size() == CounterGroup::kMostQps) ++key.part;
    const auto [it, is_new] = groups_.try_emplace(key);
    CounterGroup& group = it->second;
    if (is_new) {
      const uint32_t owner = (mask_ & RDMA_COUNTER_MASK_PID) != 0 ? session : 0;
      group.id = (key.part << 26) ^ (owner * 16 + key.type);
      group.pid = pid;
      group.program = program;
      group.type = static_cast<uint8_t>(info.type);
    }
    group.sent_packets += info.tx_packets;
    group.received_packets += info.rx_packets;
    group.drops += info.drops;
    group.qpns.push_back(info.qpn.value());
  }
  bool empty() const { return groups_.empty(); }
  const CounterGroup& first() const { return groups_.begin()->second; }
  void RemoveFirst() { groups_.erase(groups_.begin()); }
  uint32_t mask() const { return mask_; }

 private:
  struct Key {
    pid_t pid = 0;
    uint8_t type = 0;
    uint32_t part = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  uint32_t mask_;
  std::map<Key, CounterGroup> groups_;
};

}  // namespace roci::control::netlink
