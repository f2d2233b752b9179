/* Direct verbs of Rocinante: features of its devices for which <infiniband/verbs.h> has no call.
 *
 * Link with -lrocidv. The library finds the provider plugin through the context, so a program that
 * is linked with it also runs without Rocinante; then every call fails with EOPNOTSUPP. Calls are
 * as thread-safe as their counterparts in verbs, and report errors like these: null and errno, or a
 * positive errno as the result.
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
  uint32_t sig_block_sizes;        /* ROCIDV_SIG_BLOCK_*: supported block sizes */
  uint32_t sig_guards;             /* 1 << enum rocidv_sig_guard: supported guards */
  uint32_t flush_types;            /* enum rocidv_flush_type; 0: there is no FLUSH */
};

/* Whether `context` belongs to a device of Rocinante. */
bool rocidv_is_supported(struct ibv_context* context);

/* Fills in `attr_size` bytes of `attr`; members that this version does not have become 0. 0 or
 * EOPNOTSUPP. */
int rocidv_query_device(struct ibv_context* context, struct rocidv_device_attr* attr,
                        size_t attr_size);

/* ---- Registration by a work request
 *
 * The counterpart of the kernel's ib_alloc_mr(), ib_map_mr_sg() and IB_WR_REG_MR. A program
 * allocates a region once, without memory, and then repeats these steps:
 *   1. Set a list of runs of memory (rocidv_map_*) and a new key (rocidv_update_rkey).
 *   2. Post a work request that makes both valid (rocidv_wr_reg_mr or rocidv_post_reg_mr).
 *   3. Invalidate the region: by IBV_WR_LOCAL_INV, ibv_wr_local_inv() or a peer's SEND with
 *      invalidate.
 * Runs are parts of ordinary regions of the same protection domain, named by their local keys.
 * Those regions need no remote access rights, but local write access if the region is to be
 * written. They must stay registered while the region is used: after a deregistration, access fails
 * with a protection error.
 *
 * A registration takes effect in the order of the send queue, as a bind does (ibv_bind_mw(3)), and
 * completes with the opcode IBV_WC_DRIVER1. If the region is valid already, a run is not inside its
 * region, or access rights are missing, it completes with IBV_WC_MW_BIND_ERR and the queue pair
 * goes to ERR.
 */
struct rocidv_mr {
  struct ibv_context* context;
  struct ibv_pd* pd;
  uint32_t lkey;   /* of the current or the next registration */
  uint32_t rkey;   /* equal to lkey */
  uint64_t iova;   /* address of the first byte; of the last mapping */
  uint64_t length; /* bytes that the key covers; of the last mapping */
  uint32_t max_entries;
  uint32_t max_protection_entries; /* of a signature region */
};

/* Allocates a region. `max_entries`: at most max_mr_entries of the device. Null with errno EINVAL
 * or ENOMEM. Counts as one of max_mr. */
struct rocidv_mr* rocidv_alloc_mr(struct ibv_pd* pd, uint32_t max_entries);
/* Frees any region of this header, valid or not. 0, or an errno with nothing changed. */
int rocidv_dereg_mr(struct rocidv_mr* mr);

/* Sets the list to `count` runs in their order, for the next registration. Not for signature
 * regions. Requests with the key use address `iova` for the first byte; the other bytes follow. Do
 * not map between the post of a registration and its completion. 0, or EINVAL: no runs or more than
 * the region has room for, an empty run, or more than 2^46 bytes. */
int rocidv_map_mr_sg(struct rocidv_mr* mr, const struct ibv_sge* runs, uint32_t count,
                     uint64_t iova);
/* As rocidv_map_mr_sg, for `count` pages at the addresses `pages`, all in the ordinary region
 * `lkey`. `page_size` is a power of two, at least 4096, and page addresses are multiples of it. The
 * list has `length` bytes, from `offset` in the first page on. 0 or EINVAL. */
int rocidv_map_mr_pages(struct rocidv_mr* mr, uint32_t lkey, const uint64_t* pages, uint32_t count,
                        uint64_t page_size, uint64_t offset, uint64_t length, uint64_t iova);
/* Sets the low 8 bits of the key of the next registration, so that peers' old keys become invalid.
 * Not allowed while the region is valid. */
void rocidv_update_rkey(struct rocidv_mr* mr, uint8_t variant);

/* Adds the registration request, between ibv_wr_start() and ibv_wr_complete(), with qp->wr_id and
 * qp->wr_flags. For RC, UC and XRC send queue pairs. `access`: IBV_ACCESS_LOCAL_WRITE,
 * _REMOTE_WRITE, _REMOTE_READ, _REMOTE_ATOMIC. ibv_wr_complete() returns errors: EINVAL, ENOMEM. */
