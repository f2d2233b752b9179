// Raw packet queue pairs, flow rules, counters objects and receive side scaling through libibverbs.
#include "tests/integration/verbs_raw.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

namespace roci::testing {
namespace {

// A flow rule that exists while the test runs.
class Flow {
 public:
  Flow(Rule rule, ibv_qp* qp) : flow_(rule.On(qp)) { EXPECT_NE(flow_, nullptr) << strerror(errno); }
  ~Flow() { End(); }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  void End() {
    if (flow_ == nullptr) return;
    EXPECT_EQ(ibv_destroy_flow(flow_), 0);
    flow_ = nullptr;
  }
  ibv_flow* get() const { return flow_; }

 private:
  ibv_flow* flow_;
};

const Mac kGroup{0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};

Frame To(const Mac& dst, FrameOptions options = {}) {
  options.dst = dst;
  return MakeFrame(options);
}

FrameOptions With(const std::function<void(FrameOptions&)>& change) {
  FrameOptions options;
  change(options);
  return options;
}

class RawTest : public ::testing::Test {
 protected:
  RawEndpoint near_{DeviceZero()};
  RawEndpoint far_{DeviceOne(), true};
  const Mac near_mac_ = MacOf(DeviceZero());
  const Mac far_mac_ = MacOf(DeviceOne());
};

TEST_F(RawTest, FramesOfAllLengthsArriveUnchanged) {
  const Flow flow(Rule().Eth(&far_mac_), far_.qp);
  for (const size_t payload : {18u, 19u, 100u, 1472u, 4000u, 4172u}) {
    FrameOptions options;
    options.payload = payload;
    const Frame frame = To(far_mac_, options);
    ASSERT_EQ(near_.Send(frame), IBV_WC_SUCCESS) << payload;
    ASSERT_EQ(far_.Receive(), frame) << payload;
  }
  // Short ones are padded.
  Frame shortest = To(far_mac_);
  shortest.resize(14);
  ASSERT_EQ(near_.Send(shortest), IBV_WC_SUCCESS);
  shortest.resize(60);
  EXPECT_EQ(far_.Receive(), shortest);
}

TEST_F(RawTest, InvalidFrameLengths) {
  // The port's Ethernet MTU is not in the verbs; of the built-in wire it is 4200.
  constexpr size_t kLongest = 4200 + 18;
  const Flow flow(Rule().Eth(&far_mac_), far_.qp);
  Frame frame = To(far_mac_);
  frame.resize(kLongest);
  ASSERT_EQ(near_.Send(frame), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive().size(), kLongest);
  for (const size_t length : {size_t{0}, size_t{13}, kLongest + 1}) {
    RawEndpoint sender(DeviceZero());
    frame.resize(length);
    EXPECT_EQ(sender.Send(frame), IBV_WC_LOC_LEN_ERR) << length;
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(sender.qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  }
}

// A frame that is too long for the next receive is dropped, and nothing else.
TEST_F(RawTest, FramesThatDoNotFit) {
  const Flow flow(Rule().Eth(&near_mac_), near_.qp);
  RawEndpoint sender(DeviceOne());
  FrameOptions large;
  large.payload = 2000;
  for (uint32_t i = 0; i < RawEndpoint::kReceives; ++i) {
    ASSERT_EQ(sender.Send(To(near_mac_)), IBV_WC_SUCCESS);
  }
  for (uint32_t i = 0; i < RawEndpoint::kReceives; ++i) {
    ibv_wc wc = {};
    while (ibv_poll_cq(near_.cq, 1, &wc) == 0) {
    }
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  ASSERT_EQ(sender.Send(To(near_mac_)), IBV_WC_SUCCESS) << "no receive: dropped";
  ASSERT_EQ(near_.PostRecv(0, 200), 0);
  ASSERT_EQ(sender.Send(To(near_mac_, large)), IBV_WC_SUCCESS) << "too long: dropped";
  EXPECT_TRUE(near_.IsQuiet());
  ASSERT_EQ(sender.Send(To(near_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(near_.Receive(), To(near_mac_));
}

TEST_F(RawTest, WithinOneDevice) {
  RawEndpoint other(DeviceZero());
  const Flow unicast(Rule().Eth(&near_mac_), other.qp);
  const Flow group(Rule().Eth(&kGroup), other.qp);
  const Flow far_group(Rule().Eth(&kGroup), far_.qp);
  ASSERT_EQ(near_.Send(To(near_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(other.Receive(), To(near_mac_));
  ASSERT_EQ(near_.Send(To(kGroup)), IBV_WC_SUCCESS);
  EXPECT_EQ(other.Receive(), To(kGroup));
  EXPECT_EQ(far_.Receive(), To(kGroup));
  EXPECT_TRUE(other.IsQuiet(5)) << "one copy";
}

// ---- Checksums

TEST_F(RawTest, ChecksumsAreComputedAndReported) {
  RawEndpoint plain(DeviceOne());  // polled by ibv_poll_cq
  for (RawEndpoint* receiver : {&far_, &plain}) {
    const Flow flow(Rule().Eth(&far_mac_), receiver->qp);
    for (const bool tcp : {false, true}) {
      for (const int vlan : {-1, 5}) {
        const Frame frame = To(far_mac_, With([&](auto& o) {
                                 o.tcp = tcp;
                                 o.vlan = vlan;
                                 o.payload = 333;
                               }));
        ASSERT_EQ(near_.Send(frame), IBV_WC_SUCCESS);
        EXPECT_EQ(receiver->Receive(), frame) << "not requested";
        EXPECT_EQ(receiver->last_flags & IBV_WC_IP_CSUM_OK, 0u);
        ASSERT_EQ(near_.Send(frame, IBV_SEND_IP_CSUM), IBV_WC_SUCCESS);
        Frame filled = receiver->Receive();
        EXPECT_NE(filled, frame);
        EXPECT_EQ(receiver->last_flags & IBV_WC_IP_CSUM_OK, unsigned{IBV_WC_IP_CSUM_OK});
        filled.back() ^= 1;
        ASSERT_EQ(near_.Send(filled), IBV_WC_SUCCESS);
        EXPECT_EQ(receiver->Receive(), filled);
        EXPECT_EQ(receiver->last_flags & IBV_WC_IP_CSUM_OK, 0u);
      }
    }
  }
}

TEST_F(RawTest, MalformedAndOtherFramesAreSentUnchanged) {
  const Flow flow(Rule().Eth(&far_mac_), far_.qp);
  Frame frame = To(far_mac_);
  frame[17] += 1;  // the packet is longer than its frame
  ASSERT_EQ(near_.Send(frame, IBV_SEND_IP_CSUM), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), frame);
  frame[12] = 0x88;
  frame[13] = 0xB5;
  ASSERT_EQ(near_.Send(frame, IBV_SEND_IP_CSUM), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), frame);
}

// ---- Matching

struct Match {
  const char* name;
  std::function<Rule(const Mac&)> rule;
  FrameOptions hit;
  FrameOptions miss;
};

const Mac kOtherMac{0x02, 9, 9, 9, 9, 9};

std::vector<Match> Matches() {
  const FrameOptions plain;
  const auto v6 = With([](auto& o) { o.ipv6 = true; });
  const auto v6_tcp = With([](auto& o) { o.ipv6 = o.tcp = true; });
  return {
      {"source_mac", [](const Mac& d) { return Rule().Eth(&d, &kOtherMac); },
       With([](auto& o) { o.src = kOtherMac; }), plain},
      {"ether_type", [](const Mac& d) { return Rule().Eth(&d, nullptr, 0x86DD); }, v6, plain},
      {"vlan", [](const Mac& d) { return Rule().Eth(&d, nullptr, -1, 0xAC0C); },
       With([](auto& o) { o.vlan = 0xAC0C; }), With([](auto& o) { o.vlan = 0xAC0D; })},
      {"vlan_wanted", [](const Mac& d) { return Rule().Eth(&d, nullptr, -1, 7); },
       With([](auto& o) { o.vlan = 7; }), plain},
      {"behind_vlan", [](const Mac& d) { return Rule().Eth(&d).Ports(false, 1234, -1); },
       With([](auto& o) { o.vlan = 7; }), With([](auto& o) { o.src_port = 1; })},
      {"ipv4_prefix",
       [](const Mac& d) { return Rule().Eth(&d).Ipv4(0x0A090000, 0xFFFF0000, 0, 0); }, plain,
       With([](auto& o) { o.src_ip = 0x0A0A0801; })},
      {"ipv4_destination", [](const Mac& d) { return Rule().Eth(&d).Ipv4(0, 0, 0x0A090802, ~0u); },
       plain, With([](auto& o) { o.dst_ip = 0x0A090803; })},
      {"any_ipv4", [](const Mac& d) { return Rule().Eth(&d).Ipv4(0, 0, 0, 0); }, plain, v6},
      {"ipv4_tos", [](const Mac& d) { return Rule().Eth(&d).Ipv4Ext(17, 0x28); },
       With([](auto& o) { o.tos = 0x28; }), plain},
      {"ipv4_ttl", [](const Mac& d) { return Rule().Eth(&d).Ipv4Ext(-1, -1, 3); },
       With([](auto& o) { o.ttl = 3; }), plain},
      {"ipv4_protocol", [](const Mac& d) { return Rule().Eth(&d).Ipv4Ext(6); },
       With([](auto& o) { o.tcp = true; }), plain},
      {"ipv6_addresses", [](const Mac& d) { return Rule().Eth(&d).Ipv6(0x0A090801, 0x0A090802); },
       v6, With([](auto& o) {
         o.ipv6 = true;
         o.src_ip = 5;
       })},
      {"ipv6_tcp", [](const Mac& d) { return Rule().Eth(&d).Ipv6(0x0A090801, 0x0A090802, 6); },
       v6_tcp, v6},
      {"udp_ports", [](const Mac& d) { return Rule().Eth(&d).Ports(false, 1234, 5678); }, plain,
       With([](auto& o) { o.dst_port = 5679; })},
      {"udp_not_tcp", [](const Mac& d) { return Rule().Eth(&d).Ports(false, -1, 5678); }, v6,
       v6_tcp},
      {"tcp_ports", [](const Mac& d) { return Rule().Eth(&d).Ports(true, -1, 5678); }, v6_tcp, v6},
  };
}

TEST_F(RawTest, RulesMatchTheirFields) {
  for (const Match& match : Matches()) {
    SCOPED_TRACE(match.name);
    const Flow flow(match.rule(far_mac_), far_.qp);
    ASSERT_EQ(near_.Send(To(far_mac_, match.miss)), IBV_WC_SUCCESS);
    ASSERT_EQ(near_.Send(To(far_mac_, match.hit)), IBV_WC_SUCCESS);
    EXPECT_EQ(far_.Receive(), To(far_mac_, match.hit));
    EXPECT_TRUE(far_.IsQuiet(2));
  }
}

TEST_F(RawTest, TheRuleOfHigherPriorityTakesTheFrame) {
  RawEndpoint second(DeviceOne());
  const Flow low(Rule(IBV_FLOW_ATTR_NORMAL, 5).Eth(&far_mac_).Tag(55), far_.qp);
  Flow high(Rule(IBV_FLOW_ATTR_NORMAL, 1).Eth(&far_mac_).Ports(false, -1, 5678), second.qp);
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(second.Receive(), To(far_mac_));
  EXPECT_TRUE(far_.IsQuiet(5));
  const FrameOptions other = With([](auto& o) { o.dst_port = 9; });
  ASSERT_EQ(near_.Send(To(far_mac_, other)), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), To(far_mac_, other));
  EXPECT_EQ(far_.last_tag, 55u);
  high.End();
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), To(far_mac_));
}

TEST_F(RawTest, EqualRulesAndDontTrapRulesShareTheFrame) {
  RawEndpoint second(DeviceOne());
  RawEndpoint third(DeviceOne());
  Rule passing(IBV_FLOW_ATTR_NORMAL, 0);
  passing.attr().flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
  const Flow first(passing.Eth(&far_mac_), far_.qp);
  const Flow same(Rule(IBV_FLOW_ATTR_NORMAL, 1).Eth(&far_mac_), second.qp);
  const Flow again(Rule(IBV_FLOW_ATTR_NORMAL, 1).Eth(&far_mac_), third.qp);
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  for (RawEndpoint* each : {&far_, &second, &third}) EXPECT_EQ(each->Receive(), To(far_mac_));
}

TEST_F(RawTest, DroppedFramesAreCounted) {
  ibv_counters_init_attr init = {};
  ibv_counters* counters = ibv_create_counters(DeviceOne().context, &init);
  ASSERT_NE(counters, nullptr) << strerror(errno);
  ibv_counter_attach_attr attach = {};
  attach.counter_desc = IBV_COUNTER_PACKETS;
  attach.index = 2;
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), 0);
  attach.counter_desc = IBV_COUNTER_BYTES;
  attach.index = 0;
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), 0);
  // Points of one index are summed up.
  attach.counter_desc = IBV_COUNTER_PACKETS;
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), 0);
  const uint32_t unknown = 77;
  memcpy(&attach.counter_desc, &unknown, sizeof(unknown));
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), EOPNOTSUPP);
  uint64_t values[3] = {9, 9, 9};
  EXPECT_EQ(ibv_read_counters(counters, values, 2, 0), EINVAL) << "index 2 does not fit";
  {
    const Flow all(Rule(IBV_FLOW_ATTR_NORMAL, 1).Eth(&far_mac_), far_.qp);
    const Flow drop(Rule().Eth(&far_mac_).Ports(false, 1, -1).Drop().Count(counters), far_.qp);
    size_t bytes = 0;
    for (size_t i = 0; i < 10; ++i) {
      const Frame frame = To(far_mac_, With([i](auto& o) {
                               o.src_port = 1;
                               o.payload = 40 + i;
                             }));
      bytes += frame.size();
      ASSERT_EQ(near_.Send(frame), IBV_WC_SUCCESS);
    }
    ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
    EXPECT_EQ(far_.Receive(), To(far_mac_)) << "the only one that is not dropped";
    ASSERT_EQ(ibv_read_counters(counters, values, 3, 0), 0);
    EXPECT_EQ(values[0], bytes + 10);
    EXPECT_EQ(values[1], 9u) << "not named";
    EXPECT_EQ(values[2], 10u);
    attach.counter_desc = IBV_COUNTER_PACKETS;
    EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), EBUSY);
    EXPECT_EQ(ibv_destroy_counters(counters), EBUSY);
  }
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), 0) << "not bound now";
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

