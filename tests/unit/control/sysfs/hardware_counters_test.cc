#include "control/sysfs/hardware_counters.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace roci::control {
namespace {

std::map<std::string, uint64_t> ByName(const std::vector<CounterValue>& values) {
  std::map<std::string, uint64_t> out;
  for (const CounterValue& value : values) {
    EXPECT_TRUE(out.emplace(value.name, value.value).second) << value.name;
  }
  return out;
}

TEST(HardwareCounters, AreThoseOfTheTree) {
  std::set<std::string> of_tree;
  for (const std::string_view name : StandardHardwareCounters()) of_tree.emplace(name);
  for (const std::string& name : HardwareCounterNames()) of_tree.insert(name);
  std::set<std::string> listed;
  for (const auto& [name, value] : ByName(HardwareCounters({}))) {
    listed.insert(name);
    EXPECT_EQ(value, 0u) << name;
  }
  EXPECT_EQ(listed, of_tree);
}

TEST(HardwareCounters, HaveTheNamesOfOtherDrivers) {
  dataplane::DeviceSnapshot snapshot = {};
  snapshot.tx_roce_packets = 1;
  snapshot.qp[static_cast<size_t>(roce::QpCounter::kOutOfSequence)] = 2;
  snapshot.drops[static_cast<size_t>(roce::DropReason::kIcrc)] = 3;
  auto values = ByName(HardwareCounters(snapshot));
  EXPECT_EQ(values["sent_pkts"], 1u);
  EXPECT_EQ(values["out_of_seq_request"], 2u);  // rdma_rxe
  EXPECT_EQ(values["out_of_sequence"], 2u);     // mlx5
  EXPECT_EQ(values["rx_drop_icrc"], 3u);
  EXPECT_EQ(values["rx_icrc_encapsulated"], 3u);  // mlx5
}

}  // namespace
}  // namespace roci::control
