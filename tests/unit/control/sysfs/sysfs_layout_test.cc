// The contents of the sysfs files.
#include "control/sysfs/sysfs_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roci::control {
namespace {

DeviceDescription Example() {
  DeviceDescription device;
  device.name = "roci0";
  device.node_guid = 0x0200'00ff'fe00'0001;
  device.sys_image_guid = 0x0123'4567'89ab'cdef;
  device.node_description = "host roci0";
  device.mac.bytes = {0x02, 0, 0, 0xab, 0xcd, 0xef};
  device.netdev = "eth7";
  device.state = SysfsPortState::kActive;
  device.gids.resize(2);
  device.gids[0].gid.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1};
  device.gids[1].gid.bytes[10] = 0xff;
  device.gids[1].gid.bytes[11] = 0xff;
  device.gids[1].gid.bytes[12] = 10;
  device.gids[1].gid.bytes[15] = 9;
  device.gids[1].netdev = "eth7";
  device.hardware_counters = {"rx_icrc_encapsulated"};
  return device;
}

TEST(SysfsLayout, WritesDeviceAttributesAsTheKernelDoes) {
  const SysfsFiles files = RenderDevice(Example(), "0-3");
  EXPECT_EQ(files.at("node_type"), "1: CA\n");
  EXPECT_EQ(files.at("node_guid"), "0200:00ff:fe00:0001\n");
  EXPECT_EQ(files.at("sys_image_guid"), "0123:4567:89ab:cdef\n");
  EXPECT_EQ(files.at("node_desc"), "host roci0\n");
  EXPECT_EQ(files.at("device/numa_node"), "-1\n");
  EXPECT_EQ(files.at("device/local_cpus"), "0000000f\n");
  EXPECT_EQ(files.at("device/local_cpulist"), "0-3\n");
}

TEST(SysfsLayout, WritesPortAttributesAsTheKernelDoes) {
  const SysfsFiles files = RenderDevice(Example(), "0");
  EXPECT_EQ(files.at("ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(files.at("ports/1/phys_state"), "5: LinkUp\n");
  EXPECT_EQ(files.at("ports/1/rate"), "100 Gb/sec (4X EDR)\n");
  EXPECT_EQ(files.at("ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(files.at("ports/1/lid"), "0x0\n");
  EXPECT_EQ(files.at("ports/1/sm_lid"), "0x0\n");
  EXPECT_EQ(files.at("ports/1/lid_mask_count"), "0\n");
  EXPECT_EQ(files.at("ports/1/sm_sl"), "0\n");
  EXPECT_EQ(files.at("ports/1/cap_mask"), "0x00010000\n");
  EXPECT_EQ(files.at("ports/1/pkeys/0"), "0xffff\n");
}

TEST(SysfsLayout, GivesEveryGidATypeAndAnInterfaceThatMayBeNone) {
  const SysfsFiles files = RenderDevice(Example(), "0");
  EXPECT_EQ(files.at("ports/1/gids/0"), "fe80:0000:0000:0000:0000:00ff:fe00:0001\n");
  EXPECT_EQ(files.at("ports/1/gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0009\n");
  EXPECT_EQ(files.at("ports/1/gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(files.at("ports/1/gid_attrs/types/1"), "RoCE v2\n");
  EXPECT_EQ(files.at("ports/1/gid_attrs/ndevs/0"), "");
  EXPECT_EQ(files.at("ports/1/gid_attrs/ndevs/1"), "eth7\n");
  GidDescription old;
  old.type = GidType::kRoceV1;
  EXPECT_EQ(RenderGids({old}).at("ports/1/gid_attrs/types/0"), "IB/RoCE v1\n");
}

TEST(SysfsLayout, HasStandardAndOwnCounters) {
  const SysfsFiles files = RenderDevice(Example(), "0");
  for (std::string_view name : StandardPortCounters()) {
    EXPECT_EQ(files.at(CounterPath(CounterGroup::kPort, name)), "0\n") << name;
  }
  for (std::string_view name : StandardHardwareCounters()) {
    EXPECT_EQ(files.at(CounterPath(CounterGroup::kHardware, name)), "0\n") << name;
  }
  EXPECT_TRUE(files.contains("ports/1/counters/port_xmit_data"));
  EXPECT_TRUE(files.contains("ports/1/hw_counters/rx_icrc_encapsulated"));
  EXPECT_FALSE(files.contains("ports/1/counters/rx_icrc_encapsulated"));
}

TEST(SysfsLayout, DescribesAnInterfaceTheKernelHasNot) {
  DeviceDescription device = Example();
  EXPECT_EQ(RenderNetdev(device).at("address"), "02:00:00:ab:cd:ef\n");
  EXPECT_EQ(RenderNetdev(device).at("operstate"), "up\n");
  device.state = SysfsPortState::kDown;
  EXPECT_EQ(RenderNetdev(device).at("operstate"), "down\n");
  EXPECT_EQ(RenderPortState(device).at("ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(RenderPortState(device).at("ports/1/phys_state"), "2: Polling\n");
  device.enabled = false;
  EXPECT_EQ(RenderPortState(device).at("ports/1/phys_state"), "3: Disabled\n");
}

TEST(SysfsLayout, NamesRates) {
  EXPECT_EQ(RateText(2'500), "2.5 Gb/sec (1X SDR)");
  EXPECT_EQ(RateText(25'000), "25 Gb/sec (1X EDR)");
  EXPECT_EQ(RateText(400'000), "400 Gb/sec (4X NDR)");
  EXPECT_EQ(RateText(1'000), "1 Gb/sec");
  EXPECT_EQ(RateText(12'345), "12.345 Gb/sec");
}

TEST(SysfsLayout, TurnsListsIntoMasks) {
  EXPECT_EQ(CpuMask("0"), "00000001");
  EXPECT_EQ(CpuMask("0-3,8"), "0000010f");
  EXPECT_EQ(CpuMask("31-32"), "00000001,80000000");
  EXPECT_EQ(CpuMask("64"), "00000001,00000000,00000000");
  EXPECT_EQ(CpuMask(""), "00000000");
  EXPECT_EQ(CpuMask("garbage,1"), "00000002");
  EXPECT_EQ(CpuMask("9-3"), "00000000");
  EXPECT_EQ(CpuMask("0-4294967295").size(), 4096u / 32 * 9 - 1);
}

TEST(SysfsLayout, RefusesInvalidPathsAndLines) {
  EXPECT_TRUE(ValidateDevice(Example()).ok());
  for (const char* name : {"", ".", "..", "a/b", "a b", "a\n", "uverbs\t"}) {
    DeviceDescription device = Example();
    device.name = name;
    EXPECT_FALSE(ValidateDevice(device).ok()) << name;
  }
  const auto refused = [](void (*spoil)(DeviceDescription&)) {
    DeviceDescription device = Example();
    spoil(device);
    return !ValidateDevice(device).ok();
  };
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.node_description = "two\nlines"; }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.board_id = std::string(65, 'x'); }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.netdev = "../../etc"; }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.netdev = ".."; }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.netdev = "sixteen-letters-"; }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.gids[1].netdev = "a b"; }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.port_counters = {"../../state"}; }));
  EXPECT_TRUE(refused([](DeviceDescription& d) { d.hardware_counters = {""}; }));
}

}  // namespace
}  // namespace roci::control