TEST_F(RawTest, PointsMayBeAttachedToAnExistingRule) {
  ibv_counters_init_attr init = {};
  ibv_counters* counters = ibv_create_counters(DeviceOne().context, &init);
  ASSERT_NE(counters, nullptr) << strerror(errno);
  Flow flow(Rule().Eth(&far_mac_), far_.qp);
  ibv_counter_attach_attr attach = {};
  attach.counter_desc = IBV_COUNTER_PACKETS;
  for (attach.index = 0; attach.index < 2; ++attach.index) {
    EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, flow.get()), 0);
  }
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), To(far_mac_));
  uint64_t values[2];
  ASSERT_EQ(ibv_read_counters(counters, values, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED), 0);
  EXPECT_EQ(values[0], 1u);
  EXPECT_EQ(values[1], 1u);
  // A counters object counts for one rule only.
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, nullptr), EBUSY);
  Flow other(Rule(IBV_FLOW_ATTR_NORMAL, 1).Eth(&far_mac_), far_.qp);
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &attach, other.get()), EOPNOTSUPP);
  EXPECT_EQ(ibv_create_flow(far_.qp, &Rule().Eth(&far_mac_).Count(counters).attr()), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  other.End();
  flow.End();
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

// ---- The device's own traffic

TEST_F(RawTest, DefaultRulesGetUnmatchedFrames) {
  RawEndpoint groups(DeviceOne());
  const Flow all(Rule(IBV_FLOW_ATTR_ALL_DEFAULT), far_.qp);
  const Flow multicast(Rule(IBV_FLOW_ATTR_MC_DEFAULT), groups.qp);
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), To(far_mac_));
  ASSERT_EQ(near_.Send(To(kGroup)), IBV_WC_SUCCESS);
  EXPECT_EQ(groups.Receive(), To(kGroup));
  // Frames that match a rule do not match the default rule.
  const Flow rule(Rule().Eth(&far_mac_), groups.qp);
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(groups.Receive(), To(far_mac_));
  EXPECT_TRUE(far_.IsQuiet(5));
}

