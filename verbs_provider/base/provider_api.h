// libibverbs' public header, and declarations of what libibverbs shares with its providers only.
// All private ABI numbers that Rocinante serves (generations/layouts.h) have the same layout of
// these structures; tests/unit/verbs_provider/generations compares them with libibverbs' own
// headers.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

// The operation table, whose layout differs (generations/).
struct verbs_context_ops;
struct verbs_device_ops;
struct verbs_match_ent;

/// A link of libibverbs' doubly linked lists.
struct list_node {
  list_node* next;
  list_node* prev;
};

/// A device that libibverbs has found in sysfs.
struct verbs_sysfs_dev {
  list_node entry;
  void* provider_data;
  const verbs_match_ent* match;
  unsigned flags;
  char sysfs_name[IBV_SYSFS_NAME_MAX];
  dev_t sysfs_cdev;
  char ibdev_name[IBV_SYSFS_NAME_MAX];
  char ibdev_path[IBV_SYSFS_PATH_MAX];
  char modalias[512];
  uint64_t node_guid;
  uint32_t driver_id;
  ibv_node_type node_type;
  int ibdev_idx;
  uint32_t num_ports;
  uint32_t abi_ver;
  timespec time_created;
};

/// The head of a provider's device. libibverbs fills in all of it.
struct verbs_device {
  ibv_device device;
  const verbs_device_ops* ops;
  int refcount;  // atomic in libibverbs
  list_node entry;
  verbs_sysfs_dev* sysfs;
  uint64_t core_support;
};

/// How libibverbs matches, allocates and opens a provider's devices.
struct verbs_device_ops {
  const char* name;
  uint32_t match_min_abi_version;
  uint32_t match_max_abi_version;
  const verbs_match_ent* match_table;
  const verbs_device_ops** static_providers;
  bool (*match_device)(verbs_sysfs_dev* sysfs);
  verbs_context* (*alloc_context)(ibv_device* device, int cmd_fd, void* private_data);
  verbs_context* (*import_context)(ibv_device* device, int cmd_fd);
  verbs_device* (*alloc_device)(verbs_sysfs_dev* sysfs);
  void (*uninit_device)(verbs_device* device);
};

enum ibv_mr_type : unsigned {
  IBV_MR_TYPE_MR = 0,
  IBV_MR_TYPE_NULL_MR = 1,
  IBV_MR_TYPE_IMPORTED_MR = 2,
  IBV_MR_TYPE_DMABUF_MR = 3,
};

/// ibv_rereg_mr and ibv_dereg_mr read the type; ibv_rereg_mr writes the access flags.
struct verbs_mr {
  struct ibv_mr ibv_mr;  // first
  ibv_mr_type mr_type;
  int access;
};

struct verbs_cq {
  union {
    ibv_cq cq;  // first
    ibv_cq_ex cq_ex;
  };
};

constexpr uint32_t VERBS_XRCD_HANDLE = 1;

struct verbs_xrcd {
  ibv_xrcd xrcd;  // first
  uint32_t comp_mask;
  uint32_t handle;
};

struct verbs_srq {
  ibv_srq srq;  // first
  ibv_srq_type srq_type;
  verbs_xrcd* xrcd;
  ibv_cq* cq;
  uint32_t srq_num;
};

constexpr uint32_t VERBS_QP_EX = 2;

/// A queue pair. The flags in which ibv_qp_to_qp_ex() looks for VERBS_QP_EX lie after libibverbs'
/// own ibv_qp_ex, which has grown twice while the private ABI number was 34. A place of the flags
/// is that of a call in later versions. Such a call must not be used unless the program has asked
/// for it, so its place can have the flags until then.
struct verbs_qp {
  union {
    ibv_qp qp;  // first
    ibv_qp_ex qp_ex;
    struct {
      // The ibv_qp_ex of rdma-core 36 to 43: 344 bytes on x86, more where a mutex is larger.
      std::byte calls_of_36[offsetof(ibv_qp_ex, wr_abort) + sizeof(void*)];
      uint64_t flags_of_36;  // from 44 on: wr_atomic_write
      uint64_t flags_of_44;  // from 45 on: wr_flush
      uint64_t flags_of_45;  // 45 to 65
      void* xrcd;            // read by no function that the plugin calls
    } tail;
  };
};
#if defined(__x86_64__)
static_assert(offsetof(verbs_qp, tail.flags_of_36) == 344);
#endif
static_assert(offsetof(ibv_qp_ex, wr_atomic_write) == offsetof(verbs_qp, tail.flags_of_36));
static_assert(sizeof(ibv_qp_ex) <= offsetof(verbs_qp, tail.flags_of_45));

extern "C" {

/// Allocates `size` zero bytes, with libibverbs' verbs_context at `offset`, and initialises that.
/// On failure null with errno; `cmd_fd` is closed.
void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, size_t size,
                                    verbs_context* offset, uint32_t driver_id);
/// Copies the operations that are not null.
void verbs_set_ops(verbs_context* context, const verbs_context_ops* operations);
/// Closes the context's descriptors and frees what libibverbs has allocated for it.
void verbs_uninit_context(verbs_context* context);
/// The directory of sysfs, which SYSFS_PATH replaces.
const char* ibv_get_sysfs_path(void);

}  // extern "C"
