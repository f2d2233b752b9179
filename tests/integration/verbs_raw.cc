#include "tests/integration/verbs_raw.h"

#include <arpa/inet.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

void Put(Frame& frame, std::span<const uint8_t> bytes) {
  frame.insert(frame.end(), bytes.begin(), bytes.end());
}
void Put16(Frame& frame, uint32_t value) {
  frame.push_back(static_cast<uint8_t>(value >> 8));
  frame.push_back(static_cast<uint8_t>(value));
}
void Put32(Frame& frame, uint32_t value) {
  Put16(frame, value >> 16);
  Put16(frame, value & 0xFFFF);
}

void PutIpv4(Frame& frame, const FrameOptions& o, size_t bytes) {
  Put16(frame, 0x4500u | o.tos);
  Put16(frame, static_cast<uint32_t>(20 + bytes));
  Put32(frame, 0x00004000);  // no identification, do not fragment
  Put16(frame, static_cast<uint32_t>(o.ttl) << 8 | (o.tcp ? 6 : 17));
  Put16(frame, 0);
  Put32(frame, o.src_ip);
  Put32(frame, o.dst_ip);
}

void PutIpv6(Frame& frame, const FrameOptions& o, size_t bytes) {
  Put32(frame, 0x60000000u | static_cast<uint32_t>(o.tos) << 20);
  Put16(frame, static_cast<uint32_t>(bytes));
  Put16(frame, (o.tcp ? 6u : 17u) << 8 | o.ttl);
  for (const uint32_t address : {o.src_ip, o.dst_ip}) {
    Put32(frame, 0x20010db8);
    Put32(frame, 0);
    Put32(frame, 0);
    Put32(frame, address);
  }
}

template <class T>
void Set16(T* value, T* mask, int wanted) {
  if (wanted < 0) return;
  *value = htons(static_cast<uint16_t>(wanted));
  *mask = 0xFFFF;
}
void Set8(uint8_t* value, uint8_t* mask, int wanted) {
  if (wanted < 0) return;
  *value = static_cast<uint8_t>(wanted);
  *mask = 0xFF;
}

}  // namespace

// Inverse of EUI-64 (RFC 4291, appendix A).
Mac MacOf(OpenDevice& device) {
  ibv_gid gid;
  Require(ibv_query_gid(device.context, 1, 0, &gid) == 0, "ibv_query_gid");
  const uint8_t* id = gid.raw + 8;
  return {static_cast<uint8_t>(id[0] ^ 2), id[1], id[2], id[5], id[6], id[7]};
}

Frame MakeFrame(const FrameOptions& o) {
  const size_t l4 = (o.tcp ? 20 : 8) + o.payload;
  Frame frame;
  Put(frame, o.dst);
  Put(frame, o.src);
  if (o.vlan >= 0) {
    Put16(frame, 0x8100);
    Put16(frame, static_cast<uint32_t>(o.vlan));
  }
  Put16(frame, o.ipv6 ? 0x86DD : 0x0800);
  o.ipv6 ? PutIpv6(frame, o, l4) : PutIpv4(frame, o, l4);
  Put16(frame, o.src_port);
  Put16(frame, o.dst_port);
  if (o.tcp) {
    Put32(frame, 1);
    Put32(frame, 2);
    Put32(frame, 0x50100000);
    Put32(frame, 0);
  } else {
    Put16(frame, static_cast<uint32_t>(l4));
    Put16(frame, 0);
  }
  for (size_t i = 0; i < o.payload; ++i) frame.push_back(PatternByte(o.src_ip, i));
  return frame;
}

RawEndpoint::RawEndpoint(OpenDevice& d, bool extended)
    : device(d), out(d, kBufferBytes, 1), in(d, size_t{kBufferBytes} * kReceives, 2) {
  if (extended) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 2 * kReceives;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG;
    cq_ex = ibv_create_cq_ex(device.context, &attr);
    Require(cq_ex != nullptr, "ibv_create_cq_ex");
    cq = ibv_cq_ex_to_cq(cq_ex);
  } else {
    cq = ibv_create_cq(device.context, 2 * kReceives, nullptr, nullptr, 0);
    Require(cq != nullptr, "ibv_create_cq");
  }
  ibv_qp_init_attr init = {};
  init.send_cq = cq;
  init.recv_cq = cq;
  init.cap = {.max_send_wr = kReceives,
              .max_recv_wr = kReceives,
              .max_send_sge = 2,
              .max_recv_sge = 2,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.sq_sig_all = 1;
  qp = ibv_create_qp(device.pd, &init);
  Require(qp != nullptr, "ibv_create_qp");
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  Require(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == 0, "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  Require(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  Require(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RTS");
  for (uint32_t slot = 0; slot < kReceives; ++slot) Require(PostRecv(slot) == 0, "receive");
}