TEST_F(RawTest, RdmaContinuesUnderEveryRuleAndASnifferSeesIt) {
  const Flow all(Rule(IBV_FLOW_ATTR_ALL_DEFAULT), near_.qp);
  const Flow far_all(Rule().Eth(&far_mac_), far_.qp);
  RawEndpoint sniffer(DeviceOne());
  const Flow sniff(Rule(IBV_FLOW_ATTR_SNIFFER), sniffer.qp);
  Pair pair;
  Buffer here(pair.near_device, 512, 1);
  Buffer there(pair.far_device, 512, 2);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.far.PostRecv(there.Sge(0, 512)), 0);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_SEND, here.Sge(0, 300)), 0);
    pair.near.ExpectSuccess(1);
    pair.far.ExpectSuccess(2);
  }
  EXPECT_EQ(memcmp(there.data(), here.data(), 300), 0);
  EXPECT_TRUE(far_.IsQuiet(5)) << "RDMA packets go to their queue pair only";
  for (int i = 0; i < 5; ++i) {
    const Frame frame = sniffer.Receive();
    ASSERT_GT(frame.size(), 300u);
    EXPECT_EQ(memcmp(frame.data() + 14 + 20 + 8 + 12, here.data(), 300), 0);
  }
  // The sniffer gets an additional copy.
  ASSERT_EQ(near_.Send(To(far_mac_)), IBV_WC_SUCCESS);
  EXPECT_EQ(far_.Receive(), To(far_mac_));
  EXPECT_EQ(sniffer.Receive(), To(far_mac_));
}

