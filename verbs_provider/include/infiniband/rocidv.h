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
  uint32_t max_mr_entries;         /* runs of memory in one rocidv_mr */
  uint32_t max_protection_entries; /* runs of protection information in one; 0: no signatures */
  uint32_t sig_block_sizes;        /* ROCIDV_SIG_BLOCK_*: those that can be protected */
  uint32_t sig_guards;             /* 1 << enum rocidv_sig_guard */
  uint32_t flush_types;            /* enum rocidv_flush_type; 0: there is no FLUSH */
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
  uint64_t length; /* bytes, as users of the key see them; as mapped last */
  uint32_t max_entries;
  uint32_t max_protection_entries; /* of a signature region */
};

/* At most max_mr_entries of the device. Null with errno EINVAL, ENOMEM. Counts as one of max_mr. */
struct rocidv_mr* rocidv_alloc_mr(struct ibv_pd* pd, uint32_t max_entries);
/* Any region of this header, valid or not. 0, or an errno with nothing changed. */
int rocidv_dereg_mr(struct rocidv_mr* mr);

/* Fills the list with `count` runs in their order, for the next registration; not of a signature
 * region. `iova` is how users
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

/* ---- FLUSH
 *
 * The counterpart of ibv_wr_flush() of newer libraries, for RC and XRC send queue pairs. What was
 * written to the range (or, with ROCIDV_FLUSH_WHOLE_REGION, to everything that the key opens; range
 * and length do not count then) by earlier requests of this queue pair is, when the request has
 * completed, visible to the peer's program (ROCIDV_FLUSH_GLOBAL), or survives a power failure
 * (ROCIDV_FLUSH_PERSISTENT), or both. The peer's region and queue pair must allow the type:
 * IBV_ACCESS_FLUSH_GLOBAL (1 << 8), IBV_ACCESS_FLUSH_PERSISTENT (1 << 9). It counts among READs and
 * atomics (max_rd_atomic), and completes with the opcode IBV_WC_FLUSH of newer headers (8).
 *
 * The answer to ROCIDV_FLUSH_PERSISTENT takes as long as the peer's disk does. Choose a timeout of
 * the queue pair that, with its retries, is longer.
 */
enum rocidv_flush_type {
  ROCIDV_FLUSH_GLOBAL = 1,
  ROCIDV_FLUSH_PERSISTENT = 2, /* may be combined */
};

enum rocidv_flush_level {
  ROCIDV_FLUSH_RANGE = 0,
  ROCIDV_FLUSH_WHOLE_REGION = 1,
};

/* The request, between ibv_wr_start() and ibv_wr_complete(); qp->wr_id and qp->wr_flags count.
 * Errors come from ibv_wr_complete(): EINVAL (another type of queue pair, an unknown type or level,
 * more than 2^31 bytes), ENOMEM. Where the device has no flush_types nothing is posted. */
void rocidv_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
                     uint32_t type, uint32_t level);
/* The same for any RC queue pair, at once. `send_flags`: IBV_SEND_SIGNALED, IBV_SEND_FENCE. 0, or
 * one of these errors, or EOPNOTSUPP. */
int rocidv_post_flush(struct ibv_qp* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
                      uint32_t type, uint32_t level, uint64_t wr_id, unsigned int send_flags);

/* ---- Signatures: T10 protection information
 *
 * The counterpart of the kernel's ib_alloc_mr_integrity(), ib_map_mr_sg_pi() and
 * ib_check_mr_status(). A signature region is a region as above that also works on what crosses it.
 * Data is taken as blocks; with each may go 8 bytes of protection information (T10 SBC-3, 4.22; all
 * big-endian): a guard of 2 bytes, an application tag of 2, a reference tag of 4. There may be some
 * in memory, on the wire, on both sides or on none:
 *
 *   memory  wire    bytes that leave memory      bytes that come into memory
 *   no      yes     it is inserted               it is checked and stripped
 *   yes     no      it is checked and stripped   it is inserted
 *   yes     yes     it is checked and passed     it is checked and passed
 *
 * Bytes leave by SEND, as the source of an RDMA WRITE and as the answer to a peer's RDMA READ; they
 * come by receives, as the answer to an own RDMA READ and by a peer's RDMA WRITE. Users of the key
 * see the region as it is on the wire: each block with its 8 bytes behind it, if the wire has any.
 *
 * Passed means: a field for which both sides' domains say the same (guard: kind and seed; tags:
 * value and, for the reference tag, whether it counts) goes as it is, right or wrong; others are
 * made anew. So a region turns CRCs into checksums, or one volume's tags into another's.
 *
 * What fails a check passes nevertheless, and the transfer succeeds. The region keeps the first
 * failure for rocidv_check_mr_status(), which is to be asked when the transfer has completed.
 *
 * What leaves is computed when it is sent, from memory as it is then, and may begin and end
 * anywhere. What comes must be whole blocks: a message, or several, one behind the other. A message
 * that begins within a block and does not go on where the one before ended fails with a protection
 * error (a peer's WRITE with a remote access error), and so does one that another message has
 * overtaken in the middle of a block. A block that is not complete has not been checked, and no
 * protection information of it has been made. There are no atomics on such regions.
 */

