// The commands of a session: one row per command of the ABI (verbs_provider/abi/session_head.h).
// Decoder and session build their tables from it.
#pragma once

// ROW(name, request, response, takes_fds, check, offered, handler):
// - name: ROCI_ABI_<name>
// - request, response: roci_abi_<request>_request and roci_abi_<response>_response
// - takes_fds: whether the request may have descriptors
// - check: the decoder's function for this request, or nullptr
// - offered: the decoder's function that tells whether a device has what the command is for, or
//   nullptr: each has
// - handler: the member function of Session that executes it
//
// The order of the rows has no meaning.
// clang-format off
#define ROCI_SESSION_COMMANDS(ROW)                                                                                     \
  ROW(HELLO, hello, hello, true, CheckHello, nullptr, Hello)                                                           \
  ROW(QUERY_DEVICE, query_device, query_device, false, nullptr, nullptr, QueryDevice)                                  \
  ROW(QUERY_PORT, query_port, query_port, false, CheckQueryPort, nullptr, QueryPort)                                   \
  ROW(ALLOC_PD, plain, handle, false, nullptr, nullptr, AllocPd)                                                       \
  ROW(DEALLOC_PD, handle, plain, false, nullptr, nullptr, DeallocPd)                                                   \
  ROW(REG_MR, reg_mr, reg_mr, true, CheckRegMr, nullptr, RegMr)                                                        \
  ROW(REREG_MR, rereg_mr, reg_mr, true, CheckReregMr, HasRereg, ReregMr)                                               \
  ROW(DEREG_MR, handle, plain, false, nullptr, nullptr, DeregMr)                                                       \
  ROW(UNSHARE_RANGE, unshare_range, plain, false, CheckUnshareRange, nullptr, UnshareRange)                            \
  ROW(CREATE_COMP_CHANNEL, plain, handle, false, nullptr, nullptr, CreateChannel)                                      \
  ROW(DESTROY_COMP_CHANNEL, handle, plain, false, nullptr, nullptr, DestroyChannel)                                    \
  ROW(CREATE_CQ, create_cq, create_cq, false, CheckCreateCq, nullptr, CreateCq)                                        \
  ROW(RESIZE_CQ, resize_cq, resize_cq, false, CheckResizeCq, HasResizeCq, ResizeCq)                                    \
  ROW(DESTROY_CQ, handle, destroy, false, nullptr, nullptr, DestroyCq)                                                 \
  ROW(CREATE_QP, create_qp, create_qp, false, CheckCreateQp, nullptr, CreateQp)                                        \
  ROW(MODIFY_QP, modify_qp, modify_qp, false, CheckModifyQp, nullptr, ModifyQp)                                        \
  ROW(QUERY_QP, query_qp, query_qp, false, nullptr, nullptr, QueryQp)                                                  \
  ROW(DESTROY_QP, handle, destroy, false, nullptr, nullptr, DestroyQp)                                                 \
  ROW(CREATE_AH, create_ah, handle, false, nullptr, nullptr, CreateAh)                                                 \
  ROW(DESTROY_AH, handle, plain, false, nullptr, nullptr, DestroyAh)                                                   \
  ROW(ATTACH_MULTICAST, multicast, plain, false, CheckMulticast, HasMulticast, AttachMulticast)                        \
  ROW(DETACH_MULTICAST, multicast, plain, false, CheckMulticast, nullptr, DetachMulticast)                             \
  ROW(MODIFY_CQ, modify_cq, plain, false, CheckModifyCq, HasModeration, ModifyCq)                                      \
  ROW(ALLOC_MW, alloc_mw, alloc_mw, false, CheckAllocMw, HasWindows, AllocMw)                                          \
  ROW(DEALLOC_MW, handle, plain, false, nullptr, nullptr, DeallocMw)                                                   \
  ROW(ALLOC_NULL_MR, alloc_null_mr, reg_mr, false, nullptr, HasNullMr, AllocNullMr)                                    \
  ROW(ALLOC_DM, alloc_dm, alloc_dm, false, nullptr, HasDeviceMemory, AllocDm)                                          \
  ROW(FREE_DM, handle, plain, false, nullptr, nullptr, FreeDm)                                                         \
  ROW(REG_DM_MR, reg_dm_mr, reg_mr, false, CheckRegDmMr, nullptr, RegDmMr)                                             \
  ROW(CREATE_FLOW, create_flow, handle, false, CheckCreateFlow, HasFlows, CreateFlow)                                  \
  ROW(DESTROY_FLOW, handle, plain, false, nullptr, nullptr, DestroyFlow)                                               \
  ROW(CREATE_COUNTERS, plain, handle, false, nullptr, HasCounters, CreateCounters)                                     \
  ROW(DESTROY_COUNTERS, handle, plain, false, nullptr, nullptr, DestroyCounters)                                       \
  ROW(ATTACH_COUNTERS, attach_counters, plain, false, nullptr, nullptr, AttachCounters)                                \
  ROW(READ_COUNTERS, handle, read_counters, false, nullptr, nullptr, ReadCounters)                                     \
  ROW(CREATE_QUEUE_TABLE, create_queue_table, handle, false, CheckQueueTable, HasRss, CreateQueueTable)                \
  ROW(DESTROY_QUEUE_TABLE, handle, plain, false, nullptr, nullptr, DestroyQueueTable)                                  \
  ROW(CREATE_RSS_QP, create_rss_qp, create_qp, false, CheckCreateRssQp, HasRss, CreateRssQp)                           \
  ROW(CREATE_SRQ, create_srq, create_srq, false, CheckCreateSrq, HasSrqs, CreateSrq)                                   \
  ROW(MODIFY_SRQ, modify_srq, modify_srq, false, CheckModifySrq, nullptr, ModifySrq)                                   \
  ROW(QUERY_SRQ, handle, query_srq, false, nullptr, nullptr, QuerySrq)                                                 \
  ROW(DESTROY_SRQ, handle, destroy, false, nullptr, nullptr, DestroySrq)                                               \
  ROW(OPEN_XRCD, open_xrcd, handle, true, CheckOpenXrcd, HasXrc, OpenXrcd)                                             \
  ROW(CLOSE_XRCD, handle, plain, false, nullptr, nullptr, CloseXrcd)                                                   \
  ROW(OPEN_QP, open_qp, open_qp, false, CheckOpenQp, nullptr, OpenQp)                                                  \
  ROW(CREATE_TAG_SRQ, create_tag_srq, create_tag_srq, false, CheckCreateTagSrq, HasTagMatching, CreateTagSrq)          \
  ROW(ALLOC_LIST_MR, alloc_list_mr, alloc_list_mr, false, CheckAllocListMr, nullptr, AllocListMr)                      \
  ROW(FREE_LIST_MR, handle, plain, false, nullptr, nullptr, FreeListMr)                                                \
  ROW(NAME_CONTEXT, name_context, plain, false, nullptr, nullptr, NameContext)                                         \
  ROW(ATTACH, attach, attach, true, CheckAttach, nullptr, Attach)                                                      \
  ROW(IMPORT_PD, handle, plain, false, nullptr, nullptr, ImportPd)                                                     \
  ROW(IMPORT_MR, handle, import_mr, false, nullptr, nullptr, ImportMr)                                                 \
  ROW(IMPORT_DM, handle, import_dm, false, nullptr, nullptr, ImportDm)                                                 \
  ROW(ALLOC_SIGNATURE_MR, alloc_signature_mr, alloc_list_mr, false, CheckAllocSignatureMr, nullptr, AllocSignatureMr)  \
  ROW(CHECK_SIGNATURE_MR, handle, check_signature_mr, false, nullptr, nullptr, CheckSignatureMr)                       \
  ROW(REG_DMA_BUFFER_MR, reg_dma_buffer_mr, reg_mr, true, CheckRegDmaBufferMr, HasDmaBuffers, RegDmaBufferMr)          \
  ROW(RETURN_EVENTS, return_events, plain, false, CheckReturnEvents, nullptr, ReturnEvents)
// clang-format on
