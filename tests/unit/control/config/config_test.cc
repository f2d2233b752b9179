#include "control/config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/unit/control/config/congestion_fields.h"

namespace roci::control {
namespace {

std::string Fault(std::string_view text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "t.toml");
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(ConfigTest, DefaultIsTwoDevicesOnOneWire) {
  const Config config = DefaultConfig();
  ASSERT_EQ(config.devices.size(), 2u);
  EXPECT_EQ(config.devices[0].name, "roci0");
  EXPECT_EQ(config.devices[1].name, "roci1");
  EXPECT_EQ(config.devices[0].wire, config.devices[1].wire);
  EXPECT_NE(config.devices[0].mac, config.devices[1].mac);
  EXPECT_EQ(config.devices[0].mac->bytes[0] & 3, 2) << "unicast and locally administered";
  EXPECT_EQ(IpText(config.devices[1].addresses[0].gid), "10.99.0.2");
}

TEST(ConfigTest, EmptyFileMeansDefaults) {
  const absl::StatusOr<Config> config = ParseConfig("# nothing\n", "t.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices.size(), 2u);
  EXPECT_EQ(config->daemon.lcores, 1u);
}

TEST(ConfigTest, ReadsEveryKey) {
  const absl::StatusOr<Config> config = ParseConfig(R"(
[daemon]
lcores = 2
pin = [3, 5]
hugepages = "off"
memory_mib = 512
spin = true
idle_sleep_us = 50
realtime = "off"
fairness = "user"
log_level = "debug"
eal_args = ["--no-telemetry"]
[memory]
policy = "process_vm"
auto_inline = 64
[limits]
max_qp = 10
max_cq = 11
max_mr = 12
max_mw = 19
max_dm_bytes = 8192
max_pd = 13
max_ah = 14
max_srq = 20
max_srq_wr = 21
max_qp_wr = 15
max_cqe = 16
max_rd_atomic = 4
max_sessions = 17
ring_memory_mib = 18
user_percent = 19
[[wire]]
name = "w"
[[device]]
name = "a"
wire = "w"
mac = "02:00:00:00:00:aa"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
gateway4 = "192.0.2.254"
gateway6 = "2001:db8::ff"
routes = ["10.1.0.0/16 via 192.0.2.9", "2001:db8:1::/48 via fe80::9"]
mtu = 1500
rate_mbps = 25000
[[device.vlan]]
id = 100
addresses = ["192.0.2.1/24", "198.51.100.1/24"]
gateway4 = "198.51.100.254"
gateway6 = "fe80::1"
routes = ["10.1.0.0/16 via 198.51.100.9"]
egress_qos_map = ["0:1", "6:7"]
[[device.vlan]]
id = 4094
[[device]]
name = "b"
port = "net_tap0,iface=x"
)",
                                                    "t.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->daemon.lcores, 2u);
  EXPECT_EQ(config->daemon.pin, (std::vector<uint32_t>{3, 5}));
  EXPECT_EQ(config->daemon.hugepages, dataplane::HugePages::kOff);
  EXPECT_EQ(config->daemon.memory_mib, 512u);
  EXPECT_TRUE(config->daemon.spin);
  EXPECT_EQ(config->daemon.idle_sleep_us, 50u);
  EXPECT_EQ(config->daemon.realtime, dataplane::RealtimeUse::kOff);
  EXPECT_EQ(config->daemon.fairness, dataplane::Fairness::kUser);
  EXPECT_EQ(config->daemon.log_level, LogLevel::kDebug);
  EXPECT_EQ(config->daemon.eal_args, std::vector<std::string>{"--no-telemetry"});
  EXPECT_EQ(config->memory.policy, ROCI_ABI_MEMORY_PROCESS_VM);
  EXPECT_EQ(config->memory.auto_inline, 64u);
  const DeviceLimits& limits = config->limits.device;
  EXPECT_EQ(limits.max_qp, 10u);
  EXPECT_EQ(limits.max_cq, 11u);
  EXPECT_EQ(limits.max_mr, 12u);
  EXPECT_EQ(limits.max_mw, 19u);
  EXPECT_EQ(limits.max_dm_bytes, 8192u);
  EXPECT_EQ(limits.max_pd, 13u);
  EXPECT_EQ(limits.max_ah, 14u);
  EXPECT_EQ(limits.max_srq, 20u);
  EXPECT_EQ(limits.max_srq_wr, 21u);
  EXPECT_EQ(limits.max_qp_wr, 15u);
  EXPECT_EQ(limits.max_cqe, 16u);
  EXPECT_EQ(limits.max_rd_atomic, 4u);
  EXPECT_EQ(config->limits.max_sessions, 17u);
  EXPECT_EQ(config->limits.ring_memory_mib, 18u);
  EXPECT_EQ(config->limits.user_percent, 19u);
  ASSERT_EQ(config->devices.size(), 2u);
  const DeviceConfig& a = config->devices[0];
  EXPECT_EQ(MacText(*a.mac), "02:00:00:00:00:aa");
  ASSERT_EQ(a.addresses.size(), 2u);
  EXPECT_EQ(a.addresses[0].prefix_length, 24);
  EXPECT_EQ(IpText(a.addresses[1].gid), "2001:db8::1");
  EXPECT_EQ(IpText(*a.gateway4), "192.0.2.254");
  EXPECT_EQ(IpText(*a.gateway6), "2001:db8::ff");
  ASSERT_EQ(a.routes.size(), 2u);
  EXPECT_EQ(RouteText(a.routes[0]), "10.1.0.0/16 via 192.0.2.9");
  EXPECT_EQ(RouteText(a.routes[1]), "2001:db8:1::/48 via fe80::9");
  EXPECT_EQ(RoutesOf(a).size(), 7u) << "with two gateways each";
  EXPECT_EQ(a.mtu, 1500u);
  EXPECT_EQ(a.rate_mbps, 25000u);
  ASSERT_EQ(a.vlans.size(), 2u);
  EXPECT_EQ(a.vlans[0].id, 100);
  ASSERT_EQ(a.vlans[0].addresses.size(), 2u);
  EXPECT_EQ(a.vlans[0].addresses[0].net(), (roce::NetAddress{*ParseIp("192.0.2.1"), 100}));
  EXPECT_EQ(IpText(*a.vlans[0].gateway4), "198.51.100.254");
  EXPECT_EQ(IpText(*a.vlans[0].gateway6), "fe80::1");
  ASSERT_EQ(a.vlans[0].routes.size(), 1u);
  EXPECT_EQ(RouteText(a.vlans[0].routes[0]), "10.1.0.0/16 via 198.51.100.9 in VLAN 100");
  EXPECT_EQ(a.vlans[0].egress_qos_map, (std::array<uint8_t, 8>{1, 0, 0, 0, 0, 0, 7, 0}));
  EXPECT_EQ(a.vlans[1].id, 4094);
  EXPECT_TRUE(a.vlans[1].addresses.empty());
  const DeviceConfig& b = config->devices[1];
  EXPECT_EQ(b.port, "net_tap0,iface=x");
  EXPECT_FALSE(b.mac.has_value());
  EXPECT_EQ(b.mtu, kDefaultPortMtuBytes);
}

TEST(ConfigTest, FaultsOfVlans) {
  const auto fault = [](const std::string& vlan) {
    return Fault("[[device]]\nname=\"a\"\nport=\"p\"\n[[device.vlan]]\n" + vlan);
  };
  EXPECT_EQ(fault("id=1\n"), "");
  EXPECT_EQ(fault("\n"), "t.toml:4: device[0].vlan[0].id: is required");
  EXPECT_EQ(fault("id=0\n"),
            "t.toml:5: device[0].vlan[0].id: must be a whole number from 1 to 4094");
  EXPECT_EQ(fault("id=4095\n"),
            "t.toml:5: device[0].vlan[0].id: must be a whole number from 1 to 4094");
  EXPECT_EQ(fault("id=1\n[[device.vlan]]\nid=1\n"),
            "t.toml:7: device[0].vlan[1].id: another VLAN of this device has this id");
  EXPECT_EQ(fault("id=1\nmtu=5\n"),
            "t.toml:6: device[0].vlan[0].mtu: unknown key; the nearest is id");
  for (const char* mapping : {"8:0", "0:8", "1", "1:", "01:1", "1:1:1", ""}) {
    EXPECT_EQ(fault(absl::StrCat("id=1\negress_qos_map=[\"", mapping, "\"]\n")),
              absl::StrCat("t.toml:6: device[0].vlan[0].egress_qos_map: \"", mapping,
                           "\" is not \"FROM:TO\", two priorities of 0 to 7"));
  }
  EXPECT_EQ(fault("id=1\naddresses=[\"10.0.0.1/24\"]\ngateway4=\"10.0.1.1\"\n"),
            "t.toml:7: device[0].vlan[0].gateway4: 10.0.1.1 is in none of the device's networks");
  std::string many;
  for (int i = 0; i < 32; ++i) {
    absl::StrAppend(&many, "[[device.vlan]]\nid=", i + 2, "\naddresses=[\"10.", i, ".0.1/24\"]\n");
  }
  EXPECT_EQ(fault("id=1\n" + many),
            "t.toml:1: device[0].addresses: more than 63 (with the addresses of VLANs and one "
            "link-local address per VLAN)");
  const char* two =
      "[[wire]]\nname=\"w\"\n"
      "[[device]]\nname=\"a\"\nwire=\"w\"\n[[device.vlan]]\nid=1\naddresses=[\"10.0.0.1/8\"]\n"
      "[[device]]\nname=\"b\"\nwire=\"w\"\n[[device.vlan]]\nid=%\naddresses=[\"10.0.0.1/8\"]\n";
  std::string same = two;
  same[same.find('%')] = '1';
  EXPECT_NE(Fault(same).find("10.0.0.1 in VLAN 1 belongs to a on the same wire"), std::string::npos)
      << Fault(same);
  std::string other = two;
  other[other.find('%')] = '2';
  EXPECT_EQ(Fault(other), "");
}

TEST(ConfigTest, FaultsNameFileLineKeyAndReason) {
  EXPECT_EQ(Fault("[daemon]\nlcores = 0\n"),
            "t.toml:2: daemon.lcores: must be a whole number from 1 to 16");
  EXPECT_EQ(Fault("[daemon]\n\nlcore = 1\n"),
            "t.toml:3: daemon.lcore: unknown key; the nearest is lcores");
  EXPECT_EQ(Fault("[demon]\n"), "t.toml:1: demon: unknown key; the nearest is daemon");
  EXPECT_EQ(Fault("[memory]\npolicy = \"fast\"\n"),
            "t.toml:2: memory.policy: \"fast\" is not one of \"auto\", \"process_vm\", \"map\"");
  EXPECT_EQ(Fault("device = 1\n"), "t.toml:1: device: must be a list of tables: [[device]]");
  EXPECT_EQ(Fault("daemon = 1\n"), "t.toml:1: daemon: must be a table: [daemon]");
  EXPECT_EQ(Fault("[[wire]]\nname=\"w\"\n[[device]]\nwire=\"w\"\n"),
            "t.toml:3: device[0].name: is required");
  EXPECT_EQ(Fault("[[device]]\nname=\"a\"\nwire=\"w\"\n"),
            "t.toml:3: device[0].wire: no [[wire]] has this name");
  EXPECT_EQ(
      Fault("[[device]]\nname=\"a\"\nport=\"p\"\naddresses=[\"10.0.0.1/8\",\n\"nonsense\"]\n"),
      "t.toml:5: device[0].addresses: \"nonsense\" is not an IPv4 or IPv6 unicast address "
      "with a prefix length");
}

constexpr char kDeviceWithFaults[] = "[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\n";

TEST(ConfigTest, ReadsFaultsAsManagementCommandsHaveThem) {
  const auto config = ParseConfig(absl::StrCat(kDeviceWithFaults, R"(
[[device.fault]]
drop = true
ecn = false
direction = "in"
opcode = ["RC_SEND_ONLY", "0x05", "RC_SEND_ONLY"]
qp = [17, "0x12"]
psn = "+5"
pass = 1
after = "1.5ms"
chance = 0.5
program = "rping"
[[device.fault]]
verb = "reg_mr"
errno = "ENOMEM"
program = 7
delay = "20s"
set = "bth.psn+=1"
lose_event = true
)"),
                                  "t.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<std::string>& faults = config->devices[0].faults;
  ASSERT_EQ(faults.size(), 2u);
  using Json = nlohmann::json;
  EXPECT_EQ(Json::parse(faults[0]), Json::parse(R"({"drop": true, "direction": "in",
      "opcodes": [4, 5], "qps": [17, 18], "psn": 5, "psn_from_first": true, "pass": 1,
      "after_ns": 1500000, "chance": 0.5, "program": "rping"})"));
  EXPECT_EQ(Json::parse(faults[1]), Json::parse(R"({"verb": "reg_mr", "errno": "ENOMEM", "pid": 7,
      "delay_ns": 20000000000, "set": ["bth.psn+=1"], "lose_event": true})"));
}

TEST(ConfigTest, ProbabilitiesOfFaultsKeepAllDigits) {
  for (const std::string chance : {"0.12345678", "\"0.12345678\""}) {
    const absl::StatusOr<Config> config = ParseConfig(
        absl::StrCat(kDeviceWithFaults, "[[device.fault]]\ndrop = true\nchance = ", chance, "\n"),
        "t.toml");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(nlohmann::json::parse(config->devices[0].faults[0])["chance"], 0.12345678);
  }
}

TEST(ConfigTest, RefusesFaultsOfWrongForm) {
  const auto fault = [](const std::string& line) {
    return Fault(absl::StrCat(kDeviceWithFaults, "[[device.fault]]\n", line, "\n"));
  };
  const std::string at = "t.toml:7: device[0].fault[0].";
  EXPECT_EQ(fault("drop = true"), "");
  EXPECT_EQ(fault("drop = 1"), at + "drop: must be true or false");
  EXPECT_EQ(fault("dorp = true"), at + "dorp: unknown key; the nearest is drop");
  EXPECT_EQ(fault("nth = 'x'"), at + "nth: x is not a number");
  EXPECT_EQ(fault("nth = -1"), at + "nth: -1 is not a number");
  EXPECT_EQ(fault("nth = [1, 2]"), at + "nth: must be one value, not several");
  EXPECT_EQ(fault("qp = []"), at + "qp: must not be empty");
  EXPECT_EQ(fault("nth = true"), at + "nth: must be a string, a number, or an array of them");
  EXPECT_EQ(fault("for = '0s'"), at + "for: 0s is not a time up to 86400s (100ms, 30s)");
  EXPECT_EQ(fault("psn = 16777216"), at + "psn: 16777216 is not a PSN (1000, +5)");
  EXPECT_EQ(fault("direction = 'both'"), at + "direction: both is neither in nor out");
  EXPECT_EQ(fault("opcode = 'RC_SEMD'"), at + "opcode: there is no opcode RC_SEMD");
  EXPECT_EQ(fault("chance = '101%'"), at + "chance: 101% is not a probability (1%, 0.01)");
}

TEST(ConfigTest, SyntaxErrorsHaveALine) {
  EXPECT_EQ(Fault("[daemon]\nlcores = = 2\n").substr(0, 9), "t.toml:2:");
}

TEST(ConfigTest, RefusesContradictions) {
  const std::string wire = "[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\n";
  EXPECT_NE(Fault(wire + "port=\"p\"\n"), "");
  EXPECT_NE(Fault("[[device]]\nname=\"a\"\n"), "");
  EXPECT_NE(Fault(wire + "[[device]]\nname=\"a\"\nwire=\"w\"\n"), "") << "same name";
  EXPECT_NE(Fault(wire + "mac=\"02:00:00:00:00:01\"\n[[device]]\nname=\"b\"\nwire=\"w\"\n"
                         "mac=\"02:00:00:00:00:01\"\n"),
            "")
      << "same MAC";
  EXPECT_NE(Fault(wire + "addresses=[\"10.0.0.1/8\"]\n[[device]]\nname=\"b\"\nwire=\"w\"\n"
                         "addresses=[\"10.0.0.1/24\"]\n"),
            "")
      << "same address";
  EXPECT_NE(Fault(wire + "mac=\"01:00:00:00:00:01\"\n"), "") << "a group is no device's MAC";
  EXPECT_NE(Fault(wire + "addresses=[\"224.0.0.1/24\"]\n"), "");
  EXPECT_NE(Fault(wire + "addresses=[\"10.0.0.1/33\"]\n"), "");
  EXPECT_NE(Fault("[daemon]\nlcores=2\npin=[1]\n"), "");
  EXPECT_NE(Fault("[limits]\nmax_qp=16385\n"), "") << "more than is held";
  EXPECT_NE(Fault("[[wire]]\nname=\"w\"\n"), "") << "a wire without devices";
  EXPECT_EQ(Fault(wire), "");
}

TEST(ConfigTest, APortHasOneDeviceWhateverItsArguments) {
  const auto two = [](const std::string& first, const std::string& second) {
    return Fault("[[device]]\nname=\"a\"\nport=\"" + first + "\"\n[[device]]\nname=\"b\"\nport=\"" +
                 second + "\"\n");
  };
  EXPECT_NE(two("net_tap0,iface=x", "net_tap0,iface=y"), "");
  EXPECT_NE(two("03:00.0", "0000:03:00.0"), "");
  EXPECT_EQ(two("net_tap0,iface=x", "net_tap1,iface=y"), "");
  EXPECT_EQ(two("net_af_packet0,iface=x", "net_af_packet1,iface=x"), "");
}

TEST(ConfigTest, CongestionControlIsForPortsUnlessToldOtherwise) {
  const std::string devices =
      "[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\n"
      "[[device]]\nname=\"b\"\nport=\"p\"\nrate_mbps=25000\n";
  const auto uses = [](const std::string& text) {
    std::vector<bool> out;
    const absl::StatusOr<Config> config = ParseConfig(text, "t.toml");
    EXPECT_TRUE(config.ok()) << config.status();
    for (const DeviceConfig& device : config->devices) out.push_back(device.congestion.has_value());
    return out;
  };
  using Uses = std::vector<bool>;
  EXPECT_EQ(uses(""), Uses({false, false}));
  EXPECT_EQ(uses("[congestion]\nenabled=\"on\"\n"), Uses({true, true}));
  EXPECT_EQ(uses(devices), Uses({false, true}));
  EXPECT_EQ(uses("[congestion]\nenabled=\"off\"\n" + devices), Uses({false, false}));
  EXPECT_EQ(uses("[congestion]\nenabled=\"off\"\n" + devices + "congestion=\"on\"\n"),
            Uses({false, true}));
  const absl::StatusOr<Config> config = ParseConfig(
      "[congestion]\ncnp_interval_us=7\ncnp_port_interval_us=0\ncnp_dscp=46\ncnp_priority=5\nmin_"
      "rate_mbps=2\n"
      "cut_interval_us=9\nalpha_divisor=16\nalpha_period_us=60\nincrease_period_us=300\n"
      "increase_bytes=32768\nfast_recovery_steps=1\nadditive_mbps=5\nhyper_mbps=50\n"
      "burst_bytes=1500\n" +
          devices,
      "t.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(FieldsOf(*config->devices[1].congestion), FieldsOf({.line_rate_kbps = 25'000'000,
                                                                .min_rate_kbps = 2'000,
                                                                .cnp_interval_ns = 7'000,
                                                                .cnp_port_interval_ns = 0,
                                                                .cnp_dscp = 46,
                                                                .cnp_priority = 5,
                                                                .cut_interval_ns = 9'000,
                                                                .alpha_divisor = 16,
                                                                .alpha_period_ns = 60'000,
                                                                .increase_period_ns = 300'000,
                                                                .increase_bytes = 32'768,
                                                                .fast_recovery_steps = 1,
                                                                .additive_kbps = 5'000,
                                                                .hyper_kbps = 50'000,
                                                                .burst_bytes = 1'500}));
}

TEST(ConfigTest, ReadsWhatADeviceAsksOfItsPort) {
  const absl::StatusOr<Config> config = ParseConfig(
      "[[device]]\nname=\"a\"\nport=\"net_memif0\"\nrx_ring=4096\npause=\"off\"\n"
      "rx_backlog_percent=75\n[[device]]\nname=\"b\"\nport=\"03:00.0\"\npfc=[3,5]\n",
      "t.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  const dataplane::PortSettings& a = config->devices[0].port_settings;
  EXPECT_EQ(a.rx_ring, 4096u);
  EXPECT_EQ(a.pause, dataplane::FlowControlUse::kOff);
  EXPECT_EQ(a.pfc_priorities, 0);
  EXPECT_EQ(a.rx_backlog_percent, 75);
  const dataplane::PortSettings& b = config->devices[1].port_settings;
  EXPECT_EQ(b.rx_ring, 0u);
  EXPECT_EQ(b.pause, dataplane::FlowControlUse::kAuto);
  EXPECT_EQ(b.pfc_priorities, 1 << 3 | 1 << 5);
  EXPECT_FALSE(b.rx_backlog_percent.has_value());
}

TEST(ConfigTest, RefusesImpossiblePortSettings) {
  const std::string on_port = "[[device]]\nname=\"a\"\nport=\"net_tap0\"\n";
  EXPECT_EQ(Fault(on_port + "rx_ring=512\n"),
            "t.toml:4: device[0].rx_ring: the ring of net_tap has a size of its own");
  for (const char* line : {"rx_ring=63", "rx_ring=16385", "pause=\"maybe\"", "pfc=[8]",
                           "pause=\"on\"\npfc=[1]", "rx_backlog_percent=100"}) {
    EXPECT_NE(Fault("[[device]]\nname=\"a\"\nport=\"net_memif0\"\n" + std::string(line) + "\n"), "")
        << line;
  }
  const std::string on_wire = "[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\n";
  for (const char* line : {"rx_ring=512", "pause=\"off\"", "pfc=[1]", "rx_backlog_percent=0"}) {
    EXPECT_NE(Fault(on_wire + line + "\n"), "") << line;
  }
}

TEST(ConfigTest, ReadsWhetherReorderingIsTolerated) {
  const std::string device = "[[device]]\nname=\"a\"\nport=\"p\"\n";
  const absl::StatusOr<Config> off = ParseConfig(device, "t.toml");
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_EQ(off->devices[0].reorder, ReorderUse::kGoBackN);
  const absl::StatusOr<Config> on =
      ParseConfig(device + "reorder=\"tolerate\"\nreorder_wait_us=70\n", "t.toml");
  ASSERT_TRUE(on.ok()) << on.status();
  EXPECT_EQ(on->devices[0].reorder, ReorderUse::kTolerate);
  EXPECT_EQ(NameOf(on->devices[0].reorder), "tolerate");
  EXPECT_EQ(on->devices[0].reorder_wait_us, 70u);
  EXPECT_EQ(Fault(device + "reorder_wait_us=70\n"),
            "t.toml:4: device[0].reorder_wait_us: needs reorder = \"tolerate\" or \"selective\"");
  const absl::StatusOr<Config> selective =
      ParseConfig(device + "reorder=\"selective\"\nreorder_wait_us=70\n", "t.toml");
  ASSERT_TRUE(selective.ok()) << selective.status();
  EXPECT_EQ(selective->devices[0].reorder, ReorderUse::kSelective);
  EXPECT_EQ(NameOf(selective->devices[0].reorder), "selective");
  for (const char* line : {"reorder=\"maybe\"", "reorder=\"tolerate\"\nreorder_wait_us=0",
                           "reorder=\"tolerate\"\nreorder_wait_us=50001"}) {
    EXPECT_NE(Fault(device + line + "\n"), "") << line;
  }
}

TEST(ConfigTest, RefusesImpossibleCongestionControl) {
  EXPECT_EQ(Fault("[congestion]\nenabled = \"maybe\"\n"),
            "t.toml:2: congestion.enabled: \"maybe\" is not one of \"auto\", \"on\", \"off\"");
  for (const char* line : {"cnp_interval_us = 0", "cnp_dscp = 64", "cnp_priority = 8",
                           "alpha_divisor = 1", "increase_period_us = 0", "increase_bytes = 1500",
                           "fast_recovery_steps = 0", "burst_bytes = 0", "min_rate_mbps = 0"}) {
    EXPECT_NE(Fault(std::string("[congestion]\n") + line + "\n"), "") << line;
  }
  EXPECT_EQ(Fault("[congestion]\nmin_rate_mbps = 1000\n[[device]]\nname=\"a\"\nport=\"p\"\n"
                  "rate_mbps = 100\n"),
            "t.toml:6: device[0].rate_mbps: is less than min_rate_mbps of [congestion], 1000");
}

TEST(ConfigTest, AddressesAreThoseOfHosts) {
  const auto with = [](const std::string& lines) {
    return Fault("[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\n" + lines);
  };
  for (const char* bad : {"10.0.0.0/24", "10.0.0.255/24", "10.0.0.0/23", "10.0.1.255/23",
                          "fd00::/64", "255.255.255.255/32", "10.0.0.1", "fd00::1", "10.0.0.1/0",
                          "fd00::1/0", "127.0.0.1/8", "::1/128"}) {
    EXPECT_NE(with(absl::StrCat("addresses=[\"", bad, "\"]\n")), "") << bad;
  }
  for (const char* good :
       {"10.0.0.0/31", "10.0.0.1/31", "10.0.0.7/32", "10.0.0.255/23", "10.0.1.0/23", "fd00::1/64",
        "fd00::/127", "fd00::/128", "fd00::ffff/112"}) {
    EXPECT_EQ(with(absl::StrCat("addresses=[\"", good, "\"]\n")), "") << good;
  }
  EXPECT_EQ(with("addresses=[\"10.0.0.0/24\"]\n"),
            "t.toml:6: device[0].addresses: 10.0.0.0/24 is a network or broadcast address, not a "
            "host's");
  EXPECT_EQ(with("addresses=[\"10.0.0.5\"]\n"),
            "t.toml:6: device[0].addresses: 10.0.0.5 needs a prefix length, as in "
            "10.0.0.5/24");
}

TEST(ConfigTest, RefusesArgumentsThatMakeDpdkExit) {
  const auto with = [](const std::string& args) {
    return Fault("[daemon]\neal_args = [" + args + "]\n");
  };
  EXPECT_EQ(with("\"nonsense\""), "t.toml:2: daemon.eal_args: \"nonsense\" is not a DPDK option");
  EXPECT_NE(with("\"--legacy-mem\", \"--help\""), "");
  EXPECT_NE(with("\"--file-prefix=x\""), "") << "the daemon's own";
  EXPECT_EQ(with("\"--legacy-mem\", \"-d\", \"some.so\""), "");
}

TEST(ConfigTest, GatewaysAreNeighbours) {
  const auto with = [](const std::string& lines) {
    return Fault("[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\n" + lines);
  };
  EXPECT_EQ(with("addresses=[\"10.0.0.1/24\"]\ngateway4=\"10.0.1.1\"\n"),
            "t.toml:7: device[0].gateway4: 10.0.1.1 is in none of the device's networks");
  EXPECT_NE(with("addresses=[\"10.0.0.1/24\"]\ngateway4=\"10.0.0.1\"\n"), "") << "itself";
  EXPECT_NE(with("gateway6=\"2001:db8::1\"\n"), "");
  EXPECT_EQ(with("gateway6=\"fe80::1\"\n"), "") << "every device has a link-local address";
  EXPECT_EQ(with("addresses=[\"10.0.0.1/24\", \"fd00::5/64\"]\ngateway4=\"10.0.0.254\"\n"
                 "gateway6=\"fd00::1\"\n"),
            "");
}

TEST(ConfigTest, FaultsOfRoutes) {
  const std::string device =
      "[[wire]]\nname=\"w\"\n[[device]]\nname=\"a\"\nwire=\"w\"\naddresses=[\"10.0.0.1/24\"]\n";
  const auto with = [&](const std::string& routes, const std::string& lines = "") {
    return Fault(device + "routes=[" + routes + "]\n" + lines);
  };
  const std::string key = "t.toml:7: device[0].routes: ";
  const std::string vlan = "[[device.vlan]]\nid=7\naddresses=[\"10.7.0.1/24\"]\n";
  EXPECT_EQ(with("\"10.1.0.0/16 via 10.0.0.9\", \"default via fe80::9\""), "");
  EXPECT_EQ(with("7"), key + "each element must be a string, \"NETWORK via GATEWAY\"");
  EXPECT_EQ(with("\"10.1.0.0/16\""), key +
                                         "\"10.1.0.0/16\": not \"NETWORK via GATEWAY\", like "
                                         "\"10.1.0.0/16 via 10.99.0.9\"");
  EXPECT_EQ(
      with("\"10.1.0.0/8 via 10.0.0.9\""),
      key + "\"10.1.0.0/8 via 10.0.0.9\": invalid prefix for its length; is 10.0.0.0/8 meant?");
  EXPECT_EQ(with("\"10.1.0.0/16 via 10.7.0.9\"", vlan),
            key +
                "10.1.0.0/16 via 10.7.0.9: nexthop has invalid gateway: 10.7.0.9 is in none of "
                "the device's networks");
  EXPECT_EQ(with("\"10.1.0.0/16 via 10.0.0.9\"", vlan + "routes=[\"10.1.0.0/16 via 10.7.0.9\"]\n"),
            "");
  EXPECT_EQ(with("", vlan + "routes=[\"10.1.0.0/16 via 10.0.0.9\"]\n"),
            "t.toml:11: device[0].vlan[0].routes: 10.1.0.0/16 via 10.0.0.9: nexthop has invalid "
            "gateway: 10.0.0.9 is in none of the device's networks");
  EXPECT_EQ(with("\"10.1.0.0/16 via 10.0.0.9\", \"10.1.0.0/16 via 10.0.0.8\""),
            key + "10.1.0.0/16 is listed more than once");
  EXPECT_EQ(with("\"default via 10.0.0.9\"", "gateway4=\"10.0.0.8\"\n"),
            key + "0.0.0.0/0 is listed more than once (gateway4 and gateway6 are default routes)");
  std::string most;
  for (uint32_t i = 1; i < AddressTable::kMostRoutes; ++i) {
    absl::StrAppend(&most, i == 1 ? "" : ", ", "\"10.1.", i, ".0/24 via 10.0.0.9\"");
  }
  EXPECT_EQ(with(most, "gateway4=\"10.0.0.8\"\n"), "");
  EXPECT_EQ(with(most, "gateway4=\"10.0.0.8\"\n" + vlan + "gateway4=\"10.7.0.8\"\n"),
            key + "more than 64 (with the gateways and the routes of VLANs)");
}

TEST(ConfigTest, NamesHaveALimitThatIsTold) {
  const std::string name(64, 'x');
  const auto named = [](const std::string& text) {
    return Fault("[[device]]\nname=\"" + text + "\"\nport=\"p\"\n");
  };
  EXPECT_NE(named(name).find("at most 63"), std::string::npos) << named(name);
  EXPECT_EQ(named(name.substr(1)), "");
}

TEST(ConfigTest, MissingFile) {
  const absl::StatusOr<Config> config = LoadConfig("/nonexistent/rocid.toml");
  EXPECT_TRUE(absl::IsNotFound(config.status()));
  EXPECT_NE(config.status().message().find("/nonexistent/rocid.toml"), std::string::npos);
}

TEST(ConfigTest, DirectoryIsNoFile) {
  EXPECT_EQ(LoadConfig("/tmp").status().message(), "/tmp: cannot be read: Is a directory");
}

TEST(ConfigTest, EmptyFileOnDiskIsNoError) {
  char name[] = "/tmp/roci_config_test.XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  close(fd);
  EXPECT_TRUE(LoadConfig(name).ok());
  unlink(name);
}

}  // namespace
}  // namespace roci::control
