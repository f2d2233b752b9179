// librocidv: passes the calls of rocidv.h on to the plugin that serves the context.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "verbs_provider/rocidv/direct_table.h"

// Table sizes of older plugins: without signatures, and without FLUSH.
#define SIZE_BEFORE_SIGNATURES offsetof(struct rocidv_table, alloc_mr_integrity)
#define SIZE_BEFORE_FLUSH offsetof(struct rocidv_table, wr_flush)

// Finds the table of the plugin that contains `address`, a function of the context's operation
// table. Null for plugins of other devices, which do not have the symbol.
static const struct rocidv_table* FindTable(void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return NULL;
  void* plugin = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (plugin == NULL) return NULL;
  const struct rocidv_table* table = dlsym(plugin, ROCI_DIRECT_TABLE_SYMBOL);
  dlclose(plugin);  // libibverbs keeps it
  return table != NULL && table->size >= SIZE_BEFORE_SIGNATURES ? table : NULL;
}

// Caches the table of the first plugin that was found, so that work requests do not call the
// dynamic linker. Programs rarely have a second one.
static const struct rocidv_table* TableOf(struct ibv_context* context) {
  static const struct rocidv_table* _Atomic known_table;
  static void* _Atomic known_address;  // set once, after known_table
  void* address;
  if (context == NULL) return NULL;
  memcpy(&address, &context->ops.poll_cq, sizeof(address));
  if (address != NULL && atomic_load_explicit(&known_address, memory_order_acquire) == address) {
    return atomic_load_explicit(&known_table, memory_order_relaxed);
  }
  const struct rocidv_table* table = FindTable(address);
  const struct rocidv_table* none = NULL;
  if (table != NULL && atomic_compare_exchange_strong(&known_table, &none, table)) {
    atomic_store_explicit(&known_address, address, memory_order_release);
  }
  return table;
}

bool rocidv_is_supported(struct ibv_context* context) { return TableOf(context) != NULL; }

int rocidv_query_device(struct ibv_context* context, struct rocidv_device_attr* attr,
                        size_t attr_size) {
  const struct rocidv_table* table = TableOf(context);
  if (table == NULL) return EOPNOTSUPP;
  struct rocidv_device_attr all;
  memset(&all, 0, sizeof(all));
  const int error = table->query_device(context, &all);
  if (error != 0) return error;
  memset(attr, 0, attr_size);
  memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
  return 0;
}

struct rocidv_mr* rocidv_alloc_mr(struct ibv_pd* pd, uint32_t max_entries) {
  const struct rocidv_table* table = TableOf(pd->context);
  if (table != NULL) return table->alloc_mr(pd, max_entries);
  errno = EOPNOTSUPP;
  return NULL;
}

// A rocidv_mr is always from the plugin, so TableOf() is not null below.
int rocidv_dereg_mr(struct rocidv_mr* mr) { return TableOf(mr->context)->dereg_mr(mr); }

int rocidv_map_mr_sg(struct rocidv_mr* mr, const struct ibv_sge* runs, uint32_t count,
                     uint64_t iova) {
  return TableOf(mr->context)->map_mr_sg(mr, runs, count, iova);
}

int rocidv_map_mr_pages(struct rocidv_mr* mr, uint32_t lkey, const uint64_t* pages, uint32_t count,
                        uint64_t page_size, uint64_t offset, uint64_t length, uint64_t iova) {
  return TableOf(mr->context)
      ->map_mr_pages(mr, lkey, pages, count, page_size, offset, length, iova);
}

void rocidv_update_rkey(struct rocidv_mr* mr, uint8_t variant) {
  TableOf(mr->context)->update_rkey(mr, variant);
}

void rocidv_wr_reg_mr(struct ibv_qp_ex* qp, const struct rocidv_mr* mr, unsigned int access) {
  TableOf(mr->context)->wr_reg_mr(qp, mr, access);
}

int rocidv_post_reg_mr(struct ibv_qp* qp, const struct rocidv_mr* mr, unsigned int access,
                       uint64_t wr_id, unsigned int send_flags) {
  return TableOf(mr->context)->post_reg_mr(qp, mr, access, wr_id, send_flags);
}

struct rocidv_mr* rocidv_alloc_mr_integrity(struct ibv_pd* pd, uint32_t max_entries,
                                            uint32_t max_protection_entries) {
  const struct rocidv_table* table = TableOf(pd->context);
  if (table != NULL && table->size > SIZE_BEFORE_SIGNATURES) {
    return table->alloc_mr_integrity(pd, max_entries, max_protection_entries);
  }
  errno = EOPNOTSUPP;
  return NULL;
}

// A region may be an ordinary one, of a plugin that has no others.
int rocidv_map_mr_sg_integrity(struct rocidv_mr* mr, const struct ibv_sge* data,
                               uint32_t data_count, const struct ibv_sge* protection,
                               uint32_t protection_count, const struct rocidv_sig_attr* attr,
                               uint64_t iova) {
  const struct rocidv_table* table = TableOf(mr->context);
  if (table->size <= SIZE_BEFORE_SIGNATURES) return EINVAL;
  return table->map_mr_sg_integrity(mr, data, data_count, protection, protection_count, attr, iova);
}

int rocidv_check_mr_status(struct rocidv_mr* mr, struct rocidv_sig_error* error) {
  const struct rocidv_table* table = TableOf(mr->context);
  if (table->size <= SIZE_BEFORE_SIGNATURES) return EINVAL;
  return table->check_mr_status(mr, error);
}

// Does nothing for a queue pair of another device, which cannot report an error.
void rocidv_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
                     uint32_t type, uint32_t level) {
  const struct rocidv_table* table = TableOf(qp->qp_base.context);
  if (table != NULL && table->size > SIZE_BEFORE_FLUSH) {
    table->wr_flush(qp, rkey, remote_addr, length, type, level);
  }
}

int rocidv_post_flush(struct ibv_qp* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
                      uint32_t type, uint32_t level, uint64_t wr_id, unsigned int send_flags) {
  const struct rocidv_table* table = TableOf(qp->context);
  if (table == NULL || table->size <= SIZE_BEFORE_FLUSH) return EOPNOTSUPP;
  return table->post_flush(qp, rkey, remote_addr, length, type, level, wr_id, send_flags);
}