#define ROCIDV_SIG_BLOCK_512 (1u << 0)
#define ROCIDV_SIG_BLOCK_520 (1u << 1)
#define ROCIDV_SIG_BLOCK_4048 (1u << 2)
#define ROCIDV_SIG_BLOCK_4096 (1u << 3)
#define ROCIDV_SIG_BLOCK_4160 (1u << 4)

enum rocidv_sig_type {
  ROCIDV_SIG_NONE = 0,    /* this side has no protection information */
  ROCIDV_SIG_T10_DIF = 1, /* this side has: DIF types 1 to 3 are a matter of flags and checks */
};

enum rocidv_sig_guard {
  ROCIDV_SIG_CRC = 0,      /* CRC-16 of T10, polynomial 0x8BB7, not reflected */
  ROCIDV_SIG_CHECKSUM = 1, /* the Internet checksum (RFC 1071) */
};

/* flags of a domain. The two escapes exclude each other. */
#define ROCIDV_SIG_REF_REMAP (1u << 0)  /* the reference tag grows by 1 with each block */
#define ROCIDV_SIG_APP_ESCAPE (1u << 1) /* a block with application tag 0xFFFF is not checked */
#define ROCIDV_SIG_APP_REF_ESCAPE \
  (1u << 2) /* one with application tag 0xFFFF and reference tag 0xFFFFFFFF is not checked */

struct rocidv_sig_domain {
  uint8_t type;     /* enum rocidv_sig_type; with ROCIDV_SIG_NONE nothing else is looked at */
  uint8_t guard;    /* enum rocidv_sig_guard */
  uint16_t seed;    /* what the CRC or the sum begins with: 0 or 0xFFFF as a rule */
  uint16_t app_tag; /* tags are numbers in host byte order */
  uint16_t app_tag_check_mask; /* bits of the application tag that are checked */
  uint32_t ref_tag;            /* of the region's first block */
  uint32_t flags;              /* ROCIDV_SIG_REF_REMAP, an escape */
};

/* check_mask: which fields are checked. */
#define ROCIDV_SIG_CHECK_GUARD 0xC0u
#define ROCIDV_SIG_CHECK_APP_TAG 0x30u
#define ROCIDV_SIG_CHECK_REF_TAG 0x0Fu

struct rocidv_sig_attr {
  struct rocidv_sig_domain memory; /* checked on the way out */
  struct rocidv_sig_domain wire;   /* checked on the way in */
  uint32_t block_size;             /* of data, bytes: 512, 520, 4048, 4096 or 4160 */
  uint32_t check_mask;
};

enum rocidv_sig_error_type {
  ROCIDV_SIG_OK = 0,
  ROCIDV_SIG_BAD_GUARD = 1,
  ROCIDV_SIG_BAD_REF_TAG = 2,
  ROCIDV_SIG_BAD_APP_TAG = 3,
};

struct rocidv_sig_error {
  uint32_t type;     /* enum rocidv_sig_error_type; looked for in the order of their numbers */
  uint32_t key;      /* of the region when it happened */
  uint32_t expected; /* the whole field */
  uint32_t actual;
  uint64_t offset; /* of the block's first byte in the region, as on the wire */
};

/* At most max_mr_entries runs of data (1 at least), and max_protection_entries of protection
 * information: 0 where memory has none, or has it behind each block. Null with errno EINVAL,
 * ENOMEM, EOPNOTSUPP. Counts as one of max_mr. To be freed by rocidv_dereg_mr(), registered by
 * rocidv_wr_reg_mr() or rocidv_post_reg_mr() (without IBV_ACCESS_REMOTE_ATOMIC), and invalidated as
 * other regions. */
struct rocidv_mr* rocidv_alloc_mr_integrity(struct ibv_pd* pd, uint32_t max_entries,
                                            uint32_t max_protection_entries);

/* Says for the next registration what the region is made of and what it does. Where memory has
 * protection information, it is in `protection`, 8 bytes for each block, or, if
 * `protection_count` is 0, behind each block in `data`. Otherwise as rocidv_map_mr_sg(). 0, or
 * EINVAL: as there; what is mapped is not whole blocks, or the protection information not theirs;
 * `attr` has what it cannot have; or `mr` is not a signature region. */
int rocidv_map_mr_sg_integrity(struct rocidv_mr* mr, const struct ibv_sge* data,
                               uint32_t data_count, const struct ibv_sge* protection,
                               uint32_t protection_count, const struct rocidv_sig_attr* attr,
                               uint64_t iova);

/* Tells the first check that failed since the registration or the last call, and forgets it; the
 * others are not kept. Asks the daemon: some microseconds. 0 with error->type ROCIDV_SIG_OK where
 * none did. EINVAL: no signature region. */
int rocidv_check_mr_status(struct rocidv_mr* mr, struct rocidv_sig_error* error);

#ifdef __cplusplus
}
#endif

#endif
