/* Direct verbs of Rocinante: what its devices can do and <infiniband/verbs.h> has no call for.
 *
 * Link with -lrocidv. The library is thin: it finds the provider plugin through the context, so
 * that a program built with it runs without Rocinante, too. There every call fails with EOPNOTSUPP.
 * Calls are thread-safe as their counterparts in verbs are, and report errors like these: null and
 * errno, or a positive errno as the result.
 */
#ifndef ROCIDV_H
#define ROCIDV_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The device */

struct rocidv_device_attr {
  uint32_t max_mr_entries; /* runs of memory in one rocidv_mr */
  uint32_t reserved;
};

/* Whether `context` is open on a device of Rocinante. */
bool rocidv_is_supported(struct ibv_context* context);

/* Fills in `attr_size` bytes of `attr`; what this version does not know is 0. 0 or EOPNOTSUPP. */
int rocidv_query_device(struct ibv_context* context, struct rocidv_device_attr* attr,
                        size_t attr_size);

/* ---- Registration by a work request
 *
 * The counterpart of the kernel's ib_alloc_mr(), ib_map_mr_sg() and IB_WR_REG_MR. A region is made
 * once, without memory. Again and again it is then given a list of runs of memory (rocidv_map_*), a
 * new key (rocidv_update_rkey) and a work request that makes both valid (rocidv_wr_reg_mr or
 * rocidv_post_reg_mr), and is invalidated: by IBV_WR_LOCAL_INV, by a peer's SEND with invalidate,
 * or by ibv_wr_local_inv(). Runs are parts of ordinary regions of the same protection domain, named
 * by their local keys; these need no remote rights of their own, but local write access if the
 * region is to be written. They must stay registered as long as the region is used: where one is
 * gone, access fails with a protection error.
 *
 * A registration takes effect in its place in the send queue, as a bind does (ibv_bind_mw(3)), and
 * completes with the opcode IBV_WC_DRIVER1. It fails with IBV_WC_MW_BIND_ERR, and the queue pair
 * with it, if the region is valid already, if a run is not within its region, or if rights are
 * missing.
 */
struct rocidv_mr {
  struct ibv_context* context;
  struct ibv_pd* pd;
  uint32_t lkey;   /* of the next registration, or of the present one */
  uint32_t rkey;   /* the same number */
  uint64_t iova;   /* of the first byte; as mapped last */
  uint64_t length; /* bytes; as mapped last */
  uint32_t max_entries;
};

/* At most max_mr_entries of the device. Null with errno EINVAL, ENOMEM. Counts as one of max_mr. */
struct rocidv_mr* rocidv_alloc_mr(struct ibv_pd* pd, uint32_t max_entries);
/* Valid or not. 0, or an errno with nothing changed. */
int rocidv_dereg_mr(struct rocidv_mr* mr);

/* Fills the list with `count` runs in their order, for the next registration. `iova` is how users
 * of the key name the first byte; each following byte has the next address. The list is in use from
 * the post of a registration until that has completed: do not map meanwhile. 0, or EINVAL: no runs
 * or more than the region has room for, an empty run, or more than 2^46 bytes. */
int rocidv_map_mr_sg(struct rocidv_mr* mr, const struct ibv_sge* runs, uint32_t count,
                     uint64_t iova);
/* The same for `count` pages of `page_size` bytes (a power of two, 4096 at least) at `pages`, all
 * of the ordinary region `lkey`, of which the list has `length` bytes from `offset` in the first
 * page on. Page addresses are multiples of page_size. 0 or EINVAL. */
int rocidv_map_mr_pages(struct rocidv_mr* mr, uint32_t lkey, const uint64_t* pages, uint32_t count,
                        uint64_t page_size, uint64_t offset, uint64_t length, uint64_t iova);
/* The key of the next registration: the low 8 bits are the program's to choose, so that peers' old
 * keys do not fit. Not while the region is valid. */
void rocidv_update_rkey(struct rocidv_mr* mr, uint8_t variant);

/* The request, between ibv_wr_start() and ibv_wr_complete(); qp->wr_id and qp->wr_flags count. RC,
 * UC and XRC send queue pairs. `access`: IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE, _REMOTE_READ,
 * _REMOTE_ATOMIC. Errors come from ibv_wr_complete(): EINVAL, ENOMEM. */
void rocidv_wr_reg_mr(struct ibv_qp_ex* qp, const struct rocidv_mr* mr, unsigned int access);
/* The same for any queue pair, at once. `send_flags`: IBV_SEND_SIGNALED, IBV_SEND_FENCE.
 * 0, EINVAL, or ENOMEM: the send queue is full. */
int rocidv_post_reg_mr(struct ibv_qp* qp, const struct rocidv_mr* mr, unsigned int access,
                       uint64_t wr_id, unsigned int send_flags);

#ifdef __cplusplus
}
#endif

#endif