RawEndpoint::~RawEndpoint() {
  Require(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  Require(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
}

int RawEndpoint::PostRecv(uint32_t slot, uint32_t bytes) {
  ibv_sge sge = in.Sge(size_t{slot} * kBufferBytes, bytes);
  ibv_recv_wr wr = {};
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

int RawEndpoint::Post(std::span<const uint8_t> frame, uint64_t wr_id, unsigned flags) {
  Require(frame.size() <= out.size(), "length of the frame");
  memcpy(out.data(), frame.data(), frame.size());
  ibv_sge sge = out.Sge(0, frame.size());
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = flags;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

bool RawEndpoint::Poll(ibv_wc* wc) {
  if (cq_ex == nullptr) return ibv_poll_cq(cq, 1, wc) == 1;
  ibv_poll_cq_attr attr = {};
  if (ibv_start_poll(cq_ex, &attr) != 0) return false;
  wc->wr_id = cq_ex->wr_id;
  wc->status = cq_ex->status;
  wc->opcode = ibv_wc_read_opcode(cq_ex);
  wc->byte_len = ibv_wc_read_byte_len(cq_ex);
  wc->wc_flags = ibv_wc_read_wc_flags(cq_ex);
  last_tag = ibv_wc_read_flow_tag(cq_ex);
  ibv_end_poll(cq_ex);
  return true;
}

ibv_wc_status RawEndpoint::Send(std::span<const uint8_t> frame, unsigned flags) {
  if (Post(frame, 1000, flags) != 0) return IBV_WC_GENERAL_ERR;
  const auto end = Clock::now() + std::chrono::milliseconds(kPatience_ms);
  ibv_wc wc = {};
  while (Clock::now() < end) {
    if (Poll(&wc)) {
      EXPECT_EQ(wc.wr_id, 1000u) << "a frame was received meanwhile";
      return wc.status;
    }
  }
  return IBV_WC_GENERAL_ERR;
}

Frame RawEndpoint::Receive() {
  const auto end = Clock::now() + std::chrono::milliseconds(kPatience_ms);
  ibv_wc wc = {};
  while (Clock::now() < end) {
    if (!Poll(&wc)) continue;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= kReceives) return {};
    last_flags = wc.wc_flags;
    const uint8_t* data = in.data() + wc.wr_id * kBufferBytes;
    Frame frame(data, data + wc.byte_len);
    EXPECT_EQ(PostRecv(static_cast<uint32_t>(wc.wr_id)), 0);
    return frame;
  }
  return {};
}

bool RawEndpoint::IsQuiet(int ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(ms);
  ibv_wc wc;
  do {
    if (Poll(&wc)) return false;
  } while (Clock::now() < end);
  return true;
}

Rule::Rule(ibv_flow_attr_type type, uint16_t priority) : bytes_(sizeof(ibv_flow_attr)) {
  bytes_.reserve(1024);
  attr().type = type;
  attr().size = sizeof(ibv_flow_attr);
  attr().priority = priority;
  attr().port = 1;
}

Rule& Rule::Eth(const Mac* dst, const Mac* src, int ether_type, int vlan) {
  ibv_flow_spec_eth spec = {};
  spec.type = IBV_FLOW_SPEC_ETH;
  spec.size = sizeof(spec);
  if (dst != nullptr) {
    memcpy(spec.val.dst_mac, dst->data(), 6);
    memset(spec.mask.dst_mac, 0xFF, 6);
  }
  if (src != nullptr) {
    memcpy(spec.val.src_mac, src->data(), 6);
    memset(spec.mask.src_mac, 0xFF, 6);
  }
  Set16(&spec.val.ether_type, &spec.mask.ether_type, ether_type);
  Set16(&spec.val.vlan_tag, &spec.mask.vlan_tag, vlan);
  return Add(spec);
}

Rule& Rule::Ipv4(uint32_t src, uint32_t src_mask, uint32_t dst, uint32_t dst_mask) {
  ibv_flow_spec_ipv4 spec = {};
  spec.type = IBV_FLOW_SPEC_IPV4;
  spec.size = sizeof(spec);
  spec.val = {htonl(src), htonl(dst)};
  spec.mask = {htonl(src_mask), htonl(dst_mask)};
  return Add(spec);
}

Rule& Rule::Ipv4Ext(int proto, int tos, int ttl) {
  ibv_flow_spec_ipv4_ext spec = {};
  spec.type = IBV_FLOW_SPEC_IPV4_EXT;
  spec.size = sizeof(spec);
  Set8(&spec.val.proto, &spec.mask.proto, proto);
  Set8(&spec.val.tos, &spec.mask.tos, tos);
  Set8(&spec.val.ttl, &spec.mask.ttl, ttl);
  return Add(spec);
}

Rule& Rule::Ipv6(uint32_t src, uint32_t dst, int next_header) {
  ibv_flow_spec_ipv6 spec = {};
  spec.type = IBV_FLOW_SPEC_IPV6;
  spec.size = sizeof(spec);
  const uint32_t source[4] = {htonl(0x20010db8), 0, 0, htonl(src)};
  const uint32_t destination[4] = {htonl(0x20010db8), 0, 0, htonl(dst)};
  memcpy(spec.val.src_ip, source, 16);
  memcpy(spec.val.dst_ip, destination, 16);
  memset(spec.mask.src_ip, 0xFF, 16);
  memset(spec.mask.dst_ip, 0xFF, 16);
  Set8(&spec.val.next_hdr, &spec.mask.next_hdr, next_header);
  return Add(spec);
}

Rule& Rule::Ports(bool tcp, int src, int dst) {
  ibv_flow_spec_tcp_udp spec = {};
  spec.type = tcp ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
  spec.size = sizeof(spec);
  Set16(&spec.val.src_port, &spec.mask.src_port, src);
  Set16(&spec.val.dst_port, &spec.mask.dst_port, dst);
  return Add(spec);
}

Rule& Rule::Tag(uint32_t tag) {
  ibv_flow_spec_action_tag spec = {};
  spec.type = IBV_FLOW_SPEC_ACTION_TAG;
  spec.size = sizeof(spec);
  spec.tag_id = tag;
  return Add(spec);
}

Rule& Rule::Drop() {
  ibv_flow_spec_action_drop spec = {};
  spec.type = IBV_FLOW_SPEC_ACTION_DROP;
  spec.size = sizeof(spec);
  return Add(spec);
}

Rule& Rule::Count(ibv_counters* counters) {
  ibv_flow_spec_counter_action spec = {};
  spec.type = IBV_FLOW_SPEC_ACTION_COUNT;
  spec.size = sizeof(spec);
  spec.counters = counters;
  return Add(spec);
}

}  // namespace roci::testing
