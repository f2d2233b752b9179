// Prints the sizes and offsets of libibverbs' private structures: of the project's declarations
// (ours.cc) or of libibverbs' own headers (theirs.cc), for compare_headers_test.py.
#pragma once

#include <cstddef>
#include <cstdio>

#include "verbs_provider/base/provider_api.h"

#define ROCI_SIZE(type) std::printf("%s %zu\n", #type, sizeof(type));
#define ROCI_OFFSET(type, member) \
  std::printf("%s.%s %zu\n", #type, #member, offsetof(type, member));
#define ROCI_VALUE(name) std::printf("%s %d\n", #name, static_cast<int>(name));

inline void PrintCommonStructures() {
  ROCI_SIZE(verbs_sysfs_dev)
  ROCI_OFFSET(verbs_sysfs_dev, provider_data)
  ROCI_OFFSET(verbs_sysfs_dev, match)
  ROCI_OFFSET(verbs_sysfs_dev, flags)
  ROCI_OFFSET(verbs_sysfs_dev, sysfs_name)
  ROCI_OFFSET(verbs_sysfs_dev, sysfs_cdev)
  ROCI_OFFSET(verbs_sysfs_dev, ibdev_name)
  ROCI_OFFSET(verbs_sysfs_dev, ibdev_path)
  ROCI_OFFSET(verbs_sysfs_dev, modalias)
  ROCI_OFFSET(verbs_sysfs_dev, node_guid)
  ROCI_OFFSET(verbs_sysfs_dev, driver_id)
  ROCI_OFFSET(verbs_sysfs_dev, node_type)
  ROCI_OFFSET(verbs_sysfs_dev, ibdev_idx)
  ROCI_OFFSET(verbs_sysfs_dev, num_ports)
  ROCI_OFFSET(verbs_sysfs_dev, abi_ver)
  ROCI_OFFSET(verbs_sysfs_dev, time_created)
  ROCI_SIZE(verbs_device)
  ROCI_OFFSET(verbs_device, device)
  ROCI_OFFSET(verbs_device, ops)
  ROCI_OFFSET(verbs_device, refcount)
  ROCI_OFFSET(verbs_device, entry)
  ROCI_OFFSET(verbs_device, sysfs)
  ROCI_OFFSET(verbs_device, core_support)
  ROCI_SIZE(verbs_device_ops)
  ROCI_OFFSET(verbs_device_ops, name)
  ROCI_OFFSET(verbs_device_ops, match_min_abi_version)
  ROCI_OFFSET(verbs_device_ops, match_max_abi_version)
  ROCI_OFFSET(verbs_device_ops, match_table)
  ROCI_OFFSET(verbs_device_ops, static_providers)
  ROCI_OFFSET(verbs_device_ops, match_device)
  ROCI_OFFSET(verbs_device_ops, alloc_context)
  ROCI_OFFSET(verbs_device_ops, import_context)
  ROCI_OFFSET(verbs_device_ops, alloc_device)
  ROCI_OFFSET(verbs_device_ops, uninit_device)
  ROCI_SIZE(verbs_mr)
  ROCI_OFFSET(verbs_mr, ibv_mr)
  ROCI_OFFSET(verbs_mr, mr_type)
  ROCI_OFFSET(verbs_mr, access)
  ROCI_SIZE(verbs_cq)
  ROCI_OFFSET(verbs_cq, cq_ex)
  ROCI_SIZE(verbs_xrcd)
  ROCI_OFFSET(verbs_xrcd, comp_mask)
  ROCI_OFFSET(verbs_xrcd, handle)
  ROCI_SIZE(verbs_srq)
  ROCI_OFFSET(verbs_srq, srq_type)
  ROCI_OFFSET(verbs_srq, xrcd)
  ROCI_OFFSET(verbs_srq, cq)
  ROCI_OFFSET(verbs_srq, srq_num)
  ROCI_VALUE(IBV_MR_TYPE_MR)
  ROCI_VALUE(IBV_MR_TYPE_NULL_MR)
  ROCI_VALUE(IBV_MR_TYPE_IMPORTED_MR)
  ROCI_VALUE(IBV_MR_TYPE_DMABUF_MR)
  ROCI_VALUE(VERBS_QP_EX)
  ROCI_VALUE(VERBS_XRCD_HANDLE)
}
