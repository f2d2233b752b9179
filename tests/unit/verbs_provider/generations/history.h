// What upstream's history says about the layouts of libibverbs' private structures, independently
// of verbs_provider/generations: the test compares both.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace roci::provider::history {

// The operation table of rdma-core 36.
inline constexpr std::string_view kOperationsOf36 =
    "advise_mr alloc_dm alloc_mw alloc_null_mr alloc_parent_domain alloc_pd alloc_td async_event "
    "attach_counters_point_flow attach_mcast bind_mw close_xrcd cq_event create_ah create_counters "
    "create_cq create_cq_ex create_flow create_flow_action_esp create_qp create_qp_ex "
    "create_rwq_ind_table create_srq create_srq_ex create_wq dealloc_mw dealloc_pd dealloc_td "
    "dereg_mr destroy_ah destroy_counters destroy_cq destroy_flow destroy_flow_action destroy_qp "
    "destroy_rwq_ind_table destroy_srq destroy_wq detach_mcast free_context free_dm get_srq_num "
    "import_dm import_mr import_pd modify_cq modify_flow_action_esp modify_qp modify_qp_rate_limit "
    "modify_srq modify_wq open_qp open_xrcd poll_cq post_recv post_send post_srq_ops post_srq_recv "
    "query_device_ex query_ece query_port query_qp query_qp_data_in_order query_rt_values "
    "query_srq "
    "read_counters reg_dm_mr reg_dmabuf_mr reg_mr req_notify_cq rereg_mr resize_cq set_ece "
    "unimport_dm unimport_mr unimport_pd";

struct Release {
  int first;                          // release of rdma-core that brought the change
  std::string_view new_operations;    // the table stays sorted by name
  size_t verbs_context_bytes_on_x86;  // sizeof(verbs_context)
};

inline const std::vector<Release> kReleases = {
    {36, "", 648},
    {59, "alloc_dmah dealloc_dmah reg_mr_ex", 672},
    {62, "dm_export_dmabuf_fd query_port_speed", 680},
    {64, "alloc_buf free_buf", 696},
    {65,
     "create_comp_cntr destroy_comp_cntr inc_comp_cntr inc_err_comp_cntr qp_attach_comp_cntr "
     "query_comp_cntr_caps read_comp_cntr read_err_comp_cntr set_comp_cntr set_err_comp_cntr",
     696},
};

}  // namespace roci::provider::history
