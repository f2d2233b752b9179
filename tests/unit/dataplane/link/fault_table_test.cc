// Many faults at once.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/dataplane/link/fault_rig.h"

namespace roci::testing::faults {
namespace {

// A table finds the faults that apply one after the other would find.
TEST(FaultTableTest, FindsWhatEachFaultAloneWouldMatch) {
  std::vector<FaultSettings> all;
  for (uint32_t i = 0; i < FaultTable::kMost; ++i) {
    FaultSettings settings;
    settings.actions.copies = 1;
    if (i % 3 == 0) settings.match.filter.qpns = {roce::Qpn(i % 50), roce::Qpn(i)};
    if (i % 5 == 0) settings.match.psn = i % 70;
    if (i % 7 == 0) settings.match.filter.opcodes.set(i % 24);
    if (i % 11 == 0) settings.match.filter.peers = {roce::Qpn(3 * i)};
    if (i % 13 == 0) settings.match.psn_from_first = settings.match.psn.has_value();
    if (i % 17 == 0) settings.match.cm_message = 0x10;
    all.push_back(settings);
  }
  std::vector<std::unique_ptr<Fault>> together, alone;
  std::vector<std::unique_ptr<FaultLane>> together_lanes, alone_lanes;
  std::vector<FaultTable::Entry> entries;
  for (const FaultSettings& settings : all) {
    together.push_back(std::make_unique<Fault>(settings, 0));
    together_lanes.push_back(std::make_unique<FaultLane>(*together.back()));
    alone.push_back(std::make_unique<Fault>(settings, 0));
    alone_lanes.push_back(std::make_unique<FaultLane>(*alone.back()));
    entries.push_back({together_lanes.back().get(), settings.match.filter.qpns});
  }
  const FaultTable table(entries);
  uint64_t hits = 0;
  for (uint32_t i = 0; i < 3000; ++i) {
    Bytes bytes = i % 10 == 0 ? Datagram(i % 4, Bytes(256, std::byte{0x10}))
                              : Packet(static_cast<roce::Opcode>(i % 18), i % 80, i % 60);
    FaultFrame frame = FrameOf(bytes, i % 2 == 0 ? LinkDirection::kIn : LinkDirection::kOut);
    frame.own = roce::Qpn(i % 61);
    FaultFate one, each;
    table.VisitAll(frame, [&](FaultLane& lane) {
      lane.Apply(frame, one);
      return true;
    });
    for (const auto& lane : alone_lanes) lane->Apply(frame, each);
    EXPECT_EQ(one.copies, each.copies) << i;
    hits += each.copies;
  }
  EXPECT_GT(hits, 10'000u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(together[i]->Snapshot().matched, alone[i]->Snapshot().matched) << i;
  }
}

TEST(FaultTableTest, AFaultSeesWhatEarlierOnesHaveChanged) {
  FaultSettings change;
  change.actions.changes = {{roce::FindPacketField("bth.psn"), false, 7}};
  FaultSettings wanted = Drop();
  wanted.match.psn = 7;
  FaultSettings former = Drop();
  former.match.psn = 1;
  Fault faults[] = {Fault(former, 0), Fault(change, 0), Fault(former, 0), Fault(wanted, 0)};
  std::vector<FaultLane> lanes;
  lanes.reserve(4);
  std::vector<FaultTable::Entry> entries;
  for (Fault& fault : faults) entries.push_back({&lanes.emplace_back(fault), {}});
  const FaultTable table(std::span<const FaultTable::Entry>(entries).subspan(1));
  Bytes bytes = Packet(roce::Opcode::kRcSendOnly, 1);
  FaultFate fate;
  table.VisitAll(FrameOf(bytes), [&](FaultLane& lane) {
    lane.Apply(FrameOf(bytes), fate);
    return !fate.is_dropped;
  });
  EXPECT_TRUE(fate.is_dropped);
  EXPECT_EQ(faults[2].Snapshot().matched, 0u);
  EXPECT_EQ(faults[3].Snapshot().hit, 1u);
}

TEST(FaultTableTest, AQueuePairThatIsGoneIsNotNamedAnyMore) {
  FaultSettings settings = Drop();
  settings.match.filter.qpns = {roce::Qpn(kQpn), roce::Qpn(kQpn + 1)};
  Fault fault(settings, 0);
  FaultLane lane(fault);
  const std::vector<roce::Qpn> left = {roce::Qpn(kQpn + 1)};
  const std::vector<FaultTable::Entry> entries = {{&lane, left}};
  const FaultTable table(entries);
  for (const uint32_t qpn : {kQpn, kQpn + 1}) {
    Bytes bytes = Packet(roce::Opcode::kRcSendOnly, 1, qpn);
    FaultFate fate;
    table.VisitAll(FrameOf(bytes), [&](FaultLane& each) {
      each.Apply(FrameOf(bytes), fate);
      return true;
    });
    EXPECT_EQ(fate.is_dropped, qpn == kQpn + 1);
  }
}

}  // namespace
}  // namespace roci::testing::faults
