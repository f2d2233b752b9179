// The plugin's entries of libibverbs' operation table (generations/operations.inc), by source file.
// Each implements the verbs call of its name; errors are those of the call's manual page.
#pragma once

#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct Qp;
struct VerbsSession;

// context.cc
void FreeContext(ibv_context* context);

// device.cc
int QueryDevice(ibv_context* context, const ibv_query_device_ex_input* input,
                ibv_device_attr_ex* attr, size_t attr_size);
int QueryRtValues(ibv_context* context, ibv_values_ex* values);
int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr);

// pd.cc
ibv_pd* AllocPd(ibv_context* context);
int DeallocPd(ibv_pd* pd);
ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attr);
ibv_pd* ImportPd(ibv_context* context, uint32_t handle);
void UnimportPd(ibv_pd* pd);
ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr* attr);
int DeallocTd(ibv_td* td);

// mr.cc
ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access);
int ReregMr(verbs_mr* vmr, int flags, ibv_pd* pd, void* address, size_t length, int access);
int DeregMr(verbs_mr* vmr);
ibv_mr* ImportMr(ibv_pd* pd, uint32_t handle);
void UnimportMr(ibv_mr* mr);

ibv_mr* AllocNullMr(ibv_pd* pd);
ibv_mr* RegDmaBufferMr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                       int access);
ibv_mr* RegDmMr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access);

// dm.cc
ibv_dm* AllocDm(ibv_context* context, ibv_alloc_dm_attr* attr);
int FreeDm(ibv_dm* dm);
ibv_dm* ImportDm(ibv_context* context, uint32_t handle);
void UnimportDm(ibv_dm* dm);

// odp.cc
int AdviseMr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
             uint32_t count);

// mw.cc
ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type);
int DeallocMw(ibv_mw* mw);
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

// cq.cc
ibv_cq* CreateCq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
int ResizeCq(ibv_cq* cq, int entries);
int ModifyCq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int DestroyCq(ibv_cq* cq);
int ReqNotifyCq(ibv_cq* cq, int solicited_only);

// poll.cc
int PollCq(ibv_cq* cq, int count, ibv_wc* wc);

// qp.cc
ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init);
int ModifyRateLimit(ibv_qp* ibqp, ibv_qp_rate_limit_attr* limit);
int DestroyQp(ibv_qp* qp);

// ece.cc
int QueryEce(ibv_qp* qp, ibv_ece* ece);
int SetEce(ibv_qp* qp, ibv_ece* ece);
/// ROCI_ABI_ECE_*, for MODIFY_QP to RTR.
uint8_t AgreedEce(const Qp& qp);

// post.cc
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);

// srq.cc
ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* attr);
int GetSrqNum(ibv_srq* srq, uint32_t* number);
int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr);
int DestroySrq(ibv_srq* srq);
int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int PostSrqOps(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad);

// xrc.cc
ibv_xrcd* OpenXrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int CloseXrcd(ibv_xrcd* xrcd);
ibv_qp* OpenQp(ibv_context* context, ibv_qp_open_attr* attr);
// Creates an XRC target queue pair, for CreateQpEx with IBV_QPT_XRC_RECV.
ibv_qp* CreateTargetQp(ibv_context* context, ibv_qp_init_attr_ex* attr);

// address_handle.cc
/// Tells the daemon of the program's destroyed address handles in protection domain `pd` (a handle;
/// ROCI_ABI_NO_HANDLE: in all).
void DestroyParkedAhs(VerbsSession* session, uint32_t pd);
ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr);
int DestroyAh(ibv_ah* ah);

// multicast.cc
int AttachMulticast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
int DetachMulticast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);

// flow.cc
ibv_flow* CreateFlow(ibv_qp* qp, ibv_flow_attr* attr);
int DestroyFlow(ibv_flow* flow);

// verbs_counters.cc
ibv_counters* CreateCounters(ibv_context* context, ibv_counters_init_attr* attr);
int DestroyCounters(ibv_counters* counters);
int AttachCounters(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow);
int ReadCounters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags);

// work_queue.cc
ibv_wq* CreateWq(ibv_context* context, ibv_wq_init_attr* attr);
int ModifyWq(ibv_wq* wq, ibv_wq_attr* attr);
int DestroyWq(ibv_wq* wq);
ibv_rwq_ind_table* CreateQueueTable(ibv_context* context, ibv_rwq_ind_table_init_attr* attr);
int DestroyQueueTable(ibv_rwq_ind_table* table);

}  // namespace roci::provider
