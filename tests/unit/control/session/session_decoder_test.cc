#include "control/session/session_decoder.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "control/loop/errno_status.h"
#include "memory/types.h"
#include "roce/qp_attributes.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {
namespace {

template <class T>
T Head(uint32_t command) {
  T request{};
  request.head.command = command;
  request.head.size = sizeof(T);
  request.head.serial = 77;
  return request;
}

template <class T>
int Decode(const T& request, uint32_t fds = 0, const DeviceLimits& limits = {}) {
  Request out;
  return ErrnoOf(DecodeRequest(std::as_bytes(std::span(&request, 1)), fds, limits, out));
}

roci_abi_hello_request Hello() {
  auto hello = Head<roci_abi_hello_request>(ROCI_ABI_HELLO);
  hello.magic = ROCI_ABI_MAGIC;
  hello.major = ROCI_ABI_MAJOR;
  std::strcpy(hello.device, "roci0");
  return hello;
}

constexpr uint32_t kLocalWrite = static_cast<uint32_t>(memory::Access::kLocalWrite);

roci_abi_extent Extent(uint64_t va, uint64_t length, uint32_t kind) {
  roci_abi_extent extent{};
  extent.va = va;
  extent.length = length;
  extent.kind = kind;
  return extent;
}

roci_abi_reg_mr_request Region() {
  auto reg = Head<roci_abi_reg_mr_request>(ROCI_ABI_REG_MR);
  reg.access = kLocalWrite;
  reg.start = 0x10000;
  reg.length = 0x3000;
  reg.iova = reg.start;
  reg.extent_count = 3;
  reg.fd_count = 1;
  reg.extents[0] = Extent(0x10000, 0x1000, ROCI_ABI_EXTENT_PROCESS_VM);
  reg.extents[1] = Extent(0x11000, 0x1000, ROCI_ABI_EXTENT_FD);
  reg.extents[2] = Extent(0x12000, 0x1000, ROCI_ABI_EXTENT_MAP_FILES);
  reg.extents[2].map_start = 0x12000;
  reg.extents[2].map_end = 0x14000;
  return reg;
}

TEST(SessionDecoderTest, EveryCommandHasAName) {
  for (uint32_t command = 1; command < ROCI_ABI_COMMAND_COUNT; ++command) {
    const SessionCommandInfo* info = FindCommand(command);
    ASSERT_NE(info, nullptr);
    EXPECT_NE(info->name, nullptr);
    EXPECT_GE(info->request_size, sizeof(roci_abi_request));
    EXPECT_LE(info->request_size, kMaxRequestBytes);
    EXPECT_GE(info->response_size, sizeof(roci_abi_response));
  }
  EXPECT_EQ(FindCommand(0), nullptr);
  EXPECT_EQ(FindCommand(ROCI_ABI_COMMAND_COUNT), nullptr);
  EXPECT_EQ(FindCommand(~0u), nullptr);
}

TEST(SessionDecoderTest, SizeIsExactForEveryCommand) {
  for (uint32_t command = 1; command < ROCI_ABI_COMMAND_COUNT; ++command) {
    const uint32_t right = FindCommand(command)->request_size;
    for (const uint32_t size : {right - 1, right + 1, uint32_t{sizeof(roci_abi_request)} - 1}) {
      std::vector<std::byte> message(size);
      const roci_abi_request head{.command = command, .size = size, .serial = 5, .wait = 0};
      std::memcpy(message.data(), &head, std::min<size_t>(size, sizeof(head)));
      Request out;
      EXPECT_EQ(ErrnoOf(DecodeRequest(message, 0, {}, out)), EINVAL) << command << " " << size;
      EXPECT_EQ(out.head.serial, size < sizeof(head) ? 0u : 5u);
    }
    // The right number of bytes, but a head with another size.
    std::vector<std::byte> message(right);
    const roci_abi_request head{.command = command, .size = right + 8, .serial = 0, .wait = 0};
    std::memcpy(message.data(), &head, sizeof(head));
    Request out;
    EXPECT_EQ(ErrnoOf(DecodeRequest(message, 0, {}, out)), EINVAL) << command;
    // The right head, but one byte less than its size.
    const roci_abi_request whole{.command = command, .size = right, .serial = 0, .wait = 0};
    std::memcpy(message.data(), &whole, sizeof(whole));
    message.pop_back();
    EXPECT_EQ(ErrnoOf(DecodeRequest(message, 0, {}, out)), EINVAL) << command;
  }
}

TEST(SessionDecoderTest, UnknownCommand) {
  Request out;
  const auto request = Head<roci_abi_plain_request>(4711);
  EXPECT_EQ(ErrnoOf(DecodeRequest(std::as_bytes(std::span(&request, 1)), 0, {}, out)), EOPNOTSUPP);
  EXPECT_EQ(out.head.serial, 77u);
  EXPECT_EQ(out.info, nullptr);
}

TEST(SessionDecoderTest, Hello) {
  EXPECT_EQ(Decode(Hello()), 0);
  auto hello = Hello();
  EXPECT_EQ(Decode(hello, 1), EINVAL) << "a descriptor without a meaning";
  for (const uint64_t feature : {ROCI_ABI_FEATURE_APP_MEMORY, ROCI_ABI_FEATURE_MEMORY_PROOF}) {
    hello.features = feature;
    EXPECT_EQ(Decode(hello), EINVAL);
    EXPECT_EQ(Decode(hello, 1), 0);
    EXPECT_EQ(Decode(hello, 2), EINVAL);
  }
  hello = Hello();
  hello.magic ^= 1;
  EXPECT_EQ(Decode(hello), EPROTO);
  hello = Hello();
  ++hello.major;
  EXPECT_EQ(Decode(hello), EPROTONOSUPPORT);
  struct {
    roci_abi_hello_request known = Hello();
    uint64_t added = 0;
  } longer;
  EXPECT_EQ(Decode(longer), EINVAL) << "of this version, and too long";
  ++longer.known.major;
  EXPECT_EQ(Decode(longer), EPROTONOSUPPORT);
  hello = Hello();
  std::memset(hello.device, 'x', sizeof(hello.device));
  EXPECT_EQ(Decode(hello), EINVAL) << "a name without end";
}

TEST(SessionDecoderTest, DescriptorsOnlyWhereExpected) {
  EXPECT_EQ(Decode(Hello(), 1), EINVAL);
  EXPECT_EQ(Decode(Region(), 1), 0);
  EXPECT_EQ(Decode(Region(), 0), EINVAL);
  EXPECT_EQ(Decode(Region(), 2), EINVAL);
  auto many = Region();
  many.fd_count = kMaxRequestFds + 1;
  EXPECT_EQ(Decode(many, kMaxRequestFds + 1), EINVAL);
}

struct BadRegion {
  const char* why;
  int error;
  void (*spoil)(roci_abi_reg_mr_request&);
};

TEST(SessionDecoderTest, BadRegions) {
  const BadRegion cases[] = {
      {"hole", EINVAL, [](auto& r) { r.extents[1].va += 0x10; }},
      {"overlap", EINVAL, [](auto& r) { r.extents[1].va -= 0x10; }},
      {"too short", EINVAL, [](auto& r) { r.extents[2].length -= 1; }},
      {"sticks out", EINVAL, [](auto& r) { r.extents[2].length += 1; }},
      {"huge extent", EINVAL, [](auto& r) { r.extents[0].length = ~uint64_t{0}; }},
      {"empty extent", EINVAL, [](auto& r) { r.extents[0].length = 0; }},
      {"no extents", EINVAL, [](auto& r) { r.extent_count = 0; }},
      {"too many extents", EINVAL, [](auto& r) { r.extent_count = ROCI_ABI_MAX_EXTENTS + 1; }},
      {"extent count wraps", EINVAL, [](auto& r) { r.extent_count = ~0u; }},
      {"kind", EINVAL, [](auto& r) { r.extents[0].kind = 3; }},
      {"descriptor", EINVAL, [](auto& r) { r.extents[1].fd_index = 1; }},
      {"file offset", EINVAL, [](auto& r) { r.extents[1].file_offset = ~uint64_t{0}; }},
      {"outside of its mapping", EINVAL, [](auto& r) { r.extents[2].map_start = 0x12001; }},
      {"beyond its mapping", EINVAL, [](auto& r) { r.extents[2].map_end = 0x12fff; }},
      {"no length", EINVAL, [](auto& r) { r.length = 0; }},
      {"range wraps", EINVAL, [](auto& r) { r.start = ~uint64_t{0} - 0xfff; }},
      {"iova wraps", EINVAL, [](auto& r) { r.iova = ~uint64_t{0} - 0xfff; }},
      {"unknown access", EINVAL, [](auto& r) { r.access |= 1u << 12; }},
      {"remote write alone", EINVAL, [](auto& r) { r.access = 2; }},
      {"remote atomic alone", EINVAL, [](auto& r) { r.access = 8; }},
      {"on demand, and yet described", EINVAL, [](auto& r) { r.access |= 1u << 6; }},
  };
  for (const BadRegion& bad : cases) {
    auto region = Region();
    bad.spoil(region);
    EXPECT_EQ(Decode(region, 1), bad.error) << bad.why;
  }
  auto region = Region();
  region.access |= kOptionalAccess;
  EXPECT_EQ(Decode(region, 1), 0) << "what need not be given may be asked for";
  region.length = 0;
  region.extent_count = region.fd_count = 0;
  EXPECT_EQ(Decode(region), 0) << "a region of no bytes has no extents";
}

TEST(SessionDecoderTest, OnDemandRegions) {
  auto region = Head<roci_abi_reg_mr_request>(ROCI_ABI_REG_MR);
  region.access = kLocalWrite | static_cast<uint32_t>(memory::Access::kOnDemand);
  region.start = region.iova = 0x10000;
  region.length = 0x3000;
  region.extent_count = 1;
  region.extents[0] = Extent(0x10000, 0x3000, ROCI_ABI_EXTENT_PROCESS_VM);
  EXPECT_EQ(Decode(region), 0);
  EXPECT_EQ(Decode(region, 1), EINVAL) << "a descriptor";
  region.iova = ~uint64_t{0} - 0x2FFF;
  EXPECT_EQ(Decode(region), 0) << "up to the last address";
  region.iova += 1;
  EXPECT_EQ(Decode(region), EINVAL) << "iova wraps";
  region.iova = 0x10000;
  region.extents[0].length -= 1;
  EXPECT_EQ(Decode(region), EINVAL) << "not all of it";
  region.extents[0] = Extent(~uint64_t{0} - 0x2FFE, 0x3000, ROCI_ABI_EXTENT_PROCESS_VM);
  region.start = region.extents[0].va;
  EXPECT_EQ(Decode(region), EINVAL) << "start wraps";
}

TEST(SessionDecoderTest, Attach) {
  auto attach = Head<roci_abi_attach_request>(ROCI_ABI_ATTACH);
  attach.magic = ROCI_ABI_MAGIC;
  attach.major = ROCI_ABI_MAJOR;
  EXPECT_EQ(Decode(attach, 1), 0);
  EXPECT_EQ(Decode(attach), EINVAL) << "no context";
  EXPECT_EQ(Decode(attach, 2), EINVAL);
  attach.major = ROCI_ABI_MAJOR + 1;
  EXPECT_EQ(Decode(attach, 1), EPROTONOSUPPORT);
  attach.magic = 0;
  EXPECT_EQ(Decode(attach, 1), EINVAL);
}

TEST(SessionDecoderTest, DmaBuffers) {
  auto reg = Head<roci_abi_reg_dma_buffer_mr_request>(ROCI_ABI_REG_DMA_BUFFER_MR);
  reg.access = kLocalWrite | kOptionalAccess;
  reg.length = 4096;
  EXPECT_EQ(Decode(reg, 1), 0);
  EXPECT_EQ(Decode(reg), EINVAL) << "no buffer";
  EXPECT_EQ(Decode(reg, 2), EINVAL);
  reg.access = static_cast<uint32_t>(memory::Access::kRemoteWrite);
  EXPECT_EQ(Decode(reg, 1), EINVAL) << "without local write";
  for (const memory::Access access :
       {memory::Access::kOnDemand, memory::Access::kWindowBind, memory::Access::kZeroBased,
        memory::Access::kFlushPersistent}) {
    reg.access = kLocalWrite | static_cast<uint32_t>(access);
    EXPECT_EQ(Decode(reg, 1), EINVAL) << reg.access;
  }
  reg.access = kLocalWrite;
  reg.offset = ~uint64_t{0} - 100;
  EXPECT_EQ(Decode(reg, 1), EINVAL) << "offset";
  reg.offset = 0;
  reg.iova = ~uint64_t{0} - 100;
  EXPECT_EQ(Decode(reg, 1), EINVAL) << "iova";
  reg.iova = reg.length = 0;
  EXPECT_EQ(Decode(reg, 1), EINVAL) << "nothing";
}

TEST(SessionDecoderTest, Rereg) {
  auto rereg = Head<roci_abi_rereg_mr_request>(ROCI_ABI_REREG_MR);
  EXPECT_EQ(Decode(rereg), EINVAL) << "no flags";
  rereg.flags = kReregPd;
  EXPECT_EQ(Decode(rereg), 0);
  rereg.flags = 8;
  EXPECT_EQ(Decode(rereg), EINVAL);
  rereg.flags = kReregTranslation;
  EXPECT_EQ(Decode(rereg), EINVAL) << "no extents";
  rereg.start = 0x1000;
  rereg.length = 16;
  rereg.extent_count = 1;
  rereg.extents[0] = Extent(0x1000, 16, ROCI_ABI_EXTENT_PROCESS_VM);
  EXPECT_EQ(Decode(rereg), 0);
  rereg.flags = kReregAccess;
  rereg.access = kLocalWrite;
  EXPECT_EQ(Decode(rereg), EINVAL) << "unexpected extents";
}

// The limits of a device whose configuration lowers them.
constexpr DeviceLimits kSmall = {.max_srq_wr = 20, .max_qp_wr = 10, .max_cqe = 30};

TEST(SessionDecoderTest, CompletionQueuesHaveEntriesWithinTheLimit) {
  auto cq = Head<roci_abi_create_cq_request>(ROCI_ABI_CREATE_CQ);
  auto resize = Head<roci_abi_resize_cq_request>(ROCI_ABI_RESIZE_CQ);
  const auto decode = [&](uint32_t entries, const DeviceLimits& limits) {
    cq.entries = resize.entries = entries;
    const int error = Decode(cq, 0, limits);
    EXPECT_EQ(Decode(resize, 0, limits), error) << entries;
    return error;
  };
  EXPECT_EQ(decode(0, kSmall), EINVAL);
  EXPECT_EQ(decode(1, kSmall), 0);
  EXPECT_EQ(decode(30, kSmall), 0);
  EXPECT_EQ(decode(31, kSmall), EINVAL);
  EXPECT_EQ(decode(dataplane::kMaxCompletionEntries, {}), 0);
  EXPECT_EQ(decode(dataplane::kMaxCompletionEntries + 1, {}), EINVAL);
  EXPECT_EQ(decode(~0u, {}), EINVAL);
  cq.entries = 1;
  cq.comp_vector = kCompletionVectors;
  EXPECT_EQ(Decode(cq), EINVAL);
}

// A personality without nearly everything.
TEST(SessionDecoderTest, WhatTheDeviceLacksIsNotSupported) {
  DeviceLimits bare;
  bare.max_srq = bare.max_mw = bare.max_dm_bytes = bare.max_multicast_groups = 0;
  bare.features = bare.capabilities = 0;
  bare.qp_types = 1u << static_cast<uint32_t>(roce::QpType::kRc);
  const auto expect_lacking = [&](const auto& request, uint32_t fds, const char* what) {
    EXPECT_EQ(Decode(request, fds, {}), 0) << what;
    EXPECT_EQ(Decode(request, fds, bare), EOPNOTSUPP) << what;
  };
  auto srq = Head<roci_abi_create_srq_request>(ROCI_ABI_CREATE_SRQ);
  srq.max_wr = srq.max_sge = 1;
  expect_lacking(srq, 0, "srq");
  auto tags = Head<roci_abi_create_tag_srq_request>(ROCI_ABI_CREATE_TAG_SRQ);
  tags.max_wr = tags.max_sge = tags.max_tags = tags.max_ops = 1;
  expect_lacking(tags, 0, "tag matching");
  auto resize = Head<roci_abi_modify_srq_request>(ROCI_ABI_MODIFY_SRQ);
  resize.mask = ROCI_ABI_SRQ_MAX_WR;
  resize.max_wr = 2;
  expect_lacking(resize, 0, "resizing");
  auto window = Head<roci_abi_alloc_mw_request>(ROCI_ABI_ALLOC_MW);
  window.type = static_cast<uint32_t>(memory::WindowType::kType1);
  expect_lacking(window, 0, "windows");
  expect_lacking(Head<roci_abi_alloc_dm_request>(ROCI_ABI_ALLOC_DM), 0, "device memory");
  auto group = Head<roci_abi_multicast_request>(ROCI_ABI_ATTACH_MULTICAST);
  group.gid[0] = 0xFF;
  expect_lacking(group, 0, "multicast");
  auto flow = Head<roci_abi_create_flow_request>(ROCI_ABI_CREATE_FLOW);
  flow.port = 1;
  expect_lacking(flow, 0, "flows");
  expect_lacking(Head<roci_abi_create_queue_table_request>(ROCI_ABI_CREATE_QUEUE_TABLE), 0, "RSS");
  expect_lacking(Head<roci_abi_open_xrcd_request>(ROCI_ABI_OPEN_XRCD), 0, "XRC");
  expect_lacking(Head<roci_abi_modify_cq_request>(ROCI_ABI_MODIFY_CQ), 0, "moderation");
  auto qp = Head<roci_abi_create_qp_request>(ROCI_ABI_CREATE_QP);
  qp.qp_type = static_cast<uint32_t>(roce::QpType::kUc);
  expect_lacking(qp, 0, "UC");
  qp.qp_type = static_cast<uint32_t>(roce::QpType::kRc);
  EXPECT_EQ(Decode(qp, 0, bare), 0);
  qp.qp_type = static_cast<uint32_t>(roce::QpType::kRawPacket);
  qp.flags = ROCI_ABI_QP_WORK_QUEUE;
  DeviceLimits no_rss;
  no_rss.features = ~static_cast<uint32_t>(Feature::kRss);
  EXPECT_EQ(Decode(qp, 0, {}), 0);
  EXPECT_EQ(Decode(qp, 0, no_rss), EOPNOTSUPP) << "a work queue";
  auto pacing = Head<roci_abi_modify_qp_request>(ROCI_ABI_MODIFY_QP);
  EXPECT_EQ(Decode(pacing, 0, bare), 0);
  pacing.mask = roce::kAttrRateLimit;
  expect_lacking(pacing, 0, "pacing");
  window.type = static_cast<uint32_t>(memory::WindowType::kType2);
  DeviceLimits type1_only;
  type1_only.capabilities = ~kCapMemoryWindowType2B;
  EXPECT_EQ(Decode(window, 0, {}), 0);
  EXPECT_EQ(Decode(window, 0, type1_only), EOPNOTSUPP);
}

TEST(SessionDecoderTest, CallsThatTheProviderLacksAreNotSupported) {
  DeviceLimits bare;
  bare.features = 0;
  const auto expect_lacking = [&](const auto& request, uint32_t fds, Feature call) {
    DeviceLimits without;
    without.features = ~static_cast<uint32_t>(call);
    EXPECT_EQ(Decode(request, fds, {}), 0) << request.head.command;
    EXPECT_EQ(Decode(request, fds, without), EOPNOTSUPP) << request.head.command;
  };
  expect_lacking(Head<roci_abi_plain_request>(ROCI_ABI_CREATE_COUNTERS), 0,
                 Feature::kCreateCounters);
  expect_lacking(Head<roci_abi_alloc_null_mr_request>(ROCI_ABI_ALLOC_NULL_MR), 0,
                 Feature::kAllocNullMr);
  auto window = Head<roci_abi_alloc_mw_request>(ROCI_ABI_ALLOC_MW);
  window.type = static_cast<uint32_t>(memory::WindowType::kType1);
  expect_lacking(window, 0, Feature::kAllocMw);
  auto resize = Head<roci_abi_resize_cq_request>(ROCI_ABI_RESIZE_CQ);
  resize.entries = 1;
  expect_lacking(resize, 0, Feature::kResizeCq);
  auto empty = Region();
  empty.extent_count = empty.fd_count = 0;
  empty.length = 0;
  empty.access = static_cast<uint32_t>(memory::Access::kOnDemand);
  expect_lacking(empty, 0, Feature::kOnDemandPaging);
  // Refused before the check of the arguments.
  for (const uint32_t command : {ROCI_ABI_REREG_MR, ROCI_ABI_REG_DMA_BUFFER_MR}) {
    std::vector<std::byte> message(FindCommand(command)->request_size);
    const roci_abi_request head{
        .command = command, .size = static_cast<uint32_t>(message.size()), .serial = 0, .wait = 0};
    std::memcpy(message.data(), &head, sizeof(head));
    Request out;
    EXPECT_EQ(ErrnoOf(DecodeRequest(message, 0, bare, out)), EOPNOTSUPP) << command;
    EXPECT_NE(ErrnoOf(DecodeRequest(message, 0, {}, out)), EOPNOTSUPP) << command;
  }
}

TEST(SessionDecoderTest, SgesAndInlineDataAreWithinTheLimits) {
  constexpr DeviceLimits kFew = {.max_sge = 3, .max_srq_sge = 2, .max_inline = 64};
  auto qp = Head<roci_abi_create_qp_request>(ROCI_ABI_CREATE_QP);
  qp.qp_type = static_cast<uint32_t>(roce::QpType::kRc);
  qp.max_send_sge = qp.max_recv_sge = 3;
  qp.max_inline = 64;
  EXPECT_EQ(Decode(qp, 0, kFew), 0);
  ++qp.max_recv_sge;
  EXPECT_EQ(Decode(qp, 0, kFew), EINVAL);
  qp.max_recv_sge = 3;
  ++qp.max_inline;
  EXPECT_EQ(Decode(qp, 0, kFew), EINVAL);
  auto srq = Head<roci_abi_create_srq_request>(ROCI_ABI_CREATE_SRQ);
  srq.max_wr = 1;
  srq.max_sge = 2;
  EXPECT_EQ(Decode(srq, 0, kFew), 0);
  ++srq.max_sge;
  EXPECT_EQ(Decode(srq, 0, kFew), EINVAL);
}

TEST(SessionDecoderTest, QueuePairsAreWithinTheLimits) {
  const auto changed = [](auto&& change) {
    auto create = Head<roci_abi_create_qp_request>(ROCI_ABI_CREATE_QP);
    create.qp_type = static_cast<uint32_t>(roce::QpType::kRc);
    create.max_send_wr = create.max_recv_wr = 10;
    create.max_send_sge = create.max_recv_sge = dataplane::kMaxSges;
    create.max_inline = dataplane::kMaxInlineBytes;
    change(create);
    return Decode(create, 0, kSmall);
  };
  EXPECT_EQ(changed([](auto&) {}), 0);
  EXPECT_EQ(changed([](auto& c) { ++c.max_send_wr; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) { ++c.max_recv_wr; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) { ++c.max_send_sge; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) { ++c.max_recv_sge; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) { ++c.max_inline; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) { c.max_send_wr = ~0u; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) { c.qp_type = 7; }), EOPNOTSUPP);
  EXPECT_EQ(changed([](auto& c) { c.flags = 1u << 30; }), EOPNOTSUPP);
  EXPECT_EQ(changed([](auto& c) { c.flags = ROCI_ABI_QP_BLOCK_SELF_MULTICAST; }), EINVAL);
  EXPECT_EQ(changed([](auto& c) {
              c.qp_type = static_cast<uint32_t>(roce::QpType::kXrcRecv);
              c.max_send_wr = ~0u;
            }),
            0)
      << "it has no queues";
  const auto work_queue = [&](uint32_t max_send_wr) {
    return changed([max_send_wr](auto& c) {
      c.qp_type = static_cast<uint32_t>(roce::QpType::kRawPacket);
      c.flags = ROCI_ABI_QP_WORK_QUEUE;
      c.max_send_wr = max_send_wr;
    });
  };
  EXPECT_EQ(work_queue(0), 0);
  EXPECT_EQ(work_queue(1), EINVAL);
}

TEST(SessionDecoderTest, SharedReceiveQueuesAreWithinTheLimits) {
  auto create = Head<roci_abi_create_srq_request>(ROCI_ABI_CREATE_SRQ);
  auto tags = Head<roci_abi_create_tag_srq_request>(ROCI_ABI_CREATE_TAG_SRQ);
  tags.max_tags = ROCI_ABI_MAX_TAGS;
  tags.max_ops = ROCI_ABI_MAX_TAG_OPS;
  const auto decode = [&](uint32_t max_wr, uint32_t max_sge) {
    create.max_wr = tags.max_wr = max_wr;
    create.max_sge = tags.max_sge = max_sge;
    const int error = Decode(create, 0, kSmall);
    EXPECT_EQ(Decode(tags, 0, kSmall), error) << max_wr << ' ' << max_sge;
    return error;
  };
  EXPECT_EQ(decode(0, 1), EINVAL);
  EXPECT_EQ(decode(20, dataplane::kMaxSges), 0);
  EXPECT_EQ(decode(21, 1), EINVAL);
  EXPECT_EQ(decode(20, dataplane::kMaxSges + 1), EINVAL);
  ASSERT_EQ(decode(1, 0), 0);
  const auto with_tags = [&](uint32_t max_tags, uint32_t max_ops) {
    tags.max_tags = max_tags;
    tags.max_ops = max_ops;
    return Decode(tags, 0, kSmall);
  };
  EXPECT_EQ(with_tags(0, 1), EINVAL);
  EXPECT_EQ(with_tags(1, 0), EINVAL);
  EXPECT_EQ(with_tags(ROCI_ABI_MAX_TAGS + 1, 1), EINVAL);
  EXPECT_EQ(with_tags(1, ROCI_ABI_MAX_TAG_OPS + 1), EINVAL);
  EXPECT_EQ(with_tags(1, 1), 0);
}

TEST(SessionDecoderTest, SharedReceiveQueuesAreResizedWithinTheLimits) {
  auto modify = Head<roci_abi_modify_srq_request>(ROCI_ABI_MODIFY_SRQ);
  modify.max_wr = 21;
  modify.mask = ROCI_ABI_SRQ_LIMIT;
  EXPECT_EQ(Decode(modify, 0, kSmall), 0) << "does not resize";
  modify.mask = ROCI_ABI_SRQ_MAX_WR;
  EXPECT_EQ(Decode(modify, 0, kSmall), EINVAL);
  modify.max_wr = 20;
  EXPECT_EQ(Decode(modify, 0, kSmall), 0);
  modify.max_wr = 0;
  EXPECT_EQ(Decode(modify, 0, kSmall), EINVAL);
  modify.mask = 1u << 31;
  EXPECT_EQ(Decode(modify, 0, kSmall), EINVAL);
}

roci_abi_create_flow_request FlowRequest() {
  auto flow = Head<roci_abi_create_flow_request>(ROCI_ABI_CREATE_FLOW);
  flow.qp = 1;
  flow.port = 1;
  flow.mask.dst_port = 0xFFFF;
  flow.mask.layers = flow.value.layers = ROCI_ABI_FLOW_UDP;
  return flow;
}

TEST(SessionDecoderTest, FlowRules) {
  EXPECT_EQ(Decode(FlowRequest()), 0);
  const auto changed = [](auto&& change) {
    auto flow = FlowRequest();
    change(flow);
    return Decode(flow);
  };
  EXPECT_EQ(changed([](auto& f) { f.type = 4; }), EINVAL);
  EXPECT_EQ(changed([](auto& f) { f.actions = 1u << 3; }), EINVAL);
  EXPECT_EQ(changed([](auto& f) { f.mask.layers = 1u << 5; }), EINVAL);
  EXPECT_EQ(changed([](auto& f) { f.value.layers = 0xFF; }), EINVAL);
  EXPECT_EQ(changed([](auto& f) { f.mask.reserved[1] = 1; }), EINVAL);
  EXPECT_EQ(changed([](auto& f) { f.type = 3; }), EINVAL) << "a sniffer looks for nothing";
  EXPECT_EQ(changed([](auto& f) {
              f.type = 3;
              f.mask = {};
            }),
            0);
  EXPECT_EQ(changed([](auto& f) {
              f.type = 1;
              f.mask = {};
              f.actions = ROCI_ABI_FLOW_PASS_ON;
            }),
            EINVAL);
}

TEST(SessionDecoderTest, PortsGroupsAndTypesMustExist) {
  auto port = Head<roci_abi_query_port_request>(ROCI_ABI_QUERY_PORT);
  EXPECT_EQ(Decode(port), EINVAL);
  port.port = 1;
  EXPECT_EQ(Decode(port), 0);
  auto flow = Head<roci_abi_create_flow_request>(ROCI_ABI_CREATE_FLOW);
  flow.port = 2;
  EXPECT_EQ(Decode(flow), EINVAL);
  auto open = Head<roci_abi_open_qp_request>(ROCI_ABI_OPEN_QP);
  open.qp_type = static_cast<uint32_t>(roce::QpType::kRc);
  EXPECT_EQ(Decode(open), EINVAL);
  open.qp_type = static_cast<uint32_t>(roce::QpType::kXrcRecv);
  EXPECT_EQ(Decode(open), 0);
  for (const uint32_t command : {ROCI_ABI_ATTACH_MULTICAST, ROCI_ABI_DETACH_MULTICAST}) {
    auto group = Head<roci_abi_multicast_request>(command);
    group.gid[0] = 0xFE;
    EXPECT_EQ(Decode(group), EINVAL);
    group.gid[0] = 0xFF;
    EXPECT_EQ(Decode(group), 0);
  }
}

TEST(SessionDecoderTest, ReceiveSideScaling) {
  auto table = Head<roci_abi_create_queue_table_request>(ROCI_ABI_CREATE_QUEUE_TABLE);
  table.log_size = ROCI_ABI_MAX_QUEUE_TABLE_LOG;
  EXPECT_EQ(Decode(table), 0);
  table.log_size = ROCI_ABI_MAX_QUEUE_TABLE_LOG + 1;
  EXPECT_EQ(Decode(table), EINVAL);
  auto qp = Head<roci_abi_create_rss_qp_request>(ROCI_ABI_CREATE_RSS_QP);
  qp.fields = 0xFF;
  EXPECT_EQ(Decode(qp), 0);
  qp.fields = 1u << 31;
  EXPECT_EQ(Decode(qp), EOPNOTSUPP);
}

TEST(SessionDecoderTest, ReturnedEvents) {
  auto request = Head<roci_abi_return_events_request>(ROCI_ABI_RETURN_EVENTS);
  for (const uint32_t channel : {5u, ROCI_ABI_NO_HANDLE}) {
    request.channel = channel;
    request.count = ROCI_ABI_MAX_RETURNED_EVENTS;
    EXPECT_EQ(Decode(request), 0);
    ++request.count;
    EXPECT_EQ(Decode(request), EINVAL);
    request.count = 0;
    request.flags = ROCI_ABI_RETURN_HOLD;
    EXPECT_EQ(Decode(request), channel == ROCI_ABI_NO_HANDLE ? 0 : EINVAL);
    request.flags = 2;
    EXPECT_EQ(Decode(request), EINVAL);
    request.flags = 0;
  }
}

}  // namespace
}  // namespace roci::control
