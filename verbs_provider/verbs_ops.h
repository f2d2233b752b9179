// The operations that the plugin gives libibverbs, by the object they work on. Each is what the
// verbs call of its name does, as in struct verbs_context_ops of infiniband/driver.h; errors are
// those of the call's manual page.
#pragma once

#include "verbs_provider/provider_api.h"

namespace roci::provider {

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

// cq.cc
ibv_cq* CreateCq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
int ResizeCq(ibv_cq* cq, int entries);
int DestroyCq(ibv_cq* cq);
int ReqNotifyCq(ibv_cq* cq, int solicited_only);

// poll.cc
int PollCq(ibv_cq* cq, int count, ibv_wc* wc);

// qp.cc
ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init);
int DestroyQp(ibv_qp* qp);

// post.cc
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);

// address_handle.cc
ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr);
int DestroyAh(ibv_ah* ah);

}  // namespace roci::provider
