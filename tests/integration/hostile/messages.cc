#include "tests/integration/hostile/messages.h"

#include <array>
#include <cstring>

namespace roci::testing::hostile {
namespace {

#define ROCI_MESSAGE(name, type) \
  { #name, ROCI_ABI_##name, sizeof(type) }

constexpr MessageKind kKinds[] = {
    ROCI_MESSAGE(QUERY_DEVICE, roci_abi_query_device_request),
    ROCI_MESSAGE(QUERY_PORT, roci_abi_query_port_request),
    ROCI_MESSAGE(ALLOC_PD, roci_abi_plain_request),
    ROCI_MESSAGE(DEALLOC_PD, roci_abi_handle_request),
    ROCI_MESSAGE(REG_MR, roci_abi_reg_mr_request),
    ROCI_MESSAGE(REREG_MR, roci_abi_rereg_mr_request),
    ROCI_MESSAGE(DEREG_MR, roci_abi_handle_request),
    ROCI_MESSAGE(UNSHARE_RANGE, roci_abi_unshare_range_request),
    ROCI_MESSAGE(CREATE_COMP_CHANNEL, roci_abi_plain_request),
    ROCI_MESSAGE(DESTROY_COMP_CHANNEL, roci_abi_handle_request),
    ROCI_MESSAGE(CREATE_CQ, roci_abi_create_cq_request),
    ROCI_MESSAGE(RESIZE_CQ, roci_abi_resize_cq_request),
    ROCI_MESSAGE(DESTROY_CQ, roci_abi_handle_request),
    ROCI_MESSAGE(CREATE_QP, roci_abi_create_qp_request),
    ROCI_MESSAGE(MODIFY_QP, roci_abi_modify_qp_request),
    ROCI_MESSAGE(QUERY_QP, roci_abi_query_qp_request),
    ROCI_MESSAGE(DESTROY_QP, roci_abi_handle_request),
    ROCI_MESSAGE(CREATE_AH, roci_abi_create_ah_request),
    ROCI_MESSAGE(DESTROY_AH, roci_abi_handle_request),
    ROCI_MESSAGE(ATTACH_MULTICAST, roci_abi_multicast_request),
    ROCI_MESSAGE(DETACH_MULTICAST, roci_abi_multicast_request),
    ROCI_MESSAGE(MODIFY_CQ, roci_abi_modify_cq_request),
    ROCI_MESSAGE(ALLOC_MW, roci_abi_alloc_mw_request),
    ROCI_MESSAGE(DEALLOC_MW, roci_abi_handle_request),
    ROCI_MESSAGE(ALLOC_NULL_MR, roci_abi_alloc_null_mr_request),
    ROCI_MESSAGE(ALLOC_DM, roci_abi_alloc_dm_request),
    ROCI_MESSAGE(FREE_DM, roci_abi_handle_request),
    ROCI_MESSAGE(REG_DM_MR, roci_abi_reg_dm_mr_request),
    ROCI_MESSAGE(CREATE_FLOW, roci_abi_create_flow_request),
    ROCI_MESSAGE(DESTROY_FLOW, roci_abi_handle_request),
    ROCI_MESSAGE(CREATE_COUNTERS, roci_abi_plain_request),
    ROCI_MESSAGE(DESTROY_COUNTERS, roci_abi_handle_request),
    ROCI_MESSAGE(ATTACH_COUNTERS, roci_abi_attach_counters_request),
    ROCI_MESSAGE(READ_COUNTERS, roci_abi_handle_request),
    ROCI_MESSAGE(CREATE_QUEUE_TABLE, roci_abi_create_queue_table_request),
    ROCI_MESSAGE(DESTROY_QUEUE_TABLE, roci_abi_handle_request),
    ROCI_MESSAGE(CREATE_RSS_QP, roci_abi_create_rss_qp_request),
    ROCI_MESSAGE(CREATE_SRQ, roci_abi_create_srq_request),
    ROCI_MESSAGE(MODIFY_SRQ, roci_abi_modify_srq_request),
    ROCI_MESSAGE(QUERY_SRQ, roci_abi_handle_request),
    ROCI_MESSAGE(DESTROY_SRQ, roci_abi_handle_request),
    ROCI_MESSAGE(OPEN_XRCD, roci_abi_open_xrcd_request),
    ROCI_MESSAGE(CLOSE_XRCD, roci_abi_handle_request),
    ROCI_MESSAGE(OPEN_QP, roci_abi_open_qp_request),
    ROCI_MESSAGE(CREATE_TAG_SRQ, roci_abi_create_tag_srq_request),
    ROCI_MESSAGE(ALLOC_LIST_MR, roci_abi_alloc_list_mr_request),
    ROCI_MESSAGE(FREE_LIST_MR, roci_abi_handle_request),
    ROCI_MESSAGE(NAME_CONTEXT, roci_abi_name_context_request),
    ROCI_MESSAGE(IMPORT_PD, roci_abi_handle_request),
    ROCI_MESSAGE(IMPORT_MR, roci_abi_handle_request),
    ROCI_MESSAGE(IMPORT_DM, roci_abi_handle_request),
    ROCI_MESSAGE(ALLOC_SIGNATURE_MR, roci_abi_alloc_signature_mr_request),
    ROCI_MESSAGE(CHECK_SIGNATURE_MR, roci_abi_handle_request),
    ROCI_MESSAGE(REG_DMA_BUFFER_MR, roci_abi_reg_dma_buffer_mr_request),
    ROCI_MESSAGE(RETURN_EVENTS, roci_abi_return_events_request),
};
#undef ROCI_MESSAGE
static_assert(std::size(kKinds) == ROCI_ABI_COMMAND_COUNT - 3);

template <class Request>
void Put(const Request& request, std::vector<std::byte>& out) {
  std::memcpy(out.data(), &request, sizeof(request));
}

void FillTranslation(const Region& region, auto& request) {
  request.access = kAllAccess;
  request.start = request.iova = region.va();
  request.length = region.size;
  request.extent_count = 1;
  request.extents[0].va = region.va();
  request.extents[0].length = region.size;
}

uint32_t HandleFor(const Speaker& speaker, uint32_t command) {
  switch (command) {
    case ROCI_ABI_DEALLOC_PD:
    case ROCI_ABI_IMPORT_PD:
      return speaker.rig.pd;
    case ROCI_ABI_DEREG_MR:
    case ROCI_ABI_IMPORT_MR:
      return speaker.rig.region.handle;
    case ROCI_ABI_DESTROY_COMP_CHANNEL:
      return speaker.channel;
    case ROCI_ABI_DESTROY_CQ:
      return speaker.rig.cq.handle;
    case ROCI_ABI_DESTROY_QP:
      return speaker.qp.info.handle;
    case ROCI_ABI_DESTROY_AH:
      return speaker.ah;
    case ROCI_ABI_DEALLOC_MW:
      return speaker.window;
    case ROCI_ABI_FREE_DM:
    case ROCI_ABI_IMPORT_DM:
      return speaker.dm;
    case ROCI_ABI_QUERY_SRQ:
    case ROCI_ABI_DESTROY_SRQ:
      return speaker.srq.handle;
    case ROCI_ABI_CLOSE_XRCD:
      return speaker.xrcd;
    case ROCI_ABI_FREE_LIST_MR:
    case ROCI_ABI_CHECK_SIGNATURE_MR:
      return speaker.list.handle;
    default:
      return 1;
  }
}

}  // namespace

std::span<const MessageKind> MessageKinds() { return kKinds; }

Speaker::Speaker() : qp(rig.MakeQp()), srq(rig.MakeSrq(16)), channel(rig.CreateChannel()) {
  ah = rig.MakeAh(2);
  roci_abi_open_xrcd_request open{};
  open.flags = ROCI_ABI_XRCD_CREATE;
  roci_abi_handle_response opened;
  EXPECT_EQ(rig.Call(ROCI_ABI_OPEN_XRCD, open, opened), 0);
  xrcd = opened.handle;
  roci_abi_alloc_dm_request alloc_dm{};
  alloc_dm.length = kPage;
  roci_abi_alloc_dm_response allocated;
  EXPECT_EQ(rig.Call(ROCI_ABI_ALLOC_DM, alloc_dm, allocated), 0);
  dm = allocated.handle;
  roci_abi_alloc_mw_request alloc_mw{};
  alloc_mw.pd = rig.pd;
  alloc_mw.type = 1;
  roci_abi_alloc_mw_response mw;
  EXPECT_EQ(rig.Call(ROCI_ABI_ALLOC_MW, alloc_mw, mw), 0);
  window = mw.handle;
  roci_abi_alloc_signature_mr_request alloc_list{};
  alloc_list.pd = rig.pd;
  alloc_list.max_runs = 4;
  alloc_list.max_protection_runs = 4;
  EXPECT_EQ(rig.Call(ROCI_ABI_ALLOC_SIGNATURE_MR, alloc_list, list), 0);
}

std::vector<std::byte> Speaker::Valid(const MessageKind& kind) {
  std::vector<std::byte> out(kind.size);
  switch (kind.command) {
    case ROCI_ABI_QUERY_PORT:
      Put(roci_abi_query_port_request{.head = {}, .port = 1, .reserved = 0}, out);
      break;
    case ROCI_ABI_REG_MR: {
      roci_abi_reg_mr_request request{};
      request.pd = rig.pd;
      FillTranslation(rig.region, request);
      Put(request, out);
      break;
    }
    case ROCI_ABI_REREG_MR: {
      roci_abi_rereg_mr_request request{};
      request.handle = rig.region.handle;
      request.flags = IBV_REREG_MR_CHANGE_TRANSLATION;
      FillTranslation(rig.region, request);
      Put(request, out);
      break;
    }
    case ROCI_ABI_UNSHARE_RANGE: {
      roci_abi_unshare_range_request request{};
      request.start = rig.region.va();
      request.length = kPage;
      Put(request, out);
      break;
    }
    case ROCI_ABI_CREATE_CQ: {
      roci_abi_create_cq_request request{};
      request.entries = 16;
      request.channel = kNone;
      Put(request, out);
      break;
    }
    case ROCI_ABI_RESIZE_CQ: {
      roci_abi_resize_cq_request request{};
      request.handle = rig.cq.handle;
      request.entries = 64;
      Put(request, out);
      break;
    }
    case ROCI_ABI_CREATE_QP:
      Put(RawSession::QpRequest(rig.pd, rig.cq.handle), out);
      break;
    case ROCI_ABI_MODIFY_QP: {
      roci_abi_modify_qp_request request{};
      request.handle = qp.info.handle;
      request.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
      request.attr.state = IBV_QPS_INIT;
      request.attr.port = 1;
      Put(request, out);
      break;
    }
    case ROCI_ABI_QUERY_QP: {
      roci_abi_query_qp_request request{};
      request.handle = qp.info.handle;
      Put(request, out);
      break;
    }
    case ROCI_ABI_CREATE_AH: {
      roci_abi_create_ah_request request{};
      request.pd = rig.pd;
      request.attr.is_global = 1;
      request.attr.port = 1;
      request.attr.sgid_index = 1;
      const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 99, 0, 2};
      std::memcpy(request.attr.dgid, gid, sizeof(gid));
      Put(request, out);
      break;
    }
    case ROCI_ABI_ATTACH_MULTICAST:
    case ROCI_ABI_DETACH_MULTICAST: {
      roci_abi_multicast_request request{};
      request.qp = qp.info.handle;
      request.gid[0] = 0xFF;
      request.gid[15] = 7;
      Put(request, out);
      break;
    }
    case ROCI_ABI_MODIFY_CQ: {
      roci_abi_modify_cq_request request{};
      request.handle = rig.cq.handle;
      request.count = 2;
      request.period_us = 10;
      Put(request, out);
      break;
    }
    case ROCI_ABI_ALLOC_MW:
      Put(roci_abi_alloc_mw_request{.head = {}, .pd = rig.pd, .type = 2}, out);
      break;
    case ROCI_ABI_ALLOC_NULL_MR:
      Put(roci_abi_alloc_null_mr_request{.head = {}, .pd = rig.pd, .reserved = 0}, out);
      break;
    case ROCI_ABI_ALLOC_DM:
      Put(roci_abi_alloc_dm_request{.head = {}, .length = kPage, .log_align = 0, .reserved = 0},
          out);
      break;
    case ROCI_ABI_REG_DM_MR: {
      roci_abi_reg_dm_mr_request request{};
      request.pd = rig.pd;
      request.dm = dm;
      request.length = 64;
      request.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
      Put(request, out);
      break;
    }
    case ROCI_ABI_CREATE_FLOW: {
      roci_abi_create_flow_request request{};
      request.qp = qp.info.handle;
      request.port = 1;
      Put(request, out);
      break;
    }
    case ROCI_ABI_CREATE_SRQ: {
      roci_abi_create_srq_request request{};
      request.pd = rig.pd;
      request.max_wr = 16;
      request.max_sge = 1;
      Put(request, out);
      break;
    }
    case ROCI_ABI_MODIFY_SRQ: {
      roci_abi_modify_srq_request request{};
      request.handle = srq.handle;
      request.mask = ROCI_ABI_SRQ_LIMIT;
      request.limit = 2;
      Put(request, out);
      break;
    }
    case ROCI_ABI_OPEN_XRCD: {
      roci_abi_open_xrcd_request request{};
      request.flags = ROCI_ABI_XRCD_CREATE;
      Put(request, out);
      break;
    }
    case ROCI_ABI_OPEN_QP: {
      roci_abi_open_qp_request request{};
      request.xrcd = xrcd;
      request.qp_type = IBV_QPT_XRC_RECV;
      Put(request, out);
      break;
    }
    case ROCI_ABI_CREATE_TAG_SRQ: {
      roci_abi_create_tag_srq_request request{};
      request.pd = rig.pd;
      request.cq = rig.cq.handle;
      request.max_wr = 16;
      request.max_sge = 1;
      request.max_tags = request.max_ops = 8;
      Put(request, out);
      break;
    }
    case ROCI_ABI_ALLOC_LIST_MR:
      Put(roci_abi_alloc_list_mr_request{.head = {}, .pd = rig.pd, .max_runs = 4}, out);
      break;
    case ROCI_ABI_ALLOC_SIGNATURE_MR: {
      roci_abi_alloc_signature_mr_request request{};
      request.pd = rig.pd;
      request.max_runs = request.max_protection_runs = 4;
      Put(request, out);
      break;
    }
    case ROCI_ABI_REG_DMA_BUFFER_MR: {
      roci_abi_reg_dma_buffer_mr_request request{};
      request.pd = rig.pd;
      request.access = IBV_ACCESS_LOCAL_WRITE;
      request.length = kPage;
      Put(request, out);
      break;
    }
    case ROCI_ABI_RETURN_EVENTS: {
      roci_abi_return_events_request request{};
      request.channel = channel;
      request.count = 1;
      request.events[0].element = rig.cq.handle;
      Put(request, out);
      break;
    }
    default:
      if (kind.size == sizeof(roci_abi_handle_request)) {
        const uint32_t handle = HandleFor(*this, kind.command);
        Put(roci_abi_handle_request{.head = {}, .handle = handle, .reserved = 0}, out);
      }
      break;
  }
  const roci_abi_request head{kind.command, static_cast<uint32_t>(kind.size), 7, 0};
  std::memcpy(out.data(), &head, sizeof(head));
  return out;
}

int Speaker::Ask(std::span<const std::byte> message, const std::vector<int>& fds, int timeout_ms) {
  rig.CloseFds();
  if (!rig.SendBytes(message, fds)) return -2;
  std::array<std::byte, 4096> answer;
  const ssize_t size = rig.ReceiveBytes(answer, timeout_ms);
  if (size <= 0) return size == 0 ? -2 : -1;
  roci_abi_response head;
  EXPECT_GE(size, static_cast<ssize_t>(sizeof(head)));
  std::memcpy(&head, answer.data(), sizeof(head));
  EXPECT_GE(head.error, 0);
  EXPECT_LT(head.error, 600);
  EXPECT_EQ(head.fd_count, rig.fds().size());
  return head.error;
}

}  // namespace roci::testing::hostile
