// The commented example configuration must state the real defaults.
#include <gtest/gtest.h>

#include "control/config/config.h"
#include "tests/source_paths.h"
#include "tests/unit/control/config/congestion_fields.h"

namespace roci::control {
namespace {

TEST(ExampleConfigTest, IsTheDefault) {
  const absl::StatusOr<Config> read = LoadConfig(SourceDir() + "/docs/rocid.toml");
  ASSERT_TRUE(read.ok()) << read.status();
  const Config& file = *read;
  const Config expected = DefaultConfig();
  EXPECT_EQ(file.daemon.lcores, expected.daemon.lcores);
  EXPECT_EQ(file.daemon.pin, expected.daemon.pin);
  EXPECT_EQ(file.daemon.hugepages, expected.daemon.hugepages);
  EXPECT_EQ(file.daemon.memory_mib, expected.daemon.memory_mib);
  EXPECT_EQ(file.daemon.spin, expected.daemon.spin);
  EXPECT_EQ(file.daemon.idle_sleep_us, expected.daemon.idle_sleep_us);
  EXPECT_EQ(file.daemon.realtime, expected.daemon.realtime);
  EXPECT_EQ(file.daemon.fairness, expected.daemon.fairness);
  EXPECT_EQ(file.daemon.virtual_time.is_used, expected.daemon.virtual_time.is_used);
  EXPECT_EQ(file.daemon.virtual_time.quiet_ms, expected.daemon.virtual_time.quiet_ms);
  EXPECT_EQ(file.daemon.seed, expected.daemon.seed);
  EXPECT_EQ(file.daemon.log_level, expected.daemon.log_level);
  EXPECT_EQ(file.daemon.eal_args, expected.daemon.eal_args);
  EXPECT_EQ(file.memory.policy, expected.memory.policy);
  EXPECT_EQ(file.memory.auto_inline, expected.memory.auto_inline);
  EXPECT_EQ(std::memcmp(&file.limits, &expected.limits, sizeof(LimitsConfig)), 0);
  EXPECT_EQ(file.congestion.use, expected.congestion.use);
  EXPECT_EQ(FieldsOf(file.congestion.parameters), FieldsOf(expected.congestion.parameters));
  ASSERT_EQ(file.wires.size(), expected.wires.size());
  EXPECT_EQ(file.wires[0].name, expected.wires[0].name);
  ASSERT_EQ(file.devices.size(), expected.devices.size());
  for (size_t i = 0; i < file.devices.size(); ++i) {
    EXPECT_EQ(file.devices[i].name, expected.devices[i].name);
    EXPECT_EQ(file.devices[i].mac, expected.devices[i].mac);
    EXPECT_EQ(file.devices[i].addresses, expected.devices[i].addresses);
    EXPECT_EQ(file.devices[i].wire, expected.devices[i].wire);
    EXPECT_EQ(file.devices[i].port, expected.devices[i].port);
    EXPECT_EQ(file.devices[i].mtu, expected.devices[i].mtu);
    EXPECT_EQ(file.devices[i].rate_mbps, expected.devices[i].rate_mbps);
  }
}

}  // namespace
}  // namespace roci::control