void rocidv_wr_reg_mr(struct ibv_qp_ex* qp, const struct rocidv_mr* mr, unsigned int access);
/* Posts the registration request to a queue pair that need not be extended. `send_flags`:
 * IBV_SEND_SIGNALED, IBV_SEND_FENCE. 0, EINVAL, or ENOMEM: the send queue is full. */
int rocidv_post_reg_mr(struct ibv_qp* qp, const struct rocidv_mr* mr, unsigned int access,
                       uint64_t wr_id, unsigned int send_flags);

/* ---- FLUSH
 *
 * The counterpart of ibv_wr_flush() of newer libraries, for RC and XRC send queue pairs. When a
 * FLUSH has completed, the data that earlier requests of this queue pair have written to the range
 * is visible to the peer's program (ROCIDV_FLUSH_GLOBAL), or survives a power failure
 * (ROCIDV_FLUSH_PERSISTENT), or both. With ROCIDV_FLUSH_WHOLE_REGION this holds for the whole
 * region of the key, and address and length are ignored. The peer's region and queue pair must
 * allow the type: IBV_ACCESS_FLUSH_GLOBAL (1 << 8), IBV_ACCESS_FLUSH_PERSISTENT (1 << 9). A FLUSH
 * counts as a READ or atomic (max_rd_atomic), and completes with the opcode IBV_WC_FLUSH of newer
 * headers (8).
 *
 * ROCIDV_FLUSH_PERSISTENT waits for the peer's disk. Choose a timeout of the queue pair that, with
 * its retries, is longer.
 */
enum rocidv_flush_type {
  ROCIDV_FLUSH_GLOBAL = 1,
  ROCIDV_FLUSH_PERSISTENT = 2, /* may be combined */
};

enum rocidv_flush_level {
  ROCIDV_FLUSH_RANGE = 0,
  ROCIDV_FLUSH_WHOLE_REGION = 1,
};

/* Adds the FLUSH request, between ibv_wr_start() and ibv_wr_complete(), with qp->wr_id and
 * qp->wr_flags. ibv_wr_complete() returns errors: EINVAL (another type of queue pair, an unknown
 * type or level, more than 2^31 bytes), ENOMEM. Posts nothing if the device has no flush_types. */
void rocidv_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
                     uint32_t type, uint32_t level);
/* Posts the FLUSH request to an RC queue pair that need not be extended. `send_flags`:
 * IBV_SEND_SIGNALED, IBV_SEND_FENCE. 0, one of the errors above, or EOPNOTSUPP. */
int rocidv_post_flush(struct ibv_qp* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
                      uint32_t type, uint32_t level, uint64_t wr_id, unsigned int send_flags);

/* ---- Signatures: T10 protection information
 *
 * The counterpart of the kernel's ib_alloc_mr_integrity(), ib_map_mr_sg_pi() and
 * ib_check_mr_status(). A signature region is a region as above that also inserts, checks or strips
 * protection information. Data consists of blocks. The protection information of a block is 8 bytes
 * (T10 SBC-3, 4.22; all big-endian): a guard of 2 bytes, an application tag of 2 and a reference
 * tag of 4. It exists in memory, on the wire, on both sides or on none:
 *
 *   memory  wire    data sent from memory        data received to memory
 *   no      yes     inserted                     checked and stripped
 *   yes     no      checked and stripped         inserted
 *   yes     yes     checked and passed           checked and passed
 *
 * Data is sent by SEND, as the source of an RDMA WRITE and as the response to a peer's RDMA READ.
 * It is received by receives, as the response to an own RDMA READ and by a peer's RDMA WRITE.
 * Requests with the key address the region as it is on the wire: each block is followed by its 8
 * bytes, if the wire has any.
 *
 * "Passed": a field for which both domains are equal (guard: kind and seed; tags: value and, for
 * the reference tag, ROCIDV_SIG_REF_REMAP) is copied unchanged, right or wrong. Other fields are
 * computed anew. So a region can convert CRCs to checksums, or one volume's tags to another's.
 *
 * A failed check does not fail the transfer, and the data is transferred. The region stores the
 * first failure; call rocidv_check_mr_status() when the transfer has completed.
 *
 * Sent data is computed from memory at the time it is sent, and may begin and end anywhere.
 * Received data must be whole blocks, in one message or in several consecutive ones. A message that
 * begins inside a block and does not continue the message before fails with a protection error (a
 * peer's WRITE with a remote access error), and so does a message that another one interrupts
 * inside a block. An incomplete block has not been checked and has no protection information yet.
 * Signature regions do not allow atomics.
 */

