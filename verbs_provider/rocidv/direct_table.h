/* The table of the plugin's implementation of rocidv.h. librocidv finds it by its symbol in the
 * shared object that serves a context. */
#ifndef ROCI_DIRECT_TABLE_H
#define ROCI_DIRECT_TABLE_H

#include "verbs_provider/include/infiniband/rocidv.h"

#define ROCI_DIRECT_TABLE_SYMBOL "rocidv_table_1"

/* New members are added at the end; `size` says which members the plugin has. */
struct rocidv_table {
  size_t size;
  int (*query_device)(struct ibv_context*, struct rocidv_device_attr*);
  struct rocidv_mr* (*alloc_mr)(struct ibv_pd*, uint32_t);
  int (*dereg_mr)(struct rocidv_mr*);
  int (*map_mr_sg)(struct rocidv_mr*, const struct ibv_sge*, uint32_t, uint64_t);
  int (*map_mr_pages)(struct rocidv_mr*, uint32_t, const uint64_t*, uint32_t, uint64_t, uint64_t,
                      uint64_t, uint64_t);
  void (*update_rkey)(struct rocidv_mr*, uint8_t);
  void (*wr_reg_mr)(struct ibv_qp_ex*, const struct rocidv_mr*, unsigned int);
  int (*post_reg_mr)(struct ibv_qp*, const struct rocidv_mr*, unsigned int, uint64_t, unsigned int);
  struct rocidv_mr* (*alloc_mr_integrity)(struct ibv_pd*, uint32_t, uint32_t);
  int (*map_mr_sg_integrity)(struct rocidv_mr*, const struct ibv_sge*, uint32_t,
                             const struct ibv_sge*, uint32_t, const struct rocidv_sig_attr*,
                             uint64_t);
  int (*check_mr_status)(struct rocidv_mr*, struct rocidv_sig_error*);
  void (*wr_flush)(struct ibv_qp_ex*, uint32_t, uint64_t, size_t, uint32_t, uint32_t);
  int (*post_flush)(struct ibv_qp*, uint32_t, uint64_t, size_t, uint32_t, uint32_t, uint64_t,
                    unsigned int);
};

#endif
