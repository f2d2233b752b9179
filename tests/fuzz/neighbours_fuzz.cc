// Fuzzes the answers to frames other than RoCE: ARP, neighbour discovery, ping, and multicast group
// queries. Input: a sequence of frames, each after two bytes of length. Every answer must be a
// valid frame, no longer than the question (except for padding), and tables must stay within their
// limits.
#include <cstdint>
#include <vector>

#include "control/net/group_reports.h"
#include "control/net/neighbours.h"
#include "roce/headers.h"
#include "tests/fuzz/fuzz.h"

namespace roci::control {
namespace {

constexpr roce::Mac kMac{{0x02, 'r', 'o', 'c', 'i', 0}};

const AddressTable& Addresses() {
  static const std::vector<InterfaceAddress> given = {
      *ParseInterfaceAddress("10.99.0.1/24"), *ParseInterfaceAddress("fd72:6f63:6900::1/64")};
  static const std::vector<VlanSettings> vlans = [] {
    VlanSettings vlan;
    vlan.id = 100;
    vlan.addresses = given;
    return std::vector<VlanSettings>{vlan};
  }();
  static const AddressTable table(kMac, given, {}, {}, vlans);
  return table;
}

void CheckAnswer(const Frame& answer, size_t asked_bytes) {
  constexpr size_t kPadded = 60;
  constexpr size_t kLinkOption = 8;
  constexpr size_t kLongest = 90;  // an advertisement with a tag
  CHECK(answer.size() <= std::max(asked_bytes + kLinkOption, kLongest));
  CHECK(answer.size() >= kPadded);
  LinkHeader link;
  CHECK(ParseLinkHeader(answer, link));
  const roce::EthernetHeader& ethernet = link.ethernet;
  CHECK(Addresses().HasVlan(link.vlan));
  CHECK(ethernet.src == kMac);
  CHECK(ethernet.dst != kMac);
  const std::span<const std::byte> rest = link.payload;
  if (ethernet.ether_type == roce::kEtherTypeArp) {
    CHECK(ParseArp(rest).has_value());
    return;
  }
  IcmpPacket packet;
  const bool ipv6 = ethernet.ether_type == roce::kEtherTypeIpv6;
  CHECK(ParseIcmp(rest, ipv6, packet) == SlowPathReason::kHandled);
  CHECK(Addresses().IsOwn({packet.source, link.vlan}));
  if (packet.type == roce::kNdAdvertisement && ipv6) CHECK(ParseNd(packet).has_value());
}

}  // namespace
}  // namespace roci::control

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roci::control::Addresses;
  using roci::control::CheckAnswer;
  using roci::control::Frame;
  using roci::control::GroupReports;
  using roci::control::Neighbours;
  using roci::control::ParseIp;
  Neighbours neighbours(Addresses());
  const auto ignore = [](const Frame&) {};
  neighbours.Resolve(0, *ParseIp("10.99.0.1"), {*ParseIp("10.99.0.2")}, 1, ignore);
  neighbours.Resolve(0, *ParseIp("fd72:6f63:6900::1"), {*ParseIp("fd72:6f63:6900::2")}, 2, ignore);
  GroupReports groups(Addresses(), 1, 2);
  groups.Join(0, {*ParseIp("239.1.2.3")}, ignore);
  groups.Join(0, {*ParseIp("ff0e::1")}, ignore);
  roci::roce::TimeNs now = 0;
  while (size >= 2) {
    size_t length = data[0] | static_cast<size_t>(data[1]) << 8;
    data += 2;
    size -= 2;
    length = std::min(length, size);
    // A separate block, so that AddressSanitizer detects accesses past the frame.
    const auto* const bytes = reinterpret_cast<const std::byte*>(data);
    const std::vector<std::byte> frame(bytes, bytes + length);
    data += length;
    size -= length;
    neighbours.HandleFrame(now, frame, [&](const Frame& f) { CheckAnswer(f, length); });
    groups.HandleFrame(now, frame);
    CHECK(groups.size() == 2);
    now += 10'000'000;
    groups.HandleTimeout(now, [](const Frame& report) { CHECK(report.size() >= 60); });
    neighbours.HandleTimeout(now, ignore);
    CHECK(neighbours.entries().size() <= Neighbours::kMaxEntries);
  }
  CHECK(neighbours.TakeAnswers().size() <= 2);
  return 0;
}
