// Messages of a session (session.h): memory regions, device memory and memory windows.
#pragma once

#include "verbs_provider/abi/session_head.h"

#define ROCI_ABI_MAX_EXTENTS 16

enum roci_abi_extent_kind {
  // Accessed by system calls: process_vm_readv and process_vm_writev, or /proc/PID/mem if the
  // program runs as another user.
  ROCI_ABI_EXTENT_PROCESS_VM = 0,
  ROCI_ABI_EXTENT_FD = 1,  // map descriptor number `fd_index` of this message at `file_offset`
  // Shared file mapping: open /proc/PID/map_files/<map_start>-<map_end>.
  ROCI_ABI_EXTENT_MAP_FILES = 2,
};
struct roci_abi_extent {
  uint64_t va;
  uint64_t length;  // bytes
  uint64_t file_offset;
  uint64_t map_start;  // MAP_FILES only
  uint64_t map_end;
  uint32_t kind;  // roci_abi_extent_kind
  uint32_t fd_index;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_extent) == 48);

// REG_MR. Extents are sorted, without gaps or overlaps, and cover [start, start + length) exactly;
// there are none if length is 0. Several extents may name the same descriptor.
//
// A region with on-demand paging (IBV_ACCESS_ON_DEMAND) has one extent, of kind PROCESS_VM. It may
// have holes; with start 0 and length ~0 it is the whole address space.
struct roci_abi_reg_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t access;  // enum ibv_access_flags
  uint64_t start;   // address in the program
  uint64_t length;
  uint64_t iova;  // address that work requests use for `start`; 0 for zero-based regions
  uint32_t extent_count;
  uint32_t fd_count;
  struct roci_abi_extent extents[ROCI_ABI_MAX_EXTENTS];
};
struct roci_abi_reg_mr_response {
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
  uint32_t reserved;
};

struct roci_abi_alloc_null_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t reserved;
};  // response: roci_abi_reg_mr_response

struct roci_abi_alloc_dm_request {
  struct roci_abi_request head;
  uint64_t length;     // bytes
  uint32_t log_align;  // log2 of the alignment of its address
  uint32_t reserved;
};
struct roci_abi_alloc_dm_response {  // 1 descriptor: the memfd that is the device memory
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t reserved;
  uint64_t memory_size;  // of the memfd, bytes, a multiple of the page size
};
struct roci_abi_reg_dm_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t dm;      // handle
  uint64_t offset;  // in the device memory, bytes
  uint64_t length;
  uint32_t access;  // enum ibv_access_flags; zero-based
  uint32_t reserved;
};  // response: roci_abi_reg_mr_response

struct roci_abi_reg_dma_buffer_mr_request {  // 1 descriptor: the DMA buffer
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t access;  // enum ibv_access_flags
  uint64_t offset;  // in the buffer, bytes
  uint64_t length;
  uint64_t iova;  // address that work requests use for `offset`
};                // response: roci_abi_reg_mr_response

struct roci_abi_rereg_mr_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t flags;  // enum ibv_rereg_mr_flags; a field below is used if its flag is set
  uint32_t pd;
  uint32_t access;
  uint64_t start;
  uint64_t length;
  uint64_t iova;
  uint32_t extent_count;
  uint32_t fd_count;
  struct roci_abi_extent extents[ROCI_ABI_MAX_EXTENTS];
};  // response: roci_abi_reg_mr_response

struct roci_abi_unshare_range_request {
  struct roci_abi_request head;
  uint64_t start;
  uint64_t length;
};  // response: plain

struct roci_abi_alloc_mw_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t type;  // enum ibv_mw_type
};
struct roci_abi_alloc_mw_response {
  struct roci_abi_response head;
  uint32_t handle;  // the upper 24 bits of each of its R_Keys
  uint32_t rkey;
};