TEST_F(RawTest, Refusals) {
  Endpoint connected(DeviceZero());
  EXPECT_EQ(Rule().Eth(&far_mac_).On(connected.qp), nullptr);
  EXPECT_EQ(errno, EINVAL);
  Rule twice;
  twice.Eth(&far_mac_).Eth(&far_mac_);
  EXPECT_EQ(twice.On(near_.qp), nullptr);
  EXPECT_EQ(errno, EINVAL);
  Rule port;
  port.attr().port = 2;
  EXPECT_EQ(port.On(near_.qp), nullptr);
  EXPECT_EQ(errno, EINVAL);
  Rule egress;
  egress.attr().flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
  EXPECT_EQ(egress.On(near_.qp), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  Rule tunnel;
  ibv_flow_spec_tunnel spec = {};
  spec.type = IBV_FLOW_SPEC_VXLAN_TUNNEL;
  spec.size = sizeof(spec);
  EXPECT_EQ(tunnel.Add(spec).On(near_.qp), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  Rule wrong_size;
  spec.type = IBV_FLOW_SPEC_ETH;
  EXPECT_EQ(wrong_size.Add(spec).On(near_.qp), nullptr);
  EXPECT_EQ(errno, EINVAL);
  Rule sniffer(IBV_FLOW_ATTR_SNIFFER);
  EXPECT_EQ(sniffer.Eth(&far_mac_).On(near_.qp), nullptr) << "a sniffer has no specification";
  EXPECT_EQ(errno, EINVAL);
  const Flow flow(Rule().Eth(&near_mac_), near_.qp);
  EXPECT_EQ(ibv_destroy_qp(near_.qp), EBUSY);
}

// ---- Receive side scaling

constexpr uint8_t kKey[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                              0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                              0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                              0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

class RssTest : public RawTest {
 protected:
  static constexpr uint32_t kLogSize = 2;
  static constexpr uint32_t kQueues = 1 << kLogSize;

  RssTest() {
    for (uint32_t i = 0; i < kQueues; ++i) AddQueue();
    ibv_rwq_ind_table_init_attr attr = {};
    attr.log_ind_tbl_size = kLogSize;
    attr.ind_tbl = queues_.data();
    table_ = ibv_create_rwq_ind_table(DeviceOne().context, &attr);
    EXPECT_NE(table_, nullptr) << strerror(errno);
  }

 public:
  ~RssTest() override {
    if (rss_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(rss_), 0);
    }
    if (table_ != nullptr) {
      EXPECT_EQ(ibv_destroy_rwq_ind_table(table_), 0);
    }
    for (ibv_wq* queue : queues_) EXPECT_EQ(ibv_destroy_wq(queue), 0);
    for (ibv_cq* cq : cqs_) EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }

 protected:
  void AddQueue() {
    cqs_.push_back(ibv_create_cq(DeviceOne().context, 64, nullptr, nullptr, 0));
    ibv_wq_init_attr attr = {};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 32;
    attr.max_sge = 2;
    attr.pd = DeviceOne().pd;
    attr.cq = cqs_.back();
    queues_.push_back(ibv_create_wq(DeviceOne().context, &attr));
    ASSERT_NE(queues_.back(), nullptr) << strerror(errno);
    ASSERT_EQ(Move(queues_.back(), IBV_WQS_RDY), 0);
  }
  static int Move(ibv_wq* queue, ibv_wq_state state) {
    ibv_wq_attr attr = {};
    attr.attr_mask = IBV_WQ_ATTR_STATE;
    attr.wq_state = state;
    return ibv_modify_wq(queue, &attr);
  }
  static int Post(ibv_wq* queue, ibv_sge sge, uint64_t wr_id) {
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_wq_recv(queue, &wr, &bad);
  }
  ibv_qp* CreateQp(uint64_t fields) {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    attr.pd = DeviceOne().pd;
    attr.rwq_ind_tbl = table_;
    attr.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
    attr.rx_hash_conf.rx_hash_key_len = sizeof(kKey);
    attr.rx_hash_conf.rx_hash_key = const_cast<uint8_t*>(kKey);
    attr.rx_hash_conf.rx_hash_fields_mask = fields;
    return ibv_create_qp_ex(DeviceOne().context, &attr);
  }
  // Returns the queue that received the next frame.
  uint32_t WhoReceived(uint32_t* bytes) {
    for (int tries = 0; tries < 1'000'000; ++tries) {
      for (uint32_t i = 0; i < kQueues; ++i) {
        ibv_wc wc = {};
        if (ibv_poll_cq(cqs_[i], 1, &wc) != 1) continue;
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.qp_num, queues_[i]->wq_num);
        *bytes = wc.byte_len;
        return i;
      }
    }
    ADD_FAILURE() << "nobody";
    return kQueues;
  }

  std::vector<ibv_cq*> cqs_;
  std::vector<ibv_wq*> queues_;
  ibv_rwq_ind_table* table_ = nullptr;
  ibv_qp* rss_ = nullptr;
};

// Addresses and ports with known hashes, from the verification suite of RSS.
TEST_F(RssTest, FramesGoToTheQueueOfTheirHash) {
  struct Known {
    uint32_t src, dst;
    uint16_t src_port, dst_port;
    uint32_t addresses_hash, ports_hash;
  };
  constexpr Known kKnown[] = {
      {0x420995BB, 0xA18E6450, 2794, 1766, 0x323e8fc2, 0x51ccc178},
      {0xC75C6F02, 0x41458C53, 14230, 4739, 0xd718262a, 0xc626b0ea},
      {0x1813C65F, 0x0C16CFB8, 12898, 38024, 0xd2d0a5de, 0x5c2b394a},
      {0x261BCD1E, 0xD18EA306, 48228, 2217, 0x82989176, 0xafc7327f},
      {0x9927A3BF, 0xCABC7F02, 44251, 1303, 0x5d1809c5, 0x10e828a2},
  };
  Buffer in(DeviceOne(), 4096, 3);
  for (const bool with_ports : {false, true}) {
    const uint64_t addresses = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
    const uint64_t ports = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
    ibv_qp* qp = CreateQp(with_ports ? addresses | ports : addresses);
    ASSERT_NE(qp, nullptr) << strerror(errno);
    Flow flow(Rule().Eth(&far_mac_), qp);
    for (const Known& known : kKnown) {
      for (ibv_wq* queue : queues_) ASSERT_EQ(Post(queue, in.Sge(0, 4096), 1), 0);
      FrameOptions options;
      options.tcp = true;
      options.src_ip = known.src;
      options.dst_ip = known.dst;
      options.src_port = known.src_port;
      options.dst_port = known.dst_port;
      const Frame frame = To(far_mac_, options);
      ASSERT_EQ(near_.Send(frame), IBV_WC_SUCCESS);
      uint32_t bytes = 0;
      const uint32_t hash = with_ports ? known.ports_hash : known.addresses_hash;
      EXPECT_EQ(WhoReceived(&bytes), hash % kQueues);
      ASSERT_EQ(bytes, frame.size());
      EXPECT_EQ(memcmp(in.data(), frame.data(), bytes), 0);
    }
    flow.End();
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
}

TEST_F(RssTest, ObjectsInUseAndStates) {
  rss_ = CreateQp(IBV_RX_HASH_SRC_IPV4);
  ASSERT_NE(rss_, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_destroy_wq(queues_[0]), EBUSY);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table_), EBUSY);
  Buffer in(DeviceOne(), 4096, 3);
  ASSERT_EQ(Post(queues_[1], in.Sge(0, 100), 4), 0);
  ASSERT_EQ(Move(queues_[1], IBV_WQS_ERR), 0);
  ibv_wc wc = {};
  while (ibv_poll_cq(cqs_[1], 1, &wc) == 0) {
  }
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 4u);
  EXPECT_EQ(Move(queues_[1], IBV_WQS_RDY), EINVAL);
  EXPECT_EQ(Move(queues_[1], IBV_WQS_RESET), 0);
  EXPECT_EQ(Post(queues_[1], in.Sge(0, 100), 4), EINVAL);
  EXPECT_EQ(Move(queues_[1], IBV_WQS_RDY), 0);
  EXPECT_EQ(Post(queues_[1], in.Sge(0, 100), 4), 0);
}

TEST_F(RssTest, RefusedConfigurations) {
  EXPECT_EQ(CreateQp(IBV_RX_HASH_IPSEC_SPI), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(CreateQp(IBV_RX_HASH_INNER | IBV_RX_HASH_SRC_IPV4), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_rwq_ind_table_init_attr attr = {};
  attr.log_ind_tbl_size = 8;
  std::vector<ibv_wq*> many(256, queues_[0]);
  attr.ind_tbl = many.data();
  EXPECT_EQ(ibv_create_rwq_ind_table(DeviceOne().context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(DeviceOne().context, nullptr, &device), 0);
  EXPECT_EQ(device.rss_caps.max_rwq_indirection_table_size, 128u);
  attr.log_ind_tbl_size = 7;
  ibv_rwq_ind_table* largest = ibv_create_rwq_ind_table(DeviceOne().context, &attr);
  ASSERT_NE(largest, nullptr);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(largest), 0);
}

}  // namespace
}  // namespace roci::testing