#define ROCIDV_SIG_BLOCK_512 (1u << 0)
#define ROCIDV_SIG_BLOCK_520 (1u << 1)
#define ROCIDV_SIG_BLOCK_4048 (1u << 2)
#define ROCIDV_SIG_BLOCK_4096 (1u << 3)
#define ROCIDV_SIG_BLOCK_4160 (1u << 4)

enum rocidv_sig_type {
  ROCIDV_SIG_NONE = 0,    /* this side has no protection information */
  ROCIDV_SIG_T10_DIF = 1, /* it has: flags and check_mask select DIF type 1, 2 or 3 */
};

enum rocidv_sig_guard {
  ROCIDV_SIG_CRC = 0,      /* CRC-16 of T10, polynomial 0x8BB7, not reflected */
  ROCIDV_SIG_CHECKSUM = 1, /* the Internet checksum (RFC 1071) */
};

/* Flags of a domain. The two escapes exclude each other. */
#define ROCIDV_SIG_REF_REMAP (1u << 0)  /* the reference tag grows by 1 with each block */
#define ROCIDV_SIG_APP_ESCAPE (1u << 1) /* a block with application tag 0xFFFF is not checked */
#define ROCIDV_SIG_APP_REF_ESCAPE \
  (1u << 2) /* one with application tag 0xFFFF and reference tag 0xFFFFFFFF is not checked */

struct rocidv_sig_domain {
  uint8_t type;     /* enum rocidv_sig_type; with ROCIDV_SIG_NONE the other members are ignored */
  uint8_t guard;    /* enum rocidv_sig_guard */
  uint16_t seed;    /* initial value of the CRC or checksum, usually 0 or 0xFFFF */
  uint16_t app_tag; /* tags are numbers in host byte order */
  uint16_t app_tag_check_mask; /* bits of the application tag to check */
  uint32_t ref_tag;            /* of the region's first block */
  uint32_t flags;              /* ROCIDV_SIG_REF_REMAP, an escape */
};

/* check_mask: the fields to check. */
#define ROCIDV_SIG_CHECK_GUARD 0xC0u
#define ROCIDV_SIG_CHECK_APP_TAG 0x30u
#define ROCIDV_SIG_CHECK_REF_TAG 0x0Fu

struct rocidv_sig_attr {
  struct rocidv_sig_domain memory; /* checked in sent data */
  struct rocidv_sig_domain wire;   /* checked in received data */
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
  uint32_t type;     /* enum rocidv_sig_error_type; checked in the order of the values */
  uint32_t key;      /* of the region at the time of the error */
  uint32_t expected; /* the whole field */
  uint32_t actual;
  uint64_t offset; /* of the block's first byte in the region, as on the wire */
};

/* Allocates a signature region. `max_entries`: runs of data, 1 to max_mr_entries of the device.
 * `max_protection_entries`: runs of protection information, at most that of the device; 0 if memory
 * has none, or has it after each block. Null with errno EINVAL, ENOMEM or EOPNOTSUPP. Counts as one
 * of max_mr. Free it with rocidv_dereg_mr(), register it with rocidv_wr_reg_mr() or
 * rocidv_post_reg_mr() (without IBV_ACCESS_REMOTE_ATOMIC), and invalidate it like other regions. */
struct rocidv_mr* rocidv_alloc_mr_integrity(struct ibv_pd* pd, uint32_t max_entries,
                                            uint32_t max_protection_entries);

/* Sets the memory and the attributes of the next registration. If memory has protection
 * information, it is in `protection`, 8 bytes for each block, or, if `protection_count` is 0, after
 * each block in `data`. Otherwise as rocidv_map_mr_sg(). 0, or EINVAL: as there; `data` is not
 * whole blocks; `protection` does not have 8 bytes for each block; `attr` is invalid; or `mr` is
 * not a signature region. */
int rocidv_map_mr_sg_integrity(struct rocidv_mr* mr, const struct ibv_sge* data,
                               uint32_t data_count, const struct ibv_sge* protection,
                               uint32_t protection_count, const struct rocidv_sig_attr* attr,
                               uint64_t iova);

/* Returns and clears the first failed check since the registration or the last call; later failures
 * are not stored. Sends a request to the daemon, which takes some microseconds. 0, with error->type
 * ROCIDV_SIG_OK if no check failed; EINVAL if `mr` is not a signature region. */
int rocidv_check_mr_status(struct rocidv_mr* mr, struct rocidv_sig_error* error);

#ifdef __cplusplus
}
#endif

#endif
